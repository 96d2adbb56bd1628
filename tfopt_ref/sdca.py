"""Stochastic dual coordinate ascent over examples in memory.

Each function is that of `tfopt.kernels.linear.visits` by the same name. Examples are the rows of a
CSR matrix (`data`, `indices`, `indptr`) and of a dense block, whose weights are the last ones;
with them, in a structured array, a dual variable a, a label y, a weight and ``|x|**2 / l2`` each.

The problem is to minimize, over w, ::

    sum of weight * phi(x . w; y) + l1 * |w|_1 + l2 / 2 * |w|**2

and its dual to maximize, over the a, ::

    -sum of weight * phi*(-a; y) - l2 / 2 * |S(v)|**2,  v = sum of weight * a * x / l2

where ``S(v) = sign(v) * max(|v| - l1 / l2, 0)``. At the optimum w = S(v).

References
----------
Shalev-Shwartz, Zhang: Accelerated proximal stochastic dual coordinate ascent for regularized loss
minimization, 2014. Ma et al.: Adding vs. averaging in distributed primal-dual optimization, 2015.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

import numpy as np

from tfopt_ref.sdca_losses import LOSSES

__all__ = [
    "EXAMPLE",
    "LONGEST",
    "awake",
    "epoch",
    "importance",
    "predictions",
    "sampled",
    "shuffled",
    "squared_norms",
    "terms",
    "weights_of",
]

Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]

EXAMPLE = np.dtype([("a", "f8"), ("y", "f8"), ("weight", "f8"), ("curvature", "f8")])

#: An example rests for less than 2**LONGEST sweeps.
LONGEST = 6


# ---- an example's features


def features(rows: Rows, i: int, n_weights: int) -> tuple[list[tuple[float, int]], ...]:
    """Return an example's features with the places of their weights: the sparse, the dense ones."""
    data, indices, indptr, dense = rows
    entries = range(indptr[i], indptr[i + 1])
    first = n_weights - dense.shape[1]
    return (
        [(float(data[k]), int(indices[k])) for k in entries],
        [(float(x), first + k) for k, x in enumerate(dense[i])],
    )


def shrunk(v: float, shrink: float) -> float:
    """Return ``sign(v) * max(|v| - shrink, 0)``."""
    return v - min(max(v, -shrink), shrink)


def predict(rows: Rows, i: int, v: np.ndarray, shrink: float) -> float:
    """Return x . S(v)."""
    sparse, dense = features(rows, i, len(v))
    wx = dot(sparse, v, shrink)
    return wx + dot(dense, v, shrink) if dense else wx


def dot(x: list[tuple[float, int]], v: np.ndarray, shrink: float) -> float:
    """Add up in four sums, as the kernel does: the last features go to the first."""
    s = [0.0, 0.0, 0.0, 0.0]
    fours = len(x) - len(x) % 4
    for k, (value, j) in enumerate(x):
        s[k % 4 if k < fours else 0] += value * shrunk(float(v[j]), shrink)
    return (s[0] + s[1]) + (s[2] + s[3])


def add_features(rows: Rows, i: int, v: np.ndarray, factor: float) -> None:
    """Add factor * x to v."""
    for part in features(rows, i, len(v)):
        for value, j in part:
            v[j] += factor * value


# ---- epochs


def epoch(
    data: np.ndarray,
    indices: np.ndarray,
    indptr: np.ndarray,
    dense: np.ndarray,
    plan: np.ndarray,
    examples: np.ndarray,
    before: np.ndarray,
    u: np.ndarray,
    loss: str,
    l2: float,
    shrink: float,
    sigma: float,
) -> None:
    """Visit the examples of a plan, and maximize the dual over the variable of each.

    u starts as v; changes are added to it sigma times, and sigma counts the curvature: safe adding.
    """
    rows = data, indices, indptr, dense
    phi = LOSSES[loss]
    for i in plan:
        example = examples[i]
        wx = predict(rows, i, u, shrink)
        K = sigma * float(example["weight"]) * float(example["curvature"])
        a = float(example["a"])
        new = phi.step(a, float(example["y"]), wx, K)
        add_features(rows, i, u, sigma * float(example["weight"]) * (new - a) / l2)
        before[i], example["a"] = a, new


def weights_of(
    data: np.ndarray,
    indices: np.ndarray,
    indptr: np.ndarray,
    dense: np.ndarray,
    examples: np.ndarray,
    v: np.ndarray,
    l2: float,
) -> None:
    """Write into v the unshrunk weights that belong to the dual variables."""
    v[:] = 0
    for i, example in enumerate(examples):
        factor = float(example["weight"]) * float(example["a"]) / l2
        add_features((data, indices, indptr, dense), i, v, factor)


# ---- passes that change nothing


def squared_norms(data: np.ndarray, indptr: np.ndarray, dense: np.ndarray) -> np.ndarray:
    """Return ``|x|**2`` of each example."""
    norms = np.zeros(len(indptr) - 1)
    for i in range(len(norms)):
        for x in (*data[indptr[i] : indptr[i + 1]], *dense[i]):
            norms[i] += float(x) * float(x)
    return norms


def predictions(
    data: np.ndarray,
    indices: np.ndarray,
    indptr: np.ndarray,
    dense: np.ndarray,
    v: np.ndarray,
    shrink: float,
    threads: int = 0,
) -> np.ndarray:
    """Return x . S(v) of each example."""
    rows = data, indices, indptr, dense
    return np.array([predict(rows, i, v, shrink) for i in range(len(indptr) - 1)])


def terms(
    examples: np.ndarray, before: np.ndarray, wx: np.ndarray, loss: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return each example's ``weight * phi(wx)`` and ``weight * phi*(-before)``."""
    phi = LOSSES[loss]
    primal, dual = np.zeros(len(examples)), np.zeros(len(examples))
    for i, (_, y, weight, _) in enumerate(examples.tolist()):
        if weight > 0:
            primal[i] = weight * phi.value(float(wx[i]), y)
            dual[i] = weight * phi.conjugate(float(before[i]), y)
    return primal, dual


# ---- plans


def shuffled(n: int, bucket: int, seed: int, epoch: int) -> np.ndarray:
    """Return all of n examples in random order, neighbours together in shuffled buckets."""
    random = generator(seed, epoch)
    shift = next(random) % bucket
    buckets = list(range(-(-(n + shift) // bucket)))
    shuffle(buckets, random)
    plan: list[int] = []
    for k in buckets:
        neighbours = list(range(max(0, k * bucket - shift), min(n, (k + 1) * bucket - shift)))
        shuffle(neighbours, random)
        plan += neighbours
    return np.array(plan, np.int64)


def awake(idle: np.ndarray, sweep: int) -> np.ndarray:
    """Return whom a sweep visits: those that k visits left at a corner, in 1 of 2**k sweeps."""
    return np.array([i for i, k in enumerate(idle.tolist()) if (sweep + i) % 2**k == 0], np.int64)


def shuffle(items: list[int], random: Iterator[int]) -> None:
    """Shuffle as Fisher and Yates do."""
    for k in range(len(items) - 1, 0, -1):
        j = next(random) % (k + 1)
        items[k], items[j] = items[j], items[k]


def generator(seed: int, epoch: int) -> Iterator[int]:
    """Yield numbers of 64 bits: splitmix64 (Steele, Lea and Flood, 2014)."""
    seeds = splitmix64(next(splitmix64(seed)) ^ epoch)
    return splitmix64(next(seeds))


def splitmix64(state: int) -> Iterator[int]:
    mask = 2**64 - 1
    while True:
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        yield z ^ (z >> 31)


def uniform(random: Iterator[int]) -> float:
    """Return a number of [0, 1)."""
    return (next(random) >> 11) * 2.0**-53


def importance(examples: np.ndarray, wx: np.ndarray, loss: str, l2: float) -> np.ndarray:
    """Return ``weight * sqrt(|x|**2 + l2 * gamma) * |a + phi'(wx)|``: how far each is off."""
    phi = LOSSES[loss]
    p = np.zeros(len(examples))
    for i, (a, y, weight, curvature) in enumerate(examples.tolist()):
        residue = abs(a + phi.slope(float(wx[i]), y))
        p[i] = weight * math.sqrt(l2 * (curvature + phi.gamma)) * residue
    return p


def sampled(p: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """Return a plan of len(p) visits drawn in proportion to p, seldom the same example again.

    One that has been drawn k times is accepted with probability 0.1**k. After len(p) rejections,
    the plan is filled up with examples not drawn yet, by falling p.
    """
    random = generator(seed, epoch)
    n = len(p)
    ends = list(accumulate(min(float(t), 1e290) for t in p))
    if not ends or ends[-1] == 0:
        ends = [i + 1.0 for i in range(n)]
    chance = [1.0] * n
    plan: list[int] = []
    rejected = 0
    while len(plan) < n and rejected < n:
        i = min(bisect_right(ends, uniform(random) * ends[-1]), n - 1)
        if chance[i] < 1 and uniform(random) >= chance[i]:
            rejected += 1
            continue
        chance[i] *= 0.1
        plan.append(i)
    left = [i for i in range(n) if chance[i] == 1]
    plan += sorted(left, key=lambda i: -p[i])[: n - len(plan)]
    return np.array(plan, np.int64)
