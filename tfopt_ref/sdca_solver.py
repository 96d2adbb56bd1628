"""Epochs of stochastic dual coordinate ascent over partitions, one partition after another.

`epoch` is that of ``tfopt.kernels.linear.solver``, which says why a merge is kept as far as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tfopt_ref.sdca import LONGEST, Rows, add_features, predict, shrunk
from tfopt_ref.sdca_losses import Logistic, Loss, loss_named

__all__ = ["epoch"]

NOBODY = np.zeros(0, np.uint8)


class Excess(NamedTuple):
    """What changes add to the squared norm beyond their first order."""

    joint: float
    own: float
    bound: float


def epoch(
    data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, dense: np.ndarray,
    plan: Sequence[int], examples: np.ndarray, v: np.ndarray, replicas: np.ndarray,
    before: np.ndarray, idle: np.ndarray, loss: str, parameter: float, l2: float, shrink: float,
    bias: float, bias_curvature: float, sigma: float, merges: int, threads: int,
) -> tuple[float, float, float]:  # fmt: skip
    """Visit the examples of a plan, and return the bias, sigma and the estimate of the gap.

    Each partition visits its share on a replica of v, counting its own changes sigma times; then v
    takes over a share of what the replicas have changed.
    """
    rows = data, indices, indptr, dense
    phi = loss_named(loss, parameter)
    numbers = phi, l2, shrink, bias_curvature
    if not len(replicas):
        bias, estimate = visit(rows, plan, examples, v, bias, *numbers, 1.0, idle)
        return bias, sigma, estimate
    n_partitions, estimate = len(replicas), 0.0
    ends = [len(plan) * k // (merges * n_partitions) for k in range(merges * n_partitions + 1)]
    for merge in range(merges):
        first = merge * n_partitions
        dealt = plan[ends[first] : ends[first + n_partitions]]
        a = examples["a"].copy()
        replicas[:] = v
        biases = []
        for p, u in enumerate(replicas):
            part = plan[ends[first + p] : ends[first + p + 1]]
            own, gap = visit(rows, part, examples, u, bias, *numbers, sigma, idle)
            biases.append((own - bias) / sigma)
            estimate += gap
        dv = (replicas - v).sum(axis=0) / sigma
        theta, sigma = kept(
            excess(v, replicas, dv, biases, sigma, *numbers[1:]), len(replicas), sigma
        )
        v += theta * dv
        bias += theta * sum(biases)
        if theta < 1:
            examples["a"][dealt] = a[dealt] + theta * (examples["a"][dealt] - a[dealt])
    return bias, sigma, estimate


def visit(
    rows: Rows,
    plan: Sequence[int],
    examples: np.ndarray,
    u: np.ndarray,
    bias: float,
    phi: Loss,
    l2: float,
    shrink: float,
    bias_curvature: float,
    sigma: float,
    idle: np.ndarray = NOBODY,
) -> tuple[float, float]:
    """Visit examples one after another, and return the bias and the sum of the gaps met.

    `idle`, unless empty, counts the last visits of each that left it at a corner, where it was.
    """
    estimate = 0.0
    for i in plan:
        a, y, weight, curvature = examples[i].item()
        wx = bias + predict(rows, i, u, shrink)
        K = sigma * weight * (curvature + bias_curvature)
        new, gap = near(phi, a, y, wx, K) if isinstance(phi, Logistic) else (
            phi.step(a, y, wx, K),
            phi.value(wx, y) + phi.conjugate(a, y) + a * wx,
        )  # fmt: skip
        estimate += weight * gap
        examples[i]["a"] = new
        if len(idle):
            idle[i] = min(idle[i] + 1, LONGEST) if new == a and a in phi.corners else 0
        change = sigma * weight * (new - a)
        add_features(rows, i, u, change / l2)
        bias += change * bias_curvature
    return bias, estimate


def near(phi: Logistic, a: float, y: float, wx: float, K: float) -> tuple[float, float]:
    """Return the new a, by Halley's first step if it is near, and about the gap."""
    b, m = y * a, y * wx
    if not 0 < b < 1:
        return phi.step(a, y, wx, K), phi.value(wx, y) + b * m
    h = math.log(b / (1 - b)) + m
    gap = min(h * h * b * (1 - b) / 2, abs(h))
    if abs(h) > 0.7:
        return phi.step(a, y, wx, K), gap
    v = K * b * (1 - b)
    h1 = 1 + v
    d = -h * h1 / max(h1 * h1 - h * v * (1 - 2 * b) / 2, h1 * h1 / 2)
    return y * b / (b + (1 - b) * math.exp(-d)), gap


def excess(
    v: np.ndarray,
    replicas: np.ndarray,
    dv: np.ndarray,
    biases: list[float],
    sigma: float,
    l2: float,
    shrink: float,
    bias_curvature: float,
) -> Excess:
    """Return what the merged changes add, what the partitions' own do, and an upper bound."""
    joint, bound = bregman(v, dv, shrink), bregman(v, dv, 0.0)
    own = sum(bregman(v, u - v, shrink) for u in replicas) / sigma**2
    if bias_curvature > 0:
        scale = 2 * bias_curvature * l2
        own += sum(b * b for b in biases) / scale
        joint += sum(biases) ** 2 / scale
        bound += sum(biases) ** 2 / scale
    return Excess(joint, own, bound)


def bregman(v: np.ndarray, d: np.ndarray, shrink: float) -> float:
    """Return what a change d adds to ``|S(v)|**2 / 2`` beyond its first order."""
    total = 0.0
    for t, s in zip(v.tolist(), d.tolist(), strict=True):
        if shrink == 0:
            total += s * s / 2
        else:
            moved = shrunk(t + s, shrink) - shrunk(t, shrink)
            total += moved * moved / 2 + shrunk(t, shrink) * (moved - s)
    return total


def kept(changes: Excess, n_partitions: int, sigma: float) -> tuple[float, float]:
    """Return the share of a merged change that is kept, and sigma for the next merge."""
    if changes.own <= 0:
        return 1.0, sigma
    theta = 1.0
    if changes.joint > sigma * changes.own:
        theta = max(1 / n_partitions, min(1.0, sigma * changes.own / changes.bound))
    wanted = max(1.0, min(n_partitions, 1.1 * changes.joint / changes.own))
    return theta, wanted if wanted > sigma else (sigma + wanted) / 2
