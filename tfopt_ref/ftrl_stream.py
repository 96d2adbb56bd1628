"""Linear models that learn from a stream: FTRL-Proximal over batches of sparse rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfopt_ref.sdca_losses import loss_named
from tfopt_ref.training_ops import apply_ftrl
from tfopt_ref.update import Rows, updated

__all__ = ["Learned", "balanced", "fit", "has_ended", "learn"]

#: A row of data: the features that it has, and their values.
Row = tuple[Sequence[int], Sequence[float]]


class Learned(NamedTuple):
    """What rows have taught.

    Attributes
    ----------
    table : ndarray, shape (n_features + 1, n_scores, 3)
    losses : list of two floats
        The weighted sum of the losses of the rows' scores, each before its batch is learned, and
        the sum of the weights.
    sums : ndarray, shape (n_features + 1, n_scores)
        Of the weights after each step that is averaged.
    averaged : int
        The number of these steps.
    """

    table: np.ndarray
    losses: list[float]
    sums: np.ndarray
    averaged: int


def learn(
    rows: Sequence[Row],
    targets: np.ndarray,
    weights: np.ndarray,
    order: Iterable[int],
    table: np.ndarray,
    *,
    batch_size: int,
    loss: str,
    parameter: float = 1.0,
    intercept: bool,
    lr: float,
    beta: float,
    l1: float,
    l2: float,
    average: int = 0,
    seen: int = 0,
) -> Learned:
    """Return what is learned of the rows in an order.

    Parameters
    ----------
    rows : sequence of (features, values)
    targets : ndarray, shape (n_rows, n_scores)
        Labels, of a loss of classification -1 or 1.
    weights : ndarray, shape (n_rows,)
    order : iterable of int
    table : ndarray, shape (n_features + 1, n_scores, 3)
        Of each feature and, last, of the intercept: the weight w, the sum of squared gradients and
        the linear term.
    average : int
        A step is averaged if so many rows have been seen after it; 0: none is.
    seen : int
        The rows before these.
    """
    table, order, losses = table.copy(), list(order), [0.0, 0.0]
    sums, averaged = np.zeros(table.shape[:2]), 0
    f, ridge = loss_named(loss, parameter), l2 + beta / (2 * lr)
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        n_scores = table.shape[1]
        scores = {i: [_dot(rows[i], table[:, c, 0]) for c in range(n_scores)] for i in batch}
        for i in batch:
            for score, target in zip(scores[i], targets[i], strict=True):
                losses[0] += f.value(score, float(target)) * float(weights[i])
            losses[1] += float(weights[i])
        for c in range(n_scores):
            slopes = [f.slope(scores[i][c], float(targets[i, c])) * weights[i] for i in batch]
            gradients: dict[int, float] = {}
            for i, by_score in zip(batch, slopes, strict=True):
                for feature, x in zip(*rows[i], strict=True):
                    gradients[feature] = gradients.get(feature, 0.0) + x * by_score
            for feature, gradient in gradients.items():
                table[feature, c] = _stepped(table[feature, c], gradient, lr, l1, ridge)
            if intercept:
                table[-1, c] = _stepped(table[-1, c], sum(slopes, 0.0), lr, 0.0, beta / (2 * lr))
        seen += len(batch)
        if 0 < average <= seen:
            sums, averaged = sums + table[:, :, 0], averaged + 1
    return Learned(table, losses, sums, averaged)


def fit(
    rows: Sequence[Row],
    targets: np.ndarray,
    weights: np.ndarray,
    orders: Iterable[Sequence[int]],
    start: Learned,
    *,
    tol: float,
    n_iter_no_change: int,
    **options: Any,
) -> tuple[Learned, int]:
    """Return what is learned in epochs, and their number: until the mean loss no longer falls.

    Parameters
    ----------
    rows, targets, weights, options
        See `learn`.
    orders : iterable of sequence of int
        The rows of each epoch, as they are taken.
    start : Learned
        Where the first epoch begins.
    tol, n_iter_no_change
        See `has_ended`.
    """
    means: list[float] = []
    seen = options.pop("seen", 0)
    for order in orders:
        epoch = learn(rows, targets, weights, order, start.table, seen=seen, **options)
        start = Learned(
            epoch.table,
            [before + more for before, more in zip(start.losses, epoch.losses, strict=True)],
            start.sums + epoch.sums,
            start.averaged + epoch.averaged,
        )
        seen += len(order)
        means.append(epoch.losses[0] / epoch.losses[1])
        if has_ended(means, tol, n_iter_no_change):
            break
    return start, len(means)


def has_ended(values: Sequence[float], tol: float, n_iter_no_change: int) -> bool:
    """Tell whether each of the last values is not below all before it by tol.

    Of the first value none is before it. For the scores of held-out samples, which are to rise, the
    values are their negatives.
    """
    if len(values) <= n_iter_no_change:
        return False
    last = range(len(values) - n_iter_no_change, len(values))
    return all(values[k] > min(values[:k]) - tol for k in last)


def balanced(labels: Sequence[Any], weights: Sequence[float]) -> dict[Any, float]:
    """Return the factor of each class' weights that makes the classes' totals equal.

    The total of all is as before; a class without any has the factor 0.
    """
    totals = dict.fromkeys(labels, 0.0)
    for label, weight in zip(labels, weights, strict=True):
        totals[label] += weight
    share = sum(totals.values()) / sum(total > 0 for total in totals.values())
    return {label: share / total if total > 0 else 0.0 for label, total in totals.items()}


def _dot(row: Row, w: np.ndarray) -> float:
    total = 0.0
    for feature, x in zip(*row, strict=True):
        total += x * float(w[feature])
    return total + float(w[-1])


def _stepped(parts: np.ndarray, gradient: float, lr: float, l1: float, l2: float) -> list[float]:
    arrays = [np.array([part]) for part in parts]
    rows = Rows(np.array([gradient]), np.array([0]))
    options = {"lr": lr, "l1": l1, "l2": l2, "lr_power": -0.5}
    return [float(array[0]) for array in updated(apply_ftrl, arrays, rows, options)]
