"""Conjugate gradients for Newton's systems of several problems, whose Hessians are not formed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tfopt.linear_model._fit.problem import Problem

__all__ = ["conjugate_gradient_directions", "conjugate_gradients"]

#: The residual's norm at which conjugate gradients stop, relative to the gradient's. To lower it
#: near the minimum, for superlinear convergence, took up to twice the products: the last direction
#: is better than it need be.
CG_TOLERANCE = 0.1
#: The largest number of their iterations for one direction.
MAX_PRODUCTS = 250
#: Curvature along a direction below this share of the diagonal's is rounding.
CURVATURE_ROUNDING = 1e-14


def conjugate_gradient_directions(
    objective: Problem,
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
