"""An interior-point method for losses that are linear but for a corner, such as the hinge.

Such a loss is the largest a * (y - z) for low <= a <= high. With p and n the parts of
y - z = p - n, what is to be minimized over u = (w, b), p >= 0 and n >= 0 is ::

    sum of c * (high * p - low * n) + l2 / 2 * |w|**2    where X w + b + p - n = y

and at the minimum there are low <= a <= high with ::

    l2 * w = X^T (c * a),   0 = sum of c * a,   p * (high - a) = 0,   n * (a - low) = 0

The method has mu > 0 for the 0 of the products, and lowers it. A is X with a last column of 1;
without an intercept it has none. (Mehrotra, 1992; Ferris and Munson, 2002.) A loss with two corners
is the sum of two losses, each of rows that are the same: see `insensitive`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tfopt_ref.sdca_certificate import Fit, Problem, balance, primal, total
from tfopt_ref.sdca_losses import HALVINGS

__all__ = ["Iterate", "centre", "corner", "fit", "insensitive", "near_start", "start", "steps"]

#: The share of the way to where a variable would be 0.
NEARLY = 0.9995
#: By how much of the interval dual variables near the minimum are moved inside at most.
INSIDE = 0.3


class Iterate(NamedTuple):
    """A point: u, dual variables, how far these are from the ends of their interval, p and n.

    Rows that are `out` are far from their corner: steps keep their dual variables, at an end.
    """

    u: np.ndarray
    a: np.ndarray
    upper: np.ndarray
    lower: np.ndarray
    p: np.ndarray
    n: np.ndarray
    out: np.ndarray


def corner(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the intervals of the hinge, for labels of -1 and 1: max(0, 1 - y * z)."""
    return np.minimum(y, 0.0), np.maximum(y, 0.0)


def insensitive(problem: Problem, epsilon: float) -> tuple[Problem, np.ndarray, np.ndarray]:
    """Return ``max(0, |y - z| - epsilon)`` as twice as many rows, and the intervals of their a.

    It is max(0, y - epsilon - z) + max(0, z - (y + epsilon)).
    """
    X, y, c = problem.X, problem.y, problem.c
    zero, one = np.zeros(len(y)), np.ones(len(y))
    y = np.concatenate([y - epsilon, y + epsilon])
    twice = problem._replace(X=np.concatenate([X, X]), y=y, c=np.concatenate([c, c]))
    return twice, np.concatenate([zero, -one]), np.concatenate([one, zero])


def centre(
    r: np.ndarray, low: np.ndarray, high: np.ndarray, mu: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return high - a and a - low where mu / (high - a) - mu / (a - low) = r, by halving."""
    upper, lower = np.zeros_like(r), np.zeros_like(r)
    for i, distance in enumerate(np.abs(r).tolist()):
        width = float(high[i] - low[i])
        left, right = 0.0, width / 2
        for _ in range(HALVINGS):
            near = left + (right - left) / 2
            above = near == 0 or mu / near - mu / (width - near) > distance
            left, right = (near, right) if above else (left, near)
        upper[i], lower[i] = (right, width - right) if r[i] > 0 else (width - right, right)
    return upper, lower


def start(problem: Problem, low: np.ndarray, high: np.ndarray, u: np.ndarray, mu: float) -> Iterate:
    """Return the point at u whose products are all mu."""
    r = problem.y - A_of(problem) @ u
    upper, lower = centre(r, low, high, mu)
    a = np.where(r > 0, high - upper, low + lower)
    return Iterate(u, a, upper, lower, mu / upper, mu / lower, np.zeros(len(a), bool))


def near_start(
    problem: Problem, low: np.ndarray, high: np.ndarray, u: np.ndarray, a: np.ndarray, gap: float
) -> Iterate:
    """Return a point at u, near the minimum, with about the dual variables a of its certificate.

    These are moved to where the central path has them at least, but for INSIDE of the interval. The
    mean of p * (high - a) and n * (a - low) is mu, a hundred times what the gap says, where this
    leaves at least mu / (high - low) for the smaller one of p and n.
    """
    r, c = problem.y - A_of(problem) @ u, problem.c
    mu = float(min(c @ np.abs(r), 100 * gap / 2) / c.sum())
    width, (upper, lower) = high - low, centre(r, low, high, mu)
    a = np.maximum(a, low + np.minimum(lower, INSIDE * width))
    a = np.minimum(a, high - np.minimum(upper, INSIDE * width))
    p, n = np.zeros_like(r), np.zeros_like(r)
    for i, r_i in enumerate(r.tolist()):
        if r_i > 0:
            n[i] = max((2 * mu - (high[i] - a[i]) * r_i) / width[i], mu / width[i])
            p[i] = n[i] + r_i
        else:
            p[i] = max((2 * mu + (a[i] - low[i]) * r_i) / width[i], mu / width[i])
            n[i] = p[i] - r_i
    return Iterate(u, a, high - a, a - low, p, n, np.zeros(len(a), bool))


def A_of(problem: Problem) -> np.ndarray:
    X = problem.X if isinstance(problem.X, np.ndarray) else problem.X.toarray()
    return np.column_stack([X, np.ones(len(X))]) if problem.intercept else np.asarray(X, float)


def step(problem: Problem, at: Iterate) -> Iterate:
    """Return the next point.

    The steps of all variables follow from that of u, ::

        da = D * (p - n - e / upper + f / lower - A du),   D = 1 / (p / upper + n / lower)
        dp = e / upper - p + p / upper * da
        dn = f / lower - n - n / lower * da

    where e and f are what upper * p and lower * n are to be, but for -da * dp and da * dn. The
    predictor's are 0; the corrector's are mu, less the predictor's own -da * dp and da * dn.
    """
    c, l2 = np.where(at.out, 0.0, problem.c), problem.l2
    u, a, upper, lower, p, n, _ = at
    A = A_of(problem)
    P = np.full(len(u), l2)
    P[problem.X.shape[1] :] = 0
    D = 1 / (p / upper + n / lower)
    H = A.T @ ((c * D)[:, None] * A) + np.diag(P)

    def towards(e: np.ndarray, f: np.ndarray) -> tuple[np.ndarray, ...]:
        r = p - n - e / upper + f / lower
        du = np.linalg.solve(H, A.T @ (problem.c * a + c * D * r) - P * u)
        da = D * (r - A @ du)
        return du, da, e / upper - p + p / upper * da, f / lower - n - n / lower * da

    def longest(da: np.ndarray, dp: np.ndarray, dn: np.ndarray) -> float:
        kept = c > 0
        pairs = (upper, -da), (lower, da), (p, dp), (n, dn)
        return max(0.0, *(float(np.max(-(d / x)[kept])) for x, d in pairs))

    nothing = np.zeros_like(a)
    _, da, dp, dn = towards(nothing, nothing)
    share = min(1.0, 1 / longest(da, dp, dn))
    products = float(c @ (p * upper + n * lower))
    reached = float(
        c @ ((p + share * dp) * (upper - share * da) + (n + share * dn) * (lower + share * da))
    )
    mu = (reached / products) ** 3 * products / (2 * c.sum())
    du, da, dp, dn = towards(mu + da * dp, mu - da * dn)
    share = min(1.0, NEARLY / longest(da, dp, dn))
    steps = du, *(np.where(c > 0, each, 0.0) for each in (da, -da, da, dp, dn))
    moved = [x + share * d for x, d in zip(at[:-1], steps, strict=True)]
    return Iterate(*[*moved, at.out])


def mean_product(problem: Problem, at: Iterate) -> float:
    """Return the mean of upper * p + lower * n."""
    c = np.where(at.out, 0.0, problem.c)
    return float(c @ (at.p * at.upper + at.n * at.lower) / c.sum())


def is_feasible(problem: Problem, at: Iterate) -> bool:
    """Whether at most half of what a gap is estimated at is due to w, which is not that of a."""
    c = np.where(at.out, 0.0, problem.c)
    off = A_of(problem).T @ (problem.c * at.a) - problem.l2 * at.u
    gap = mean_product(problem, at) * c.sum()
    return bool(off @ off / (2 * problem.l2) <= gap)


def choose(
    problem: Problem, low: np.ndarray, high: np.ndarray, at: Iterate, reach: float
) -> Iterate:
    """Leave out the rows whose residuals are longer than `reach`.

    If more than half of the rows would be left, all are.
    """
    r = problem.y - A_of(problem) @ at.u
    near = (problem.c > 0) & (np.abs(r) <= reach)
    if not 0 < near.sum() <= len(r) // 2:
        near[:] = True
    mu = mean_product(problem, at) / 2
    upper, lower = centre(r, low, high, mu)
    new = np.where(r > 0, high - upper, low + lower), upper, lower, mu / upper, mu / lower
    values = [np.where(near & at.out, x, old) for x, old in zip(new, at[1:-1], strict=True)]
    values[0] = np.where(near, values[0], np.where(r > 0, high, low))
    return Iterate(*[at.u, *values, ~near])


def certificate(
    problem: Problem, low: np.ndarray, high: np.ndarray, at: Iterate, n_iter: int
) -> Fit:
    """Bound the minimum by a point, its dual variables balanced if there is an intercept."""
    X, y, c, phi, _, l2, intercept = problem
    d = X.shape[1]
    w, b = at.u[:d].copy(), float(at.u[d:].sum())
    a = np.clip(at.a, low, high)  # rounding
    a = balance(problem, a) if intercept else a
    v = X.T @ (c * a) / l2
    gaps = [
        c_i * max(phi.gap(a_i, y_i, z), 0.0)
        for a_i, y_i, c_i, z in zip(
            a.tolist(), y.tolist(), c.tolist(), (X @ w + b).tolist(), strict=True
        )
        if c_i > 0
    ]
    return Fit(w, b, a, primal(problem, w, b), total(gaps, l2 / 2 * (w - v) ** 2), n_iter)


def steps(
    problem: Problem,
    low: np.ndarray,
    high: np.ndarray,
    leaves_out: bool = False,
    near: Iterate | None = None,
) -> Iterator[Iterate]:
    """Yield ever better points, from the weights 0 and products of the mean of ``abs(y)``.

    Or from a point near the minimum. Rows are chosen to be left out, if at all, whenever the mean
    product is half of the last time's: those whose residuals are longer than any prediction has
    moved since, and than were those that were left out then, in proportion to the root of the mean
    product.
    """
    u = np.zeros(problem.X.shape[1] + problem.intercept)
    mu = float(problem.c @ np.abs(problem.y) / problem.c.sum())
    at = start(problem, low, high, u, mu)
    seen, chosen, reach = A_of(problem) @ u, np.inf, 0.0
    if near is not None:
        at, seen, chosen = near, A_of(problem) @ near.u, mean_product(problem, near)
    while True:
        mean = mean_product(problem, at)
        if leaves_out and mean <= chosen / 2 and is_feasible(problem, at):
            z = A_of(problem) @ at.u
            if np.isfinite(chosen):  # else z has moved from the beginning
                moved = float(np.abs(z - seen)[problem.c > 0].max())
                reach = max(moved, reach * (mean / chosen) ** 0.5)
                at = choose(problem, low, high, at, reach)
            seen, chosen = z, mean_product(problem, at)
        at = step(problem, at)
        yield at


def fit(problem: Problem, low: np.ndarray, high: np.ndarray, tol: float, max_iter: int) -> Fit:
    """Take steps until the gap is tol of the primal; all but l1, which must be 0."""
    for n_iter, at in enumerate(steps(problem, low, high), 1):
        found = certificate(problem, low, high, at, n_iter)
        if found.near(tol) or n_iter == max_iter:
            break
    return found
