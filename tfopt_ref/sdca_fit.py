"""Linear models by stochastic dual coordinate ascent, until a duality gap is small enough.

What ``tfopt.linear_model`` does, but for Newton's method, which comes to the same minimum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from tfopt_ref.sdca import EXAMPLE, Rows, shrunk, shuffled, squared_norms
from tfopt_ref.sdca_losses import HALVINGS, LOSSES, Hinge, Loss, Poisson, Squared
from tfopt_ref.sdca_solver import epoch

__all__ = ["Fit", "fit"]

#: Epochs between certificates, at most; and what the estimate of the gap may be off by.
CERTIFY_EVERY, SLACK = 10, 1.2
#: The curvature of the intercept as a share of the mean example's.
INTERCEPT_SHARE = 0.1
MERGES = 2


class Problem(NamedTuple):
    """Minimize sum of c * phi(x . w + b; y) + l1 * |w|_1 + l2 / 2 * |w|**2 over w and b.

    X is an array or a CSR matrix, of float32 or float64.
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
    n_epochs: int

    def near(self, tol: float) -> bool:
        """Whether the gap is tol of the primal."""
        return self.gap <= tol * abs(self.primal)


def fit(
    X: Any,
    y: np.ndarray,
    c: np.ndarray,
    loss: str,
    *,
    gamma: float = 1.0,
    l1: float = 0.0,
    l2: float = 1.0,
    intercept: bool = True,
    n_partitions: int = 1,
    tol: float = 1e-4,
    max_epochs: int = 1000,
    seed: int = 0,
) -> Fit:
    """Visit the examples in random order until the gap is tol of the primal.

    Parameters
    ----------
    X : ndarray or CSR matrix of float32 or float64, shape (n_examples, n_features)
    y : ndarray of float64, shape (n_examples,)
        -1 or 1 for the losses of classification.
    c : ndarray of float64, shape (n_examples,)
        The examples' weights.
    loss : str
        A name of `LOSSES`.
    gamma : float
        The width of a smooth hinge.
    l1, l2 : float
    intercept : bool
        Whether there is a b.
    n_partitions, tol, max_epochs, seed
        See `tfopt.linear_model.SDCAClassifier`.

    Returns
    -------
    Fit
        The one with the least gap of those that were certified.
    """
    problem = Problem(X, y, c, loss_named(loss, gamma), l1, l2, intercept)
    rows, examples, v = rows_of(X), examples_of(problem), np.zeros(X.shape[1])
    b = first_bias(problem)
    # b is the weight of a feature 1 with the penalty rho / 2 * (b - centre)**2: curvature 1 / rho
    curvature = (INTERCEPT_SHARE * examples["curvature"].mean() or 1.0) if intercept else 0.0
    replicas = np.zeros((n_partitions if n_partitions > 1 else 0, len(v)))
    sigma = 1 + (n_partitions - 1) / 2

    def visit(number: int) -> float:
        nonlocal b, sigma
        plan = shuffled(len(y), 1, seed, number).tolist()
        b, sigma, estimate = epoch(
            *rows, plan, examples, v, replicas, np.zeros(len(y)), loss, gamma, l2, l1 / l2,
            b, curvature, sigma, MERGES, 1,
        )  # fmt: skip
        b += curvature * math.fsum(c * examples["a"])  # the centre moves to where b is
        return estimate

    return climb(problem, visit, examples, v, tol, max_epochs)


def loss_named(loss: str, gamma: float) -> Loss:
    return Hinge(gamma) if loss == "smooth_hinge_loss" else LOSSES[loss]


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
    if not problem.intercept or isinstance(problem.phi, Hinge):
        return 0.0
    return best_bias(problem, np.zeros(len(problem.y)))


def climb(
    problem: Problem,
    visit: Callable[[int], float],
    examples: np.ndarray,
    v: np.ndarray,
    tol: float,
    max_epochs: int,
) -> Fit:
    """Return the best of what is certified after epochs, until one is good enough.

    `visit` changes the examples' dual variables and v, given an epoch's number, and returns the
    estimate of the gap.
    """
    best: Fit | None = None
    certified, per_gap = 0, 1.0
    for number in range(1, max_epochs + 1):
        estimate = visit(number)
        small = best is not None and estimate <= SLACK * tol * abs(best.primal) * per_gap
        if small or number in (2, certified + CERTIFY_EVERY, max_epochs):
            found = certificate(problem, examples["a"], v, number)
            if best is None or found.gap < best.gap:
                best = found
            if best.near(tol):
                break
            certified, per_gap = number, estimate / found.gap
    assert best is not None
    return best


def certificate(problem: Problem, a: np.ndarray, v: np.ndarray, n_epochs: int) -> Fit:
    """Bound the minimum from above, by w = S(v) and the best b, and from below, by a.

    The dual is -sum of c * phi*(-a) - l2 / 2 * |S(v)|**2 with v = sum of c * a * x / l2, for a with
    sum of c * a = 0 if there is an intercept. The gap is the sum of terms, of an example or a
    weight each, that are not negative (Fenchel and Young), for a difference would be rounding.
    """
    X, y, c, phi, l1, l2, intercept = problem
    w = S(v, l1 / l2)
    wx, b = X @ w, 0.0
    if intercept:
        b = best_bias(problem, wx)
        a = balance(problem, a)
    v = X.T @ (c * a) / l2
    losses, gaps = [], []
    for a_i, y_i, c_i, z in zip(a.tolist(), y.tolist(), c.tolist(), (wx + b).tolist(), strict=True):
        if c_i > 0:
            losses.append(c_i * phi.value(z, y_i))
            gaps.append(c_i * max(phi.value(z, y_i) + phi.conjugate(a_i, y_i) + a_i * z, 0.0))
    norms = l1 * np.abs(w) + l2 / 2 * w * w
    apart = l2 / 2 * (w - S(v, l1 / l2)) ** 2 + l1 * np.abs(w) - l2 * (v - S(v, l1 / l2)) * w
    return Fit(w, b, a.copy(), total(losses, norms), total(gaps, apart), n_epochs)


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
    # y * a is of [0, 1]: the class whose sum is the larger has to give way
    sums = {label: math.fsum((c * np.abs(a))[y == label]) for label in (-1, 1)}
    heavy = max(sums, key=lambda label: sums[label])
    balanced[y == heavy] *= min(sums.values()) / (sums[heavy] or 1.0)
    return balanced
