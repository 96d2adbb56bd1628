"""The problem of a linear model, and how far a pair of points is from its minimum."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from tfopt_ref.sdca import EXAMPLE, Rows, shrunk, squared_norms
from tfopt_ref.sdca_losses import (
    HALVINGS,
    Gamma,
    Hinge,
    Logistic,
    Loss,
    Poisson,
    Squared,
    SquaredHinge,
    Tweedie,
)

__all__ = [
    "Fit",
    "Problem",
    "best_bias",
    "certificate",
    "examples_of",
    "first_bias",
    "primal",
    "rows_of",
]


class Problem(NamedTuple):
    """Minimize over w and b ::

        sum of c * phi(x . w + b; y) + l1 * |w|_1 + l2 / 2 * |w|**2

    where phi counts from its least value. X is an array or a CSR matrix, of float32 or float64.
    """

    X: Any
    y: np.ndarray
    c: np.ndarray
    phi: Loss
    l1: float
    l2: float
    intercept: bool


class Fit(NamedTuple):
    """A point w, b of the primal, one a of the dual, and what they say of the minimum.

    It is between primal - gap and primal.
    """

    w: np.ndarray
    b: float
    a: np.ndarray
    primal: float
    gap: float
    n_iter: int

    def near(self, tol: float) -> bool:
        """Whether the gap is tol of the primal."""
        return self.gap <= tol * self.primal


def rows_of(X: Any) -> Rows:
    """Return data, indices, indptr and a dense block."""
    n = X.shape[0]
    if isinstance(X, np.ndarray):
        return np.zeros(0), np.zeros(0, int), np.zeros(n + 1, int), X
    return X.data, X.indices, X.indptr, np.zeros((n, 0))


def examples_of(problem: Problem) -> np.ndarray:
    """Return the examples, whose dual variables are 0."""
    data, _, indptr, dense = rows_of(problem.X)
    examples = np.zeros(len(problem.y), EXAMPLE)
    examples["y"], examples["weight"] = problem.y, problem.c
    examples["curvature"] = squared_norms(data, indptr, dense) / problem.l2
    return examples


def first_bias(problem: Problem) -> float:
    """Return where b starts: what is best for w = 0, if that is a guess worth taking."""
    if not problem.intercept or isinstance(problem.phi, Hinge | SquaredHinge):
        return 0.0
    if isinstance(problem.phi, Logistic | Poisson | Gamma | Tweedie):
        return best_bias(problem, np.zeros(len(problem.y)))
    return math.fsum(problem.c * problem.y) / math.fsum(problem.c)


def primal(problem: Problem, w: np.ndarray, b: float) -> float:
    """Return what is to be minimized, with losses above the least they can be."""
    X, y, c, phi, l1, l2, _ = problem
    losses = [
        c_i * phi.gap(0.0, y_i, z)
        for z, y_i, c_i in zip((X @ w + b).tolist(), y.tolist(), c.tolist(), strict=True)
        if c_i > 0
    ]
    return total(losses, l1 * np.abs(w) + l2 / 2 * w * w)


def certificate(
    problem: Problem, a: np.ndarray, v: np.ndarray, n_iter: int, b: float | None = None
) -> Fit:
    """Bound the minimum from above, by w = S(v) and b, and from below, by a.

    The dual is ::

        -sum of c * phi*(-a) - l2 / 2 * |S(v)|**2    with v = sum of c * a * x / l2

    for a with sum of c * a = 0 if there is an intercept. The gap is the sum of terms, of an example
    or a weight each, that are not negative (Fenchel and Young), for a difference would be rounding.
    Without a b, it is the best.
    """
    X, y, c, phi, l1, l2, intercept = problem
    w = S(v, l1 / l2)
    wx = X @ w
    if b is None:
        b = best_bias(problem, wx) if intercept else 0.0
    if intercept:
        a = balance(problem, a)
    v = X.T @ (c * a) / l2
    gaps = [
        c_i * max(phi.gap(a_i, y_i, z), 0.0)
        for a_i, y_i, c_i, z in zip(
            a.tolist(), y.tolist(), c.tolist(), (wx + b).tolist(), strict=True
        )
        if c_i > 0
    ]
    apart = l2 / 2 * (w - S(v, l1 / l2)) ** 2 + l1 * np.abs(w) - l2 * (v - S(v, l1 / l2)) * w
    return Fit(w, b, a.copy(), primal(problem, w, b), total(gaps, apart), n_iter)


def S(v: np.ndarray, shrink: float) -> np.ndarray:
    return np.array([shrunk(t, shrink) for t in v.tolist()])


def total(*parts: Iterable[float]) -> float:
    return math.fsum(term for part in parts for term in part)


def best_bias(problem: Problem, wx: np.ndarray) -> float:
    """Return the b that minimizes sum of c * phi(wx + b): where its slope, which grows, is 0."""

    def slope(b: float) -> float:
        z = (wx + b).tolist()
        return math.fsum(
            c * problem.phi.slope(z, y)
            for c, z, y in zip(problem.c.tolist(), z, problem.y.tolist(), strict=True)
        )

    low, high = -1.0, 1.0
    while slope(low) > 0:
        low *= 2
    while slope(high) < 0:
        high *= 2
    for _ in range(HALVINGS):
        b = low + (high - low) / 2
        low, high = (b, high) if slope(b) < 0 else (low, b)
    return high


def balance(problem: Problem, a: np.ndarray) -> np.ndarray:
    """Return dual variables near a, and as allowed, whose sum of c * a is 0."""
    y, c = problem.y, problem.c
    balanced = a.copy()
    if isinstance(problem.phi, Squared):
        balanced -= math.fsum(c * a) / math.fsum(c)
        return balanced
    if isinstance(problem.phi, Poisson):  # y - a must not be negative, and have the mean of y
        balanced[:] = y - (y - a) * (math.fsum(c * y) / math.fsum(c * (y - a)))
        return balanced
    if isinstance(problem.phi, Gamma):  # 1 + a must not be negative, and have the mean 1
        balanced[:] = (1 + a) * (math.fsum(c) / math.fsum(c * (1 + a))) - 1
        return balanced
    if isinstance(problem.phi, Tweedie):  # all, or if y is 0 those below 0: each gives some way
        k, m = problem.phi.k, problem.phi.m
        way = y**k + k * np.maximum(-a, 0) + m * np.maximum(a, 0)
        balanced -= way * (math.fsum(c * a) / math.fsum(c * way))
        return balanced
    # a range has 0 in it: the sign whose sum is the larger has to give way
    sums = {sign: math.fsum((c * np.abs(a))[np.sign(a) == sign]) for sign in (-1, 1)}
    heavy = max(sums, key=lambda sign: sums[sign])
    balanced[np.sign(a) == heavy] *= min(sums.values()) / (sums[heavy] or 1.0)
    return balanced
