"""The problem of a linear model, its dual, and the duality gap of a pair of points.

Minimize, over w and b, ::

    P(w, b) = sum of c_i * phi(x_i . w + b; y_i) + l1 * |w|_1 + l2 / 2 * |w|**2

where phi is shifted to a minimum of 0; or maximize, over the a_i, the dual of Shalev-Shwartz and
Zhang ("Accelerated proximal stochastic dual coordinate ascent", 2014) ::

    D(a) = -sum of c_i * phi*(-a_i; y_i) - l2 / 2 * |S(v)|**2,   v = sum of c_i * a_i * x_i / l2

with ``S(v) = sign(v) * max(|v| - l1 / l2, 0)``. If there is a b, the sum of c_i * a_i must be 0. If
l2 is 0, each element of ``|sum of c_i * a_i * x_i|`` must be at most l1. At the maximum of D, w is
S(v). If each weight has a factor, it multiplies l1 and l2; if weights must be nonnegative, l1 is
infinite below 0. For any w, b and a, the minimum is between P - gap and P.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tfopt_ref.losses import Loss, root

__all__ = ["Problem", "best_bias", "dot", "gap", "penalty_gap", "primal", "row", "rows_of"]

#: The sparse and the dense features of an example: their values, and the indices of the weights.
Row = tuple[list[tuple[float, int]], list[tuple[float, int]]]
Numbers = Sequence[float] | np.ndarray


class Problem(NamedTuple):
    """Examples with features x, labels y and weights c; a loss, and the penalties."""

    x: Sequence[Row]
    y: Numbers
    c: Numbers
    phi: Loss
    l1: float
    l2: float
    intercept: bool = False
    factor: Numbers | None = None
    positive: bool = False

    def penalties(self, n_weights: int) -> list[tuple[float, float, float]]:
        """Return for each weight l1 below 0, l1 above 0, and l2."""
        factor = np.ones(n_weights) if self.factor is None else np.asarray(self.factor, float)
        below = np.full(n_weights, math.inf) if self.positive else self.l1 * factor
        parts = below, self.l1 * factor, self.l2 * factor
        return list(zip(*(part.tolist() for part in parts), strict=True))


def row(indices: Any, values: Any, dense: Any = (), n_weights: int = 0) -> Row:
    """Return an example's features; the weights of the dense features come last."""
    first = n_weights - len(dense)
    return (
        [(float(x), int(j)) for x, j in zip(values, indices, strict=True)],
        [(float(x), first + k) for k, x in enumerate(dense)],
    )


def rows_of(X: Any) -> list[Row]:
    """Return the features of the examples in an array or a CSR matrix."""
    if isinstance(X, np.ndarray):
        return [row([], [], x, X.shape[1]) for x in X]
    ends = [slice(*pair) for pair in zip(X.indptr[:-1], X.indptr[1:], strict=True)]
    return [row(X.indices[part], X.data[part]) for part in ends]


def dot(x: Row, v: np.ndarray, shrink: float = 0.0) -> float:
    """Return x . S(v); its sparse part and its dense part are each added in four sums."""
    total = 0.0
    for part in x:
        s = [0.0, 0.0, 0.0, 0.0]
        fours = len(part) - len(part) % 4
        for k, (value, j) in enumerate(part):
            s[k % 4 if k < fours else 0] += value * shrunk(float(v[j]), shrink)
        total += (s[0] + s[1]) + (s[2] + s[3])
    return total


def shrunk(v: float, shrink: float) -> float:
    """Return S(v)."""
    return v - min(max(v, -shrink), shrink)


def add(x: Row, v: np.ndarray, factor: float) -> None:
    """Add factor * x to v."""
    for part in x:
        for value, j in part:
            v[j] += factor * value


def weighted_sum(problem: Problem, a: Numbers, n_weights: int) -> np.ndarray:
    """Return the sum of c * a * x, which is l2 * v."""
    total = np.zeros(n_weights)
    for x, c, a_i in zip(problem.x, problem.c, a, strict=True):
        add(x, total, float(c) * float(a_i))
    return total


def best_bias(problem: Problem, w: np.ndarray) -> float:
    """Return the best b for w: where the slope of the losses, which increases, is 0."""
    pairs = [(float(c), dot(x, w), float(y)) for x, y, c in zip(*problem[:3], strict=True)]
    return root(lambda b: math.fsum(c * problem.phi.slope(z + b, y) for c, z, y in pairs), 0.0)


def primal(problem: Problem, w: np.ndarray, b: float) -> float:
    """Return P(w, b)."""
    return math.fsum([
        *losses(problem, w, b, [0.0] * len(problem.x)),
        *(penalty(*pair) for pair in zip(w.tolist(), problem.penalties(len(w)), strict=True)),
    ])  # fmt: skip


def gap(problem: Problem, w: np.ndarray, b: float, a: Numbers) -> float:
    """Return P(w, b) - D(a) as a sum of nonnegative terms, the Fenchel-Young gaps.

    Each loss and the penalty of each weight has one. The difference of P and D itself would have a
    large rounding error.
    """
    u = weighted_sum(problem, a, len(w))
    terms = zip(w.tolist(), u.tolist(), problem.penalties(len(w)), strict=True)
    penalties = [penalty_gap(*each) for each in terms]
    return math.fsum([*losses(problem, w, b, a), *penalties])


def losses(problem: Problem, w: np.ndarray, b: float, a: Numbers) -> list[float]:
    """Return c * (phi(z) + phi*(-a) + a * z) for each prediction z; for a = 0, the losses."""
    return [
        float(c) * problem.phi.gap(float(a_i), float(y), dot(x, w) + b)
        for x, y, c, a_i in zip(*problem[:3], a, strict=True)
        if c > 0
    ]


def penalty(w: float, of: tuple[float, float, float]) -> float:
    """Return ``g(w) = l1 * |w| + l2 / 2 * w**2``, given l1 below 0, l1 above 0, and l2."""
    below, above, l2 = of
    return (above * w if w >= 0 else -below * w) + l2 / 2 * w * w


def penalty_gap(w: float, u: float, of: tuple[float, float, float]) -> float:
    """Return ``g(w) + g*(u) - u * w`` for the `penalty` g."""
    below, above, l2 = of
    inside = min(max(u, -below), above)
    if l2 == 0:
        return penalty(w, of) - u * w if u == inside else math.inf
    l1_w = penalty(w, (below, above, 0.0))
    return l1_w - inside * w + (l2 * w - (u - inside)) ** 2 / (2 * l2)
