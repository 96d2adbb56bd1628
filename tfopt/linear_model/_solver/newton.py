"""Newton's method with a backtracking line search, for smooth losses.

The direction is found by Cholesky factorization, or by preconditioned conjugate gradients; with l1,
by coordinate descent on the quadratic model and the penalty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from tfopt.kernels.sdca import coordinate_descent, second_order
from tfopt.linear_model._solver.certificate import Certificate
from tfopt.linear_model._solver.design import Design, NewtonSystem, Point, Tangents
from tfopt.linear_model._solver.features import working_set
from tfopt.linear_model._solver.objective import Objective
from tfopt.linear_model._solver.reductions import weighted_sum

__all__ = [
    "Move",
    "Origin",
    "armijo_holds",
    "conjugate_gradients",
    "line_search",
    "newton_steps",
    "penalized",
    "promised_decrease",
    "proximal_step",
    "solve_newton_system",
    "working_set_steps",
]

#: The residual's norm at which conjugate gradients stop, relative to the gradient's. To lower it
#: near the minimum, for superlinear convergence, took up to twice the products: the last direction
#: is better than it need be.
CG_TOLERANCE = 0.1
#: The largest number of their iterations for one direction.
MAX_PRODUCTS = 250
#: Curvature along a direction below this share of the diagonal's is rounding.
CURVATURE_ROUNDING = 1e-14
#: The largest number of sweeps of coordinate descent for one direction; and what the last one may
#: lower the model by, relative to a Newton step of each weight alone.
MAX_SWEEPS, SWEEP_TOLERANCE = 1000, 1e-20
#: The sizes of working sets where Hessians are long messages: at least the one, twice the number of
#: weights that are not 0, and at most the other.
SMALLEST_SET, LARGEST_SET = 64, 512
#: A predicted decrease below this share of the objective is rounding.
MIN_DECREASE = 1e-16
#: The relative rounding error of the objective, which has parts larger than itself.
OBJECTIVE_ROUNDING = 1e-12


class Origin(NamedTuple):
    """Where a whole step started from that solves Newton's system.

    Attributes
    ----------
    w, bias
        The point.
    weights : ndarray, shape (n_weights,)
        The unshrunk weights of the step's dual variables.
    """

    w: np.ndarray
    bias: float
    weights: np.ndarray


class Move(NamedTuple):
    """Where a step has led.

    Attributes
    ----------
    point : Point
    tangents : Tangents
        The losses there.
    origin : Origin or None
        If the step's dual variables can be certified.
    """

    point: Point
    tangents: Tangents
    origin: Origin | None


def newton_steps(
    objective: Objective,
    design: Design,
    certificates: Mapping[int, Certificate],
    systems: Mapping[int, NewtonSystem],
) -> dict[int, Move]:
    """Take a Newton step for each of some problems, with a backtracking line search.

    Parameters
    ----------
    objective : Objective
    design : Design
    certificates : dict of Certificate
        Of the points to start from, whose tangents are the design's last.
    systems : dict of tuple
        The gradients and Hessians there, without the penalty.

    Returns
    -------
    dict of Move
        To the points of the design's last tangents; without the problems whose line search
        failed, whatever the direction.
    """
    gradients = {}
    for k, point in certificates.items():
        gradients[k] = gradient = systems[k][0].copy()
        gradient[:-1] += objective.l2 * point.w
        if not objective.intercept:
            gradient[-1] = 0.0
    forms_hessian = design.plan.forms_hessian
    moved: dict[int, Move] = {}
    if forms_hessian:
        steps = {}
        for k, point in certificates.items():
            hessian = systems[k][1]
            step = (
                proximal_step(objective, hessian, gradients[k], point.w)
                if objective.l1 > 0
                else solve_newton_system(objective, hessian, gradients[k])
            )
            if step is not None:
                steps[k] = step
        solved = {k: _weights_after(objective, systems[k], step) for k, step in steps.items()}
        moved = line_search(objective, design, certificates, gradients, steps, solved)
    elif objective.l1 > 0:
        steps = working_set_steps(objective, design, certificates, gradients)
        moved = line_search(objective, design, certificates, gradients, steps)
    if objective.l1 > 0:
        return moved
    rest = [k for k in certificates if k not in moved]
    if rest:
        hessians = {k: systems[k][1] for k in rest}
        steps = conjugate_gradient_directions(
            objective,
            hessians,
            {k: gradients[k] for k in rest},
            # the line search has moved on: only the matrix is left
            _products_with(hessians) if forms_hessian else design.hessian_products,
        )
        moved |= line_search(objective, design, certificates, gradients, steps)
    return moved


def _weights_after(objective: Objective, system: NewtonSystem, step: np.ndarray) -> np.ndarray:
    """Return the unshrunk weights of a step's dual variables: -(gradient + H s) / l2."""
    gradient, hessian = system
    weights: np.ndarray = -(gradient + np.add.reduce(hessian * step, axis=1))[:-1] / objective.l2
    return weights


def _products_with(
    hessians: Mapping[int, np.ndarray],
) -> Callable[[Mapping[int, np.ndarray]], dict[int, np.ndarray]]:
    return lambda vectors: {k: np.sum(hessians[k] * s, axis=1) for k, s in vectors.items()}


def solve_newton_system(
    objective: Objective, hessian: np.ndarray, gradient: np.ndarray
) -> np.ndarray | None:
    """Solve (H + l2) s = -gradient, intercept last; None if H is not numerically positive definite.

    H is the Hessian of the sum of the losses.
    """
    step = -gradient
    return step if second_order.solve(penalized(objective, hessian), step) else None


def penalized(objective: Objective, hessian: np.ndarray) -> np.ndarray:
    """Return the Hessian of losses and l2 penalty; the intercept is separate if there is none."""
    H = hessian.copy()
    np.einsum("ii->i", H)[: objective.n_weights] += objective.l2
    if not objective.intercept:
        H[-1] = H[:, -1] = 0
        H[-1, -1] = 1
    return H


def proximal_step(
    objective: Objective, hessian: np.ndarray, gradient: np.ndarray, w: np.ndarray
) -> np.ndarray:
    """Minimize g.s + s.(H + l2) s / 2 + l1 * |w + s|_1 by coordinate descent; intercept last.

    (A proximal Newton step: Lee, Sun, Saunders, 2014.)
    """
    H = penalized(objective, hessian)
    column, curvature = H[-1, :-1], H[-1, -1] or 1.0
    A = H[:-1, :-1] - np.outer(column, column) / curvature  # the intercept is eliminated
    left = gradient[:-1] - column * (gradient[-1] / curvature)
    tolerance = SWEEP_TOLERANCE * weighted_sum(left, left / np.diagonal(A))
    moved = w.copy()
    coordinate_descent.descend_matrix(A, left, moved, objective.l1, tolerance, MAX_SWEEPS)
    step = moved - w
    return np.append(step, -(gradient[-1] + weighted_sum(column, step)) / curvature)


def working_set_steps(
    objective: Objective,
    design: Design,
    certificates: Mapping[int, Certificate],
    gradients: Mapping[int, np.ndarray],
) -> dict[int, np.ndarray]:
    """Return proximal Newton steps over the weights of working sets, whose Hessians are formed."""
    working = {}
    for k, point in certificates.items():
        size = max(SMALLEST_SET, 2 * int(np.count_nonzero(point.w)))
        working[k] = working_set(point.w, gradients[k][:-1], objective.l1, min(size, LARGEST_SET))
    steps = {}
    for k, hessian in design.hessians_of(working).items():
        chosen, w = working[k], certificates[k].w
        some = objective._replace(n_weights=chosen.size)
        at = np.append(chosen, w.size)  # the intercept is last
        steps[k] = np.zeros(w.size + 1)
        steps[k][at] = proximal_step(some, hessian, gradients[k][at], w[chosen])
    return steps


def line_search(
    objective: Objective,
    design: Design,
    certificates: Mapping[int, Certificate],
    gradients: Mapping[int, np.ndarray],
    steps: Mapping[int, np.ndarray],
    solved: Mapping[int, np.ndarray] | None = None,
) -> dict[int, Move]:
    """Halve steps until the Armijo condition holds, or the predicted decrease is mere rounding.

    `solved` are the unshrunk weights of the steps' dual variables, if they solve their systems.
    """
    promised = {
        k: promised_decrease(objective, certificates[k].w, gradients[k], step)
        for k, step in steps.items()
    }
    moved, share = {}, 1.0
    pending = [k for k in steps if math.isfinite(promised[k])]
    while pending:
        points = {
            k: (
                certificates[k].w + share * steps[k][:-1],
                certificates[k].bias + share * float(steps[k][-1]),
            )
            for k in pending
        }
        for k, tangents in design.tangents(
            points, after_steps=solved is not None and share == 1
        ).items():
            point, (w, _) = certificates[k], points[k]
            value = tangents.losses + objective.penalty(w)
            if armijo_holds(point, value, share * promised[k]):
                origin = None
                if solved is not None and share == 1:
                    origin = Origin(point.w, point.bias, solved[k])
                moved[k] = Move(points[k], tangents, origin)
            if k in moved or not share * promised[k] > MIN_DECREASE * point.objective:
                pending.remove(k)
        share /= 2
    return moved


def promised_decrease(
    objective: Objective, w: np.ndarray, gradient: np.ndarray, step: np.ndarray
) -> float:
    """Return by how much a step lowers the objective to first order, l1 aside."""
    promised = -weighted_sum(gradient, step)
    if objective.l1 > 0:
        promised += objective.l1 * float(np.add.reduce(np.abs(w) - np.abs(w + step[:-1])))
    return promised


def armijo_holds(point: Certificate, value: float, promised: float) -> bool:
    """Whether the Armijo condition holds: a sufficient share of the predicted decrease.

    Rounding is allowed for: the certificate then shows whether the step was good.
    """
    return value <= point.objective - 1e-4 * promised + OBJECTIVE_ROUNDING * point.objective


def conjugate_gradient_directions(
    objective: Objective,
    hessians: Mapping[int, np.ndarray],
    gradients: Mapping[int, np.ndarray],
    products: Callable[[Mapping[int, np.ndarray]], Mapping[int, np.ndarray]],
) -> dict[int, np.ndarray]:
    """Return approximate Newton directions of some problems, given their Hessians' diagonals.

    `products` are those of the losses' Hessians and vectors.
    """
    problems = list(gradients)
    penalty = np.full(objective.n_weights + 1, objective.l2)
    penalty[-1] = 0.0
    formed = (hessians[k] for k in problems)
    diagonal = penalty + np.array([h if h.ndim == 1 else np.diagonal(h) for h in formed])

    def hessian_products(active: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        answers = products({problems[i]: s for i, s in zip(active, vectors, strict=True)})
        result: np.ndarray = penalty * vectors
        result += np.array([answers[problems[i]] for i in active])
        if not objective.intercept:
            result[:, -1] = 0.0
        return result

    if not objective.intercept:
        diagonal[:, -1] = 1.0
    gradient = np.array([gradients[k] for k in problems])
    steps = conjugate_gradients(hessian_products, diagonal, gradient)
    return dict(zip(problems, steps, strict=True))


def conjugate_gradients(
    products: Callable[[np.ndarray, np.ndarray], np.ndarray],
    diagonal: np.ndarray,
    gradient: np.ndarray,
    precondition: Callable[[np.ndarray], np.ndarray] | None = None,
    tolerance: float | None = None,
) -> np.ndarray:
    """Solve H s = -gradient approximately for each of several systems.

    The results are descent directions whenever the iteration stops.

    Parameters
    ----------
    products : callable
        From the numbers of some systems and a vector for each, of shape (n_active, n), to the
        products of their H and these vectors.
    diagonal : ndarray, shape (n_systems, n)
        Of H.
    gradient : ndarray, shape (n_systems, n)
    precondition : callable, optional
        Multiplies a residual by about the inverse of H, of one system.
    tolerance : float, optional
        The residual's norm to stop at, relative to the gradient's.

    Returns
    -------
    ndarray, shape (n_systems, n)

    Notes
    -----
    Hestenes and Stiefel's method from 0, by default with the diagonal of H as preconditioner;
    truncated, it gives a descent direction (Dembo and Steihaug, 1983).
    """
    scale = np.where(diagonal == 0, 1.0, diagonal)
    s, r = np.zeros_like(gradient), -gradient
    p = r / scale if precondition is None else precondition(r)
    rz = _dots(r, p)
    enough = (CG_TOLERANCE if tolerance is None else tolerance) ** 2 * rz
    active = np.flatnonzero(rz > enough)
    for _ in range(MAX_PRODUCTS):
        if not active.size:
            break
        Hp = products(active, p[active])
        curvature = _dots(p[active], Hp)
        # without curvature in its direction, a system stops
        goes_on = curvature > CURVATURE_ROUNDING * _dots(p[active], scale[active] * p[active])
        active, Hp, curvature = active[goes_on], Hp[goes_on], curvature[goes_on]
        alpha = (rz[active] / curvature)[:, None]
        s[active] += alpha * p[active]
        r[active] -= alpha * Hp
        z = r[active] / scale[active] if precondition is None else precondition(r[active])
        last, rz[active] = rz[active], _dots(r[active], z)
        p[active] = z + (rz[active] / last)[:, None] * p[active]
        active = active[rz[active] > enough[active]]
    return s


def _dots(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the dot products of rows, without BLAS; see `weighted_sum`."""
    return np.asarray(np.sum(a * b, axis=1))
