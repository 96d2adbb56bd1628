"""Stochastic dual coordinate ascent: the order of visits, a visit, and the changes of partitions.

A visit of example i maximizes the dual over a_i and updates v = sum of c_i * a_i * x_i / l2
(Shalev-Shwartz and Zhang, 2014). Several partitions visit their examples at once, each with its own
copy of v, and then their changes are added (CoCoA+: Ma et al., "Adding vs. averaging in distributed
primal-dual optimization", 2015). The problem is defined in `tfopt_ref.linear`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from tfopt_ref.linear import Numbers, Problem, Row, add, dot, shrunk

__all__ = [
    "excess", "fit_in_blocks", "importance", "kept", "merge", "sampled", "shuffled", "tree_sum",
    "visit",
]  # fmt: skip

# ---- the order of visits


def shuffled(n: int, bucket: int, seed: int, epoch: int) -> list[int]:
    """Return the numbers of n examples in random order: buckets of neighbours are shuffled."""
    random = generator(seed, epoch)
    shift = next(random) % bucket
    plan: list[int] = []
    for k in shuffle(range(-(-(n + shift) // bucket)), random):
        plan += shuffle(range(max(0, k * bucket - shift), min(n, (k + 1) * bucket - shift)), random)
    return plan


def shuffle(items: Iterable[int], random: Iterator[int]) -> list[int]:
    """Return the items shuffled by the method of Fisher and Yates."""
    items = list(items)
    for k in range(len(items) - 1, 0, -1):
        j = next(random) % (k + 1)
        items[k], items[j] = items[j], items[k]
    return items


def generator(seed: int, epoch: int) -> Iterator[int]:
    """Yield random numbers of 64 bits by splitmix64 (Steele, Lea and Flood, 2014)."""
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
    """Return a random number in [0, 1)."""
    return (next(random) >> 11) * 2.0**-53


def importance(problem: Problem, a: Numbers, wx: Numbers) -> list[float]:
    """Return ``c * sqrt(|x|**2 + l2 * gamma) * |a + phi'(wx)|`` for each example.

    It is the distance of an example from its optimum (Csiba, Qu and Richtarik, 2015).
    """
    phi, l2 = problem.phi, problem.l2
    return [
        float(c) * math.sqrt(square(x) + l2 * phi.gamma) * abs(float(a_i) + phi.slope(z, float(y)))
        if c > 0
        else 0.0
        for x, y, c, a_i, z in zip(*problem[:3], a, wx, strict=True)
    ]


def sampled(p: Numbers, seed: int, epoch: int) -> list[int]:
    """Return a plan of len(p) visits, drawn with probabilities in proportion to p.

    An example that was drawn k times already is accepted with probability 0.1**k. After len(p)
    rejections, the plan is filled up with examples that were not drawn, in the order of falling p.
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
    return plan + sorted(left, key=lambda i: -p[i])[: n - len(plan)]


# ---- visits


def square(x: Row) -> float:
    """Return |x|**2."""
    total = 0.0
    for value, _ in [*x[0], *x[1]]:
        total += value * value
    return total


def visit(
    problem: Problem, order: Iterable[int], a: np.ndarray, v: np.ndarray,
    b: float = 0.0, *, tau: float = 0.0, sigma: float = 1.0,
) -> float:  # fmt: skip
    """Maximize the dual over the a of one example after another, and return b; a and v change.

    b is the weight of a feature 1 with the penalty (b - its first value)**2 / (2 * tau). Changes
    are multiplied by sigma in v and in the curvature, so that the changes of partitions can be
    added.
    """
    l1, l2 = problem.l1, problem.l2
    for i in order:
        x, y, c = problem.x[i], float(problem.y[i]), float(problem.c[i])
        K = sigma * c * (square(x) / l2 + tau)
        new = problem.phi.step(float(a[i]), y, b + dot(x, v, l1 / l2), K)
        change = sigma * c * (new - float(a[i]))
        add(x, v, change / l2)
        b += change * tau
        a[i] = new
    return b


# ---- partitions


def merge(
    problem: Problem, shares: Sequence[Iterable[int]], a: np.ndarray, v: np.ndarray,
    b: float, *, tau: float, sigma: float,
) -> tuple[float, float]:  # fmt: skip
    """Visit a share of each partition with its own copy of v; keep a safe share of all changes.

    Return b, and the sigma of the next merge; a and v change.
    """
    before, shrink, changes = a.copy(), problem.l1 / problem.l2, []
    for share in shares:
        u = v.copy()
        d_b = (visit(problem, share, a, u, b, tau=tau, sigma=sigma) - b) / sigma
        own = excess(v, u - v, shrink) / (sigma * sigma) + of_bias(d_b, tau, problem.l2)
        changes.append(((u - v) / sigma, d_b, own))
    d, d_b, own = map(tree_sum, zip(*changes, strict=True))
    more = of_bias(d_b, tau, problem.l2)
    joint, bound = (excess(v, d, s) + more for s in (shrink, 0.0))
    theta, sigma = kept(joint, own, bound, len(shares), sigma)
    v += theta * d
    if theta < 1:
        a[:] = before + theta * (a - before)
    return b + theta * d_b, sigma


def excess(v: np.ndarray, d: np.ndarray, shrink: float) -> float:
    """Return the change of ``|S(v)|**2 / 2`` by a change d of v, without its first-order part."""
    total = 0.0
    for t, s in zip(v.tolist(), d.tolist(), strict=True):
        moved = shrunk(t + s, shrink) - shrunk(t, shrink) if shrink else s
        total += moved * moved / 2 + shrunk(t, shrink) * (moved - s)
    return total


def of_bias(d: float, tau: float, l2: float) -> float:
    """Return the `excess` of a change d of b."""
    return d * d / (2 * tau * l2) if tau > 0 else 0.0


def kept(joint: float, own: float, bound: float, n: int, sigma: float) -> tuple[float, float]:
    """Return the share theta of n partitions' changes that is kept, and the next sigma.

    Each partition assumed sigma times its own excess. If the joint excess is at most the sum of
    these, the dual rises by at least what the partitions found. `bound` is an upper bound of the
    excess of theta times the changes, divided by theta**2.
    """
    if own <= 0:
        return 1.0, sigma
    theta = 1.0
    if joint > sigma * own:
        theta = max(1 / n, min(1.0, sigma * own / bound))
    wanted = max(1.0, min(n, 1.1 * joint / own))
    return theta, wanted if wanted > sigma else (sigma + wanted) / 2


def tree_sum(terms: Sequence[Any]) -> Any:
    """Add neighbours, then neighbours among the sums, and so on, wherever the terms are."""
    while len(terms) > 1:
        pairs = [terms[k : k + 2] for k in range(0, len(terms), 2)]
        terms = [pair[0] + pair[1] if len(pair) == 2 else pair[0] for pair in pairs]
    return terms[0]


#: The number of parts in which an epoch visits a block, and the most blocks visited at once.
PARTS, SIDE_BY_SIDE = 4, 8
#: The curvature tau of b, as a share of the mean |x|**2 / l2 of the examples.
INTERCEPT_SHARE = 0.1


def fit_in_blocks(
    problem: Problem, blocks: Sequence[int], n_weights: int, b: float, n_epochs: int, seed: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """Visit blocks of these sizes in epochs, and return a, v and b; w is S(v)."""
    a, v = np.zeros(len(problem.x)), np.zeros(n_weights)
    ends = list(accumulate(blocks, initial=0))
    curvature = math.fsum(map(square, problem.x)) / problem.l2 / len(problem.x)
    tau = (INTERCEPT_SHARE * curvature or 1.0) if problem.intercept else 0.0
    n_waves = -(-len(blocks) // SIDE_BY_SIDE)
    sigma = 1 + (min(len(blocks), SIDE_BY_SIDE) - 1) / 2
    for epoch in range(1, n_epochs + 1):
        plans = [
            [ends[k] + i for i in shuffled(n, 1, seed + (k << 32), epoch)]
            for k, n in enumerate(blocks)
        ]
        for part in range(PARTS):
            for wave in range(n_waves):
                shares = [
                    plan[len(plan) * part // PARTS : len(plan) * (part + 1) // PARTS]
                    for plan in plans[wave::n_waves]
                ]
                b, sigma = merge(problem, shares, a, v, b, tau=tau, sigma=sigma)
        b += tau * math.fsum(np.asarray(problem.c) * a)  # the new centre of b's penalty
    return a, v, b
