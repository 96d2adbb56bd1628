"""Newton's method with a backtracking line search, for smooth losses.

The direction comes from a Cholesky factorization or from preconditioned conjugate gradients; with
l1, from coordinate descent on the quadratic model plus the penalty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfopt.kernels.linear import second_order
from tfopt.linear_model._fit.certificate import (
    Certificate,
    certify_steps,
    certify_tangents,
    estimate_from_gradient,
    estimate_from_step,
)
from tfopt.linear_model._fit.conjugate_gradients import (
    GradientDirections,
    conjugate_gradient_directions,
)
from tfopt.linear_model._fit.design import Design, NewtonSystem, Point, Tangents
from tfopt.linear_model._fit.features import working_set
from tfopt.linear_model._fit.monitor import ConvergenceMonitor
from tfopt.linear_model._fit.problem import Problem
from tfopt.linear_model._fit.quadratic_model import ModelMatrix
from tfopt.linear_model._fit.steps import Steps
from tfopt.linear_model.loss_record import weighted_sum

__all__ = [
    "Move",
    "Newton",
    "Origin",
    "armijo_holds",
    "line_search",
    "newton_steps",
    "promised_decrease",
    "proximal_step",
    "solve_newton_system",
    "working_set_steps",
]

#: Below this relative gap, a Hessian is used for a second step.
NEAR = 1e-2
#: Sweeps for a direction with l1 end when one lowers the model by less than this share of what
#: separate Newton steps of the weights would.
PRECISION = 1e-20
#: The smallest and largest size of working sets where Hessians are long messages; in between, it is
#: twice the number of nonzero weights.
SMALLEST_SET, LARGEST_SET = 64, 512
#: A predicted decrease below this share of the objective is rounding.
MIN_DECREASE = 1e-16
#: The relative rounding error of the objective, whose terms may be larger than itself.
OBJECTIVE_ROUNDING = 1e-12


class Origin(NamedTuple):
    """The start of a whole Newton step, one that was not shortened.

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
    """The result of a step.

    Attributes
    ----------
    point : Point
    tangents : Tangents
        The losses at the point.
    origin : Origin or None
        The start, if the step's dual variables can be certified.
    """

    point: Point
    tangents: Tangents
    origin: Origin | None


class Newton(Steps):
    """The steps of Newton's method for several problems that share their rows.

    If a step fails, the visits continue where they stopped.

    Parameters
    ----------
    problem : Problem
        Its rows are not used.
    design : Design
    """

    def __init__(self, problem: Problem, design: Design) -> None:
        self.problem, self.design = problem, design
        plan = design.plan
        self._directions = None if plan.forms_hessian else GradientDirections(problem, design)
        self._points: dict[int, Point] = {}
        self._last_points: dict[int, Point] = {}
        self._origins: dict[int, Origin] = {}
        self._moves: dict[int, Move] = {}
        self._systems: dict[int, NewtonSystem] = {}

    @property
    def active(self) -> Collection[int]:
        return self._points.keys()

    def start(self, k: int, w: np.ndarray, bias: float) -> None:
        self._points[k] = w, bias

    def end(self, k: int) -> None:
        for part in (self._points, self._origins, self._moves):
            part.pop(k, None)

    def look(
        self, monitors: Sequence[ConvergenceMonitor]
    ) -> tuple[dict[int, Certificate], dict[int, Certificate]]:
        tangents = self._tangents()
        far = [k for k, each in tangents.items() if not math.isfinite(each.losses)]
        for k in [k for k in far if monitors[k].is_tentative]:  # a useless warm start
            far.remove(k)
            del tangents[k], self._points[k]
        if far:
            self._points |= {k: (np.zeros_like(self._points[k][0]), 0.0) for k in far}
            tangents |= self.design.tangents({k: self._points[k] for k in far})
        return self._certified(tangents, monitors)

    def _tangents(self) -> dict[int, Tangents]:
        """Return the tangents at the points, and recompute the steps that led there."""
        points, origins = self._points, self._origins
        new = {k: point for k, point in points.items() if k not in self._moves}
        starts = {k: (origins[k].w, origins[k].bias) for k in new if k in origins}
        if starts:
            self.design.tangents(starts)
            ends = self.design.tangents({k: new[k] for k in starts}, after_steps=True)
            self._moves |= {k: Move(new[k], ends[k], origins[k]) for k in starts}
        tangents = {k: move.tangents for k, move in self._moves.items()}
        return tangents | self.design.tangents({k: new[k] for k in new if k not in starts})

    def _certified(
        self, tangents: Mapping[int, Tangents], monitors: Sequence[ConvergenceMonitor]
    ) -> tuple[dict[int, Certificate], dict[int, Certificate]]:
        """Certify points that may be within the tolerance, by the last step if there was one."""
        problem, design, points = self.problem, self.design, self._points
        weights = {k: origin.weights for k, origin in self._origins.items()}
        estimates = {
            k: estimate_from_step(problem, points[k], tangents[k], v) for k, v in weights.items()
        }
        due = {k: points[k] for k in estimates if monitors[k].should_certify_step(estimates[k])}
        certified = certify_steps(problem, design, due, tangents, weights)
        rest = {k for k in points if k in due or k not in estimates} - set(certified)
        due = {k: points[k] for k in rest if monitors[k].must_certify}
        self._systems = dict(design.newton_systems([k for k in rest if k not in due]))
        for k, (gradient, _) in self._systems.items():
            estimates[k] = estimate_from_gradient(problem, points[k], tangents[k], gradient)
            if monitors[k].should_certify_step(estimates[k]):
                due[k] = points[k]
        return estimates, certified | certify_tangents(problem, design, due, tangents)

    def step(self, going: Mapping[int, Certificate]) -> list[int]:
        problem, design, points = self.problem, self.design, self._points
        near = {k for k in self._origins if k in going and going[k].relative_gap <= NEAR}
        unknown = [k for k in going if k not in self._systems]
        systems = self._systems | dict(design.newton_systems(unknown, near))
        moved = newton_steps(problem, design, going, systems, self._directions)
        if left := {k: going[k] for k in near if k not in moved}:  # the last Hessian failed
            design.tangents({k: points[k] for k in left})
            systems = design.newton_systems(left)
            moved |= newton_steps(problem, design, left, systems, self._directions)
        self._points = {k: move.point for k, move in moved.items()}
        self._origins = {k: move.origin for k, move in moved.items() if move.origin is not None}
        self._moves, self._last_points = moved, points
        return [k for k in going if k not in moved]

    def certify(self, problems: Sequence[int]) -> dict[int, Certificate]:
        points = {k: self._last_points[k] for k in problems}
        if not points:
            return {}
        return certify_tangents(self.problem, self.design, points, self.design.tangents(points))

    def state(self) -> dict[str, Any]:
        return {
            "newton_points": {
                str(k): {"w": w, "bias": bias} for k, (w, bias) in self._points.items()
            },
            "newton_origins": {str(k): each._asdict() for k, each in self._origins.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._points = {
            int(k): (point["w"], point["bias"]) for k, point in state["newton_points"].items()
        }
        self._origins = {int(k): Origin(**each) for k, each in state["newton_origins"].items()}


def newton_steps(
    problem: Problem,
    design: Design,
    certificates: Mapping[int, Certificate],
    systems: Mapping[int, NewtonSystem],
    directions: GradientDirections | None,
) -> dict[int, Move]:
    """Take a Newton step for each of some problems, with a backtracking line search.

    Parameters
    ----------
    problem : Problem
    design : Design
    certificates : dict of Certificate
        The certificates of the points to start from, which are the design's last tangents.
    systems : dict of tuple
        The gradients and Hessians there, without the penalty.
    directions : GradientDirections or None
        The directions of the design, unless Hessians are formed.

    Returns
    -------
    dict of Move
        The points of the design's last tangents; problems are left out if the line search failed
        for each direction.
    """
    gradients = {}
    for k, point in certificates.items():
        gradients[k] = gradient = systems[k][0].copy()
        gradient[:-1] += problem.l2 * point.w
        if not problem.intercept:
            gradient[-1] = 0.0
    moved: dict[int, Move] = {}
    if directions is None:
        steps = {}
        for k, point in certificates.items():
            hessian = systems[k][1]
            step = (
                proximal_step(problem, hessian, gradients[k], point.w)
                if problem.l1 > 0
                else solve_newton_system(problem, hessian, gradients[k])
            )
            if step is not None:
                steps[k] = step
        solved = {k: _weights_after(problem, systems[k], step) for k, step in steps.items()}
        moved = line_search(problem, design, certificates, gradients, steps, solved)
    elif problem.l1 > 0:
        steps = working_set_steps(problem, design, certificates, gradients)
        moved = line_search(problem, design, certificates, gradients, steps)
    if problem.l1 > 0:
        return moved
    if rest := {k: gradients[k] for k in certificates if k not in moved}:
        hessians = {k: systems[k][1] for k in rest}
        if directions is None:  # the state has moved in the line search; only the matrix remains
            steps = conjugate_gradient_directions(
                problem, hessians, rest, _products_with(hessians), {}
            )
        else:
            steps = directions.at(hessians, rest)
        moved |= line_search(problem, design, certificates, gradients, steps)
    return moved


def _weights_after(problem: Problem, system: NewtonSystem, step: np.ndarray) -> np.ndarray:
    """Return the unshrunk weights of a step's dual variables: -(gradient + H s) / l2."""
    gradient, hessian = system
    weights: np.ndarray = -(gradient + np.add.reduce(hessian * step, axis=1))[:-1] / problem.l2
    return weights


def _products_with(
    hessians: Mapping[int, np.ndarray],
) -> Callable[[Mapping[int, np.ndarray]], dict[int, np.ndarray]]:
    return lambda vectors: {k: np.sum(hessians[k] * s, axis=1) for k, s in vectors.items()}


def solve_newton_system(
    problem: Problem, hessian: np.ndarray, gradient: np.ndarray
) -> np.ndarray | None:
    """Solve (H + l2 * I) s = -gradient; None if the matrix is not numerically positive definite.

    H is the Hessian of the sum of the losses. The intercept is last and has no l2.
    """
    step = -gradient
    return step if second_order.solve(problem.penalized(hessian), step) else None


def proximal_step(
    problem: Problem, hessian: np.ndarray, gradient: np.ndarray, w: np.ndarray
) -> np.ndarray:
    """Minimize g.s + s.(H + l2) s / 2 + l1 * |w + s|_1 by coordinate descent; intercept last.

    (A proximal Newton step: Lee, Sun, Saunders, 2014.)
    """
    model, g = ModelMatrix.of(hessian, problem.penalties, problem.intercept), gradient[:-1]
    tolerance = PRECISION * weighted_sum(g, g / np.diagonal(model.A))
    moved, _, bias_step = model.minimum(w, g, float(gradient[-1]), tolerance)
    return np.append(moved - w, bias_step)


def working_set_steps(
    problem: Problem,
    design: Design,
    certificates: Mapping[int, Certificate],
    gradients: Mapping[int, np.ndarray],
) -> dict[int, np.ndarray]:
    """Return proximal Newton steps over working sets of weights, with their Hessians."""
    working = {}
    for k, point in certificates.items():
        size = max(SMALLEST_SET, 2 * int(np.count_nonzero(point.w)))
        penalties, most = problem.penalties, min(size, LARGEST_SET)
        working[k] = working_set(point.w, gradients[k][:-1], penalties, most)
    steps = {}
    for k, hessian in design.hessians_of(working).items():
        chosen, w = working[k], certificates[k].w
        some = problem._replace(n_weights=chosen.size)
        at = np.append(chosen, w.size)  # the intercept is last
        steps[k] = np.zeros(w.size + 1)
        steps[k][at] = proximal_step(some, hessian, gradients[k][at], w[chosen])
    return steps


def line_search(
    problem: Problem,
    design: Design,
    certificates: Mapping[int, Certificate],
    gradients: Mapping[int, np.ndarray],
    steps: Mapping[int, np.ndarray],
    solved: Mapping[int, np.ndarray] | None = None,
) -> dict[int, Move]:
    """Halve steps until the Armijo condition holds, or the predicted decrease is only rounding.

    For steps that solve their systems, `solved` has the unshrunk weights of their dual variables.
    """
    promised = {
        k: promised_decrease(problem, certificates[k].w, gradients[k], step)
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
            value = tangents.losses + problem.penalty(w)
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
    problem: Problem, w: np.ndarray, gradient: np.ndarray, step: np.ndarray
) -> float:
    """Return the predicted decrease of the objective: to first order, but exact for l1."""
    promised = -weighted_sum(gradient, step)
    if problem.l1 > 0 or not problem.is_plain:
        sizes = problem.penalties.sizes
        promised += float(np.add.reduce(sizes(w) - sizes(w + step[:-1])))
    return promised


def armijo_holds(point: Certificate, value: float, promised: float) -> bool:
    """Whether the Armijo condition holds: the decrease is a sufficient share of the predicted one.

    The rounding error of the objective is tolerated: the certificate then shows whether the step
    was good.
    """
    return value <= point.objective - 1e-4 * promised + OBJECTIVE_ROUNDING * point.objective
