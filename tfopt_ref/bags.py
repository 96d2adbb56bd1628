"""Pooled rows of tables, bag by bag, and the gradient of a table.

Denormal numbers are kept here, independently of the setting for steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tfopt_ref.arithmetic import computed
from tfopt_ref.update import Rows

# The rows in a bag, and their weights; without weights, all are 1.
Bag = tuple[Sequence[int], Sequence[float]]


def lookup(table: np.ndarray, bags: Sequence[Bag], pooling: str) -> np.ndarray:
    """Return the sum or mean of the rows of each bag.

    Rows of 16 bits are added in float32, and the result is rounded once.

    Parameters
    ----------
    table : ndarray, shape (n_rows, ...)
    bags : sequence of (rows, weights)
    pooling : {"sum", "mean"}
    """
    pooled = np.zeros((len(bags), *table.shape[1:]), table.dtype)
    with np.errstate(all="ignore"):
        for b, (rows, weights) in enumerate(bags):
            total = np.zeros(table.shape[1:], computed(table.dtype))
            for row, weight in zip(rows, weights, strict=True):
                total = total + _times(table[row].astype(total.dtype), weight)
            pooled[b] = total if pooling == "sum" else _divided(total, weights)
    return pooled


def gradient(g: np.ndarray, bags: Sequence[Bag], pooling: str) -> Rows:
    """Return the gradient of the table, given the gradient of the pooled rows.

    It has one row for each distinct id, in the order of first occurrences. Sums of 16 bits are
    computed in float32 and rounded once.

    Parameters
    ----------
    g : ndarray, shape (n_bags, ...)
    bags : sequence of (rows, weights)
    pooling : {"sum", "mean"}
    """
    dtype = computed(g.dtype)
    totals: dict[int, np.ndarray] = {}
    with np.errstate(all="ignore"):
        for (rows, weights), of_bag in zip(bags, g, strict=True):
            of_each = np.asarray(of_bag, dtype)
            if pooling == "mean":
                of_each = _divided(of_each, weights)
            for row, weight in zip(rows, weights, strict=True):
                before = totals.get(row, np.zeros(g.shape[1:], dtype))
                totals[row] = before + _times(of_each, weight)
        values = np.array(list(totals.values()), dtype).reshape(len(totals), *g.shape[1:])
        return Rows(values.astype(g.dtype), np.array(list(totals), np.int64))


def _times(x: np.ndarray, weight: float) -> np.ndarray:
    return _of_parts(x, lambda part: part * part.dtype.type(weight))


def _divided(x: np.ndarray, weights: Sequence[float]) -> np.ndarray:
    """Divide by the sum of the weights, added in the real dtype; return zeros if the sum is 0."""
    real = x.real.dtype.type
    total = real(0)
    for weight in weights:
        total = total + real(weight)
    return np.zeros_like(x) if total == 0 else _of_parts(x, lambda part: part / total)


def _of_parts(x: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Apply a function to real numbers, or to the real and the imaginary parts of complex ones."""
    if x.dtype.kind != "c":
        return function(x)
    parts = np.empty_like(x)
    parts.real, parts.imag = function(x.real), function(x.imag)
    return parts
