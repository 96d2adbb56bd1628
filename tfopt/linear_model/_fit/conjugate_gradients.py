"""Conjugate gradients for the Newton systems of several problems.

After many products a Hessian is formed; its factor is the preconditioner of the next systems.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from tfopt.kernels.linear import second_order
from tfopt.linear_model._fit.design import Design
from tfopt.linear_model._fit.problem import Problem

__all__ = [
    "GradientDirections",
    "Precondition",
    "conjugate_gradient_directions",
    "conjugate_gradients",
]

#: A function of the numbers of some systems and their residuals r; it approximates H^-1 r.
Precondition: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]

#: The norm of the residual at which conjugate gradients stop, relative to that of the gradient. A
#: smaller number near the minimum, for superlinear convergence, took up to twice the products: the
#: last direction became more accurate than necessary.
CG_TOLERANCE = 0.1
#: The largest number of their iterations for one direction.
MAX_PRODUCTS = 250
#: Curvature along a direction below this share of the diagonal's is rounding.
CURVATURE_ROUNDING = 1e-14


class GradientDirections:
    """Newton directions by conjugate gradients at the last tangents of a design.

    When the products since the last Hessian exceed a number in the plan, a new Hessian is formed.
    So a fit takes at most about twice the work of the better way, whatever the condition number.

    Parameters
    ----------
    problem : Problem
    design : Design
        Its plan has this number of products.
    """

    def __init__(self, problem: Problem, design: Design) -> None:
        self.problem, self.design = problem, design
        self._factors: dict[int, np.ndarray] = {}
        self._n_products: Counter[int] = Counter()

    def _products(self, vectors: Mapping[int, np.ndarray]) -> Mapping[int, np.ndarray]:
        self._n_products.update(vectors.keys())
        return self.design.hessian_products(vectors)

    def at(
        self, diagonals: Mapping[int, np.ndarray], gradients: Mapping[int, np.ndarray]
    ) -> dict[int, np.ndarray]:
        """Return the directions, given the diagonals of the Hessians without the penalty."""
        most = self.design.plan.products_before_hessian
        if due := [k for k in gradients if self._n_products[k] >= most]:
            everything = np.arange(self.problem.n_weights)
            for k, hessian in self.design.hessians_of(dict.fromkeys(due, everything)).items():
                self._n_products[k], factor = 0, self.problem.penalized(hessian)
                if second_order.solve(factor, np.zeros(len(factor))):
                    self._factors[k] = factor
        return conjugate_gradient_directions(
            self.problem, diagonals, gradients, self._products, self._factors, most
        )


def conjugate_gradient_directions(
    problem: Problem,
    hessians: Mapping[int, np.ndarray],
    gradients: Mapping[int, np.ndarray],
    products: Callable[[Mapping[int, np.ndarray]], Mapping[int, np.ndarray]],
    factors: Mapping[int, np.ndarray],
    most: float = math.inf,
) -> dict[int, np.ndarray]:
    """Return approximate Newton directions of some problems, given their Hessians' diagonals.

    `products` multiplies the Hessians of the losses by vectors, at most `most` times. `factors` are
    Cholesky factors of Hessians at near points, used as preconditioners; the other problems use the
    diagonal.
    """
    problems = list(gradients)
    penalty = np.full(problem.n_weights + 1, problem.l2)
    penalty[-1] = 0.0
    formed = (hessians[k] for k in problems)
    diagonal = penalty + np.array([h if h.ndim == 1 else np.diagonal(h) for h in formed])

    def hessian_products(active: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        answers = products({problems[i]: s for i, s in zip(active, vectors, strict=True)})
        result: np.ndarray = penalty * vectors
        result += np.array([answers[problems[i]] for i in active])
        if not problem.intercept:
            result[:, -1] = 0.0
        return result

    if not problem.intercept:
        diagonal[:, -1] = 1.0
    gradient = np.array([gradients[k] for k in problems])

    def precondition(active: np.ndarray, residuals: np.ndarray) -> np.ndarray:
        z = residuals.copy()
        for i, each in zip(active, z, strict=True):
            if problems[i] in factors:
                second_order.solve(factors[problems[i]], each, is_factor=True)
            else:
                each /= scale[i]
        return z

    scale = np.where(diagonal == 0, 1.0, diagonal)
    steps = conjugate_gradients(hessian_products, diagonal, gradient, precondition, most=most)
    return dict(zip(problems, steps, strict=True))


def conjugate_gradients(
    products: Callable[[np.ndarray, np.ndarray], np.ndarray],
    diagonal: np.ndarray,
    gradient: np.ndarray,
    precondition: Precondition | None = None,
    tolerance: float | None = None,
    most: float = math.inf,
) -> np.ndarray:
    """Solve H s = -gradient approximately for each of several systems.

    The results are descent directions whenever the iteration stops.

    Parameters
    ----------
    products : callable
        A function of the numbers of some systems and a vector for each, of shape (n_active, n);
        returns the products of their H and these vectors.
    diagonal : ndarray, shape (n_systems, n)
        The diagonals of H.
    gradient : ndarray, shape (n_systems, n)
    precondition : callable, optional
        By default, residuals are divided by the diagonal.
    tolerance : float, optional
        The norm of the residual to stop at, relative to that of the gradient, in the metric of the
        preconditioner; CG_TOLERANCE by default.
    most : float, optional
        The largest number of products, if it is below MAX_PRODUCTS.

    Returns
    -------
    ndarray, shape (n_systems, n)

    Notes
    -----
    The method of Hestenes and Stiefel, started at 0. Truncated, it still returns a descent
    direction (Dembo and Steihaug, 1983).
    """
    scale = np.where(diagonal == 0, 1.0, diagonal)
    s, r = np.zeros_like(gradient), -gradient
    if precondition is None:
        precondition = lambda active, residuals: residuals / scale[active]  # noqa: E731
    p = precondition(np.arange(len(r)), r)
    rz = _dots(r, p)
    enough = (CG_TOLERANCE if tolerance is None else tolerance) ** 2 * rz
    active = np.flatnonzero(rz > enough)
    for _ in range(math.ceil(min(most, MAX_PRODUCTS))):
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
        z = precondition(active, r[active])
        last, rz[active] = rz[active], _dots(r[active], z)
        p[active] = z + (rz[active] / last)[:, None] * p[active]
        active = active[rz[active] > enough[active]]
    return s


def _dots(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the dot products of rows, without BLAS; see `weighted_sum`."""
    return np.asarray(np.sum(a * b, axis=1))
