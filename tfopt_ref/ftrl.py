"""FTRL-Proximal: linear models that learn from a stream, in batches of sparse rows.

In the notation of McMahan et al. ("Ad click prediction: a view from the trenches", 2013), a weight
w has a sum n of squared gradients, and a sum z of gradients minus sigma * w; its learning rate is
alpha / (beta + sqrt(n)).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from tfopt_ref.losses import Loss

__all__ = ["Learned", "Rule", "fit", "has_ended", "learn"]

#: The features of an example, and their values.
Row = tuple[Sequence[int], Sequence[float]]


class Rule(NamedTuple):
    """The parameters of learning; w is averaged over the steps after `average` rows (0: never)."""

    phi: Loss
    alpha: float
    beta: float
    l1: float
    l2: float
    intercept: bool
    batch_size: int
    average: int = 0


class Learned(NamedTuple):
    """The state of a model after some rows.

    Attributes
    ----------
    table : ndarray, shape (n_features + 1, n_scores, 3)
        w, n and z of each feature and, last, of the intercept.
    losses : list of two floats
        The weighted sum of the losses, each before its batch was learned; the sum of the weights.
    sums : ndarray, shape (n_features + 1, n_scores)
        The sum of w over the averaged steps.
    averaged, seen : int
        The number of averaged steps, and the number of rows.
    """

    table: np.ndarray
    losses: list[float]
    sums: np.ndarray
    averaged: int = 0
    seen: int = 0


def learn(
    rule: Rule, x: Sequence[Row], y: np.ndarray, c: np.ndarray, order: Iterable[int],
    start: Learned, offset: np.ndarray | None = None,
) -> Learned:  # fmt: skip
    """Return the state after learning rows in an order; y has a label for each score.

    The intercept is the unpenalized weight of a feature 1; the offset is a known part of the
    scores.
    """
    o = np.zeros(len(x)) if offset is None else offset
    table, losses, sums, averaged, seen = start
    table, losses, order = table.copy(), list(losses), list(order)
    for first in range(0, len(order), rule.batch_size):
        batch = order[first : first + rule.batch_size]
        scores = np.array([[dot(x[i], w) + o[i] for w in table[:, :, 0].T] for i in batch])
        for i, z in zip(batch, scores, strict=True):
            for k in range(len(z)):
                losses[0] += rule.phi.value(float(z[k]), float(y[i, k])) * float(c[i])
            losses[1] += float(c[i])
        for k in range(table.shape[1]):
            slopes = [
                rule.phi.slope(float(z[k]), float(y[i, k])) * float(c[i])
                for i, z in zip(batch, scores, strict=True)
            ]
            gradient: dict[int, float] = {}
            for i, slope in zip(batch, slopes, strict=True):
                for j, value in zip(*x[i], strict=True):
                    gradient[j] = gradient.get(j, 0.0) + value * slope
            for j, g in gradient.items():
                table[j, k] = stepped(table[j, k], g, rule, rule.l1, rule.l2)
            if rule.intercept:
                table[-1, k] = stepped(table[-1, k], sum(slopes, 0.0), rule, 0.0, 0.0)
        seen += len(batch)
        if 0 < rule.average <= seen:
            sums, averaged = sums + table[:, :, 0], averaged + 1
    return Learned(table, losses, sums, averaged, seen)


def stepped(
    wnz: np.ndarray, g: float, rule: Rule, l1: float, l2: float
) -> tuple[float, float, float]:
    """Return the new w, n and z, given a gradient g; l2 is half the paper's, as in TensorFlow."""
    w, n, z = wnz.tolist()
    more = n + g * g
    z += g - (math.sqrt(more) - math.sqrt(n)) / rule.alpha * w
    curvature = math.sqrt(more) / rule.alpha + 2 * (l2 + rule.beta / (2 * rule.alpha))
    return (min(max(z, -l1), l1) - z) / curvature, more, z


def dot(row: Row, w: np.ndarray) -> float:
    total = 0.0
    for j, value in zip(*row, strict=True):
        total += value * float(w[j])
    return total + float(w[-1])


def fit(
    rule: Rule, x: Sequence[Row], y: np.ndarray, c: np.ndarray, orders: Iterable[Sequence[int]],
    start: Learned, *, tol: float, n_iter_no_change: int,
) -> tuple[Learned, int]:  # fmt: skip
    """Learn in epochs until the mean loss stops falling; return the state and number of epochs."""
    means: list[float] = []
    for order in orders:
        epoch = learn(rule, x, y, c, order, start._replace(losses=[0.0, 0.0]))
        losses = [sum(pair) for pair in zip(start.losses, epoch.losses, strict=True)]
        start = epoch._replace(losses=losses)
        means.append(epoch.losses[0] / epoch.losses[1])
        if has_ended(means, tol, n_iter_no_change):
            break
    return start, len(means)


def has_ended(values: Sequence[float], tol: float, n_iter_no_change: int) -> bool:
    """Return whether none of the last values is below all earlier values by tol.

    The first value always counts as an improvement. For the scores of held-out samples, which
    should rise, the values are their negatives.
    """
    if len(values) <= n_iter_no_change:
        return False
    last = range(len(values) - n_iter_no_change, len(values))
    return all(values[k] > min(values[:k]) - tol for k in last)
