"""Coordinate descent for linear models with l1, and the duality gap where l2 may be 0.

A smooth loss near w0 is modelled by its second derivatives D. With g the gradient of the losses and
of l2 at w0, and A = X^T D X + l2, the model of what is to be minimized is ::

    g . (w - w0) + (w - w0) . A (w - w0) / 2 + l1 * |w|_1

An intercept that is always the best for w has the columns of X lose their means, weighted by D.
"""

from __future__ import annotations

import math

import numpy as np

from tfopt_ref.sdca import Rows, features, predict
from tfopt_ref.sdca_certificate import Fit, Problem, balance, best_bias, primal
from tfopt_ref.sdca_losses import Hinge, Huber

__all__ = ["certificate", "descend_columns", "descend_matrix", "fit", "minimum"]

#: Sweeps from one over all weights to the next; the others leave out those that are 0.
FULL_EVERY = 5
#: What may be left of a model, relative to the square of the gap; and the sweeps that may take.
PRECISION, SWEEPS = 1e-6, 100_000
#: The least curvature in a model of a loss that is linear far from its minimum, as a share of its
#: largest; or the relative gap, if that is smaller.
LEAST = 0.1
#: What is but rounding, of the primal.
SLACK = 1e-12


def minimum(w: float, gradient: float, curvature: float, l1: float) -> float:
    """Return the weight where the model is least, if the others stay: a soft threshold.

    Without curvature it is 0, for then l1 is above the gradient.
    """
    z = w * curvature - gradient
    if curvature <= 0 or abs(z) <= l1:
        return 0.0
    return (z - l1 if z > 0 else z + l1) / curvature


def descend_matrix(
    A: np.ndarray, gradient: np.ndarray, w: np.ndarray, l1: float, tolerance: float, sweeps: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Sweep over the weights, given A and the model's gradient without l1.

    A step s along a coordinate lowers the model by at least A_jj * s**2 / 2: a sweep with no more
    of that than the tolerance is the last.

    Returns
    -------
    w, gradient : ndarray
    n_sweeps : int
    """
    w, gradient = w.copy(), gradient.copy()
    for sweep in range(1, sweeps + 1):
        moved = 0.0
        for j in range(len(w)):
            found = minimum(float(w[j]), float(gradient[j]), float(A[j, j]), l1)
            step = found - float(w[j])
            if step != 0:
                w[j] = found
                gradient += A[j] * step
                moved += float(A[j, j]) * step * step
        if not moved > tolerance:
            return w, gradient, sweep
    return w, gradient, sweeps


def descend_columns(
    columns: Rows,
    D: np.ndarray,
    sums: np.ndarray,
    curvatures: np.ndarray,
    slopes: np.ndarray,
    w: np.ndarray,
    share: float,
    l1: float,
    l2: float,
    tolerance: float,
    sweeps: int,
) -> tuple[np.ndarray, np.ndarray, int, float]:
    """Sweep over the weights, given the columns of X as if they were rows.

    Parameters
    ----------
    columns : data, indices, indptr, dense
    D : ndarray, shape (n_samples,)
    sums : ndarray, shape (n_features,)
        X^T D.
    curvatures : ndarray, shape (n_features,)
        The diagonal of A.
    slopes : ndarray, shape (n_samples,)
        The models' derivatives, but for what the intercept adds to them.
    w : ndarray, shape (n_features,)
    share : float
        1 / sum of D with an intercept, else 0.

    Returns
    -------
    w, slopes : ndarray
    n_sweeps : int
    b : float
        How far the intercept went.
    """
    w, slopes, b = w.copy(), slopes.copy(), 0.0
    for sweep in range(sweeps):
        full, moved = sweep % FULL_EVERY == 0, 0.0
        for j in range(len(w)):
            if w[j] == 0 and not full:
                continue
            gradient = predict(columns, j, slopes, 0.0)
            gradient += float(sums[j]) * b + l2 * float(w[j])
            found = minimum(float(w[j]), gradient, float(curvatures[j]), l1)
            step = found - float(w[j])
            if step == 0:
                continue
            w[j] = found
            b -= share * float(sums[j]) * step
            for part in features(columns, j, len(slopes)):
                for x, i in part:
                    slopes[i] += D[i] * (x * step)
            moved += float(curvatures[j]) * step * step
        if full and not moved > tolerance:
            return w, slopes, sweep + 1, b
    return w, slopes, sweeps, b


def certificate(problem: Problem, w: np.ndarray, b: float, n_iter: int = 0) -> Fit:
    """Bound the minimum by the dual point a = -phi'(X w + b), scaled by s.

    The dual is ::

        -sum of c * phi*(-s * a) - sum of max(s * |X^T (c * a)| - l1, 0)**2 / (2 * l2)

    where for l2 = 0 the second sum is a constraint, which the largest s <= 1 that meets it is for.
    For other l2, s is that or 1, whichever makes less of the penalties' gap.
    """
    X, y, c, phi, l1, l2, intercept = problem
    z = X @ w + b
    a = -np.array([phi.slope(*each) for each in zip(z.tolist(), y.tolist(), strict=True)])
    if intercept:
        a = balance(problem, a)
    u = X.T @ (c * a)
    fits = min(1.0, l1 / np.abs(u).max()) if u.any() and l1 > 0 else 1.0

    def apart(s: float) -> float:
        inside = np.clip(s * u, -l1, l1)
        gaps = l1 * np.abs(w) - inside * w
        if l2 > 0:
            gaps = gaps + (l2 * w - (s * u - inside)) ** 2 / (2 * l2)
        return math.fsum(gaps)

    s = min([1.0, fits] if l2 > 0 else [fits], key=apart)
    gaps = [
        c_i * max(phi.gap(a_i, y_i, z_i), 0.0)
        for c_i, a_i, y_i, z_i in zip(
            c.tolist(), (s * a).tolist(), y.tolist(), z.tolist(), strict=True
        )
        if c_i > 0
    ]
    return Fit(w, b, s * a, primal(problem, w, b), max(math.fsum(gaps) + apart(s), 0.0), n_iter)


def fit(problem: Problem, tol: float = 1e-10, max_iter: int = 1000) -> Fit:
    """Minimize one model after another, each over all weights, until the gap is tol of the primal.

    A step is halved until it lowers the primal by a part of what it promises. What a step near the
    minimum promises is rounding, of either sign; the gap may need that step all the same.
    """
    X, y, c, phi, l1, l2, intercept = problem
    w, b = np.zeros(X.shape[1]), 0.0
    for n_iter in range(1, max_iter + 1):
        if intercept:
            b = best_bias(problem, X @ w)
        point = certificate(problem, w, b, n_iter)
        if point.near(tol):
            break
        z = list(zip((X @ w + b).tolist(), y.tolist(), strict=True))
        slopes = c * np.array([phi.slope(*each) for each in z])
        relative_gap = min(point.gap / point.primal, 1.0)
        is_linear_far = isinstance(phi, Hinge | Huber)
        least = min(LEAST, relative_gap) / phi.gamma if is_linear_far else 0.0
        D = c * np.maximum([phi.bend(*each) for each in z], least)
        mean = D @ X / D.sum() if intercept else np.zeros_like(w)
        centred = X - mean
        A = centred.T @ (D[:, None] * centred) + l2 * np.eye(len(w))
        g = X.T @ slopes + l2 * w
        tolerance = PRECISION * relative_gap**2 * point.primal
        found, _, _ = descend_matrix(A, g, w, l1, tolerance, SWEEPS)
        step = found - w
        promised = l1 * (np.abs(w).sum() - np.abs(found).sum()) - g @ step
        share = 1.0
        while promised > -SLACK * point.primal:
            moved = w + share * step, b - share * float(mean @ step)
            due = 1e-4 * share * promised - SLACK * point.primal
            if primal(problem, *moved) <= point.primal - due or share < 1e-9:
                w, b = moved
                break
            share /= 2
    return point
