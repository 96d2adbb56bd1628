"""Products of the rows and several vectors, computed for a cache line of vectors at a time."""

from __future__ import annotations

import numpy as np

from tfopt.kernels.linear import multiclass
from tfopt.linear_model._fit.problem import Rows

__all__ = ["lane_predictions", "lane_sums"]

LANES = multiclass.LANES


def lane_predictions(rows: Rows, weights: np.ndarray) -> np.ndarray:
    """Return x . w for each row of the weights, shape (n_vectors, n_samples)."""
    z = np.empty((len(weights), rows[2].size - 1))
    for first in range(0, len(weights), LANES):
        some = weights[first : first + LANES]
        lanes = np.zeros((some.shape[1], LANES))
        lanes[:, : len(some)] = some.T
        z[first : first + LANES] = multiclass.predictions(*rows, lanes).T[: len(some)]
    return z


def lane_sums(rows: Rows, factors: np.ndarray, n_weights: int) -> np.ndarray:
    """Return the sum of factor * x for each row of factors, shape (n_vectors, n_weights)."""
    sums = np.empty((len(factors), n_weights))
    for first in range(0, len(factors), LANES):
        some = factors[first : first + LANES]
        lanes = np.zeros((some.shape[1], LANES))
        lanes[:, : len(some)] = some.T
        sums[first : first + LANES] = multiclass.weights_of(*rows, lanes, n_weights).T[: len(some)]
    return sums
