"""Newton's direction by conjugate gradients: for many features, whose pairs fit no matrix."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from tfopt.linear_model.problem import Problem
from tfopt.linear_model.sums import total

__all__ = ["MOST_PRODUCTS", "direction"]

#: Of a direction, at most: what is left then is for the next step.
MOST_PRODUCTS = 250
#: Of the diagonal's curvature along a direction, what is but rounding.
ROUNDING = 1e-14


def direction(
    problem: Problem,
    diagonal: np.ndarray,
    gradient: np.ndarray,
    share: float,
) -> Generator[np.ndarray, np.ndarray, np.ndarray]:
    """Return s for which H s is about -gradient: one that goes down in any case.

    H is the second derivatives: what is asked for are products of the losses' part of it and a
    vector.

    Parameters
    ----------
    problem : Problem
        Without l1; its rows are not looked at.
    diagonal : ndarray, shape (n_weights + 1,)
        Of the losses' part of H.
    gradient : ndarray, shape (n_weights + 1,)
        Its last is the intercept's, 0 if there is none.
    share : float
        Of the gradient's size, what may be left of H s + gradient.

    Returns
    -------
    ndarray, shape (n_weights + 1,)

    Notes
    -----
    Hestenes and Stiefel's method, preconditioned with the diagonal of H, from 0: whenever it is
    stopped, the gradient has been lowered along each direction tried (Dembo and Steihaug, 1983).
    """
    penalty = np.full(gradient.size, problem.l2)
    penalty[-1] = 0.0
    scale = diagonal + penalty
    if not problem.intercept:
        scale[-1] = 1.0
    scale[scale == 0] = 1.0
    s, r = np.zeros_like(gradient), -gradient
    z = r / scale
    p, rz = z, total(r, z)
    enough = share**2 * rz
    for _ in range(MOST_PRODUCTS):
        if not rz > enough:
            break
        Hp = (yield p) + penalty * p
        if not problem.intercept:
            Hp[-1] = 0.0
        curvature = total(p, Hp)
        if not curvature > ROUNDING * total(p, scale * p):
            break  # there is none in this direction
        s = s + rz / curvature * p
        r = r - rz / curvature * Hp
        z = r / scale
        rz, last = total(r, z), rz
        p = z + rz / last * p
    return s
