"""Scores of several linear models on the same samples, from one product."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import gen_batches
from sklearn.utils.extmath import safe_sparse_dot

from tfopt.linear_model.losses import PointwiseLoss

__all__ = ["accuracies", "mean_losses"]

#: How many scores are computed at a time, to stay in the cache.
PIECE = 2**18


def _scores(
    X: Any, coefs: np.ndarray, intercepts: np.ndarray
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield slices of the samples with x . w + b, of shape (n_models, n_problems, n_rows)."""
    weights = coefs.reshape(-1, coefs.shape[-1])
    size = max(1, PIECE // len(weights))
    for rows in gen_batches(X.shape[0], size):
        taken = X[rows].T if sparse.issparse(X) else X[rows].T.astype(np.float64, copy=False)
        scores = safe_sparse_dot(weights, taken, dense_output=True)
        yield rows, scores.reshape(*intercepts.shape, -1) + intercepts[..., None]


def accuracies(
    X: Any,
    y: np.ndarray,
    weights: np.ndarray,
    coefs: np.ndarray,
    intercepts: np.ndarray,
    classes: np.ndarray,
) -> np.ndarray:
    """Return the accuracies of classifiers.

    Parameters
    ----------
    X : array or CSR matrix, shape (n_samples, n_features)
    y, weights : ndarray, shape (n_samples,)
    coefs : ndarray, shape (n_models, n_problems, n_features)
        One problem separates two classes; otherwise there is one for each class.
    intercepts : ndarray, shape (n_models, n_problems)
    classes : ndarray, shape (n_classes,)

    Returns
    -------
    ndarray, shape (n_models,)
    """
    right = np.zeros(len(coefs))
    for rows, scores in _scores(X, coefs, intercepts):
        best = scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(int)
        right += (classes[best] == y[rows]) @ weights[rows]
    accuracies: np.ndarray = right / weights.sum()
    return accuracies


def mean_losses(
    X: Any,
    y: np.ndarray,
    weights: np.ndarray,
    coefs: np.ndarray,
    intercepts: np.ndarray,
    phi: PointwiseLoss,
) -> np.ndarray:
    """Return the mean losses of regressors.

    The parameters are those of `accuracies`, with one problem.
    """
    sums = np.zeros(len(coefs))
    with np.errstate(over="ignore"):  # a loss that overflows is not the best
        for rows, scores in _scores(X, coefs, intercepts):
            sums += phi.value(scores[:, 0], y[rows]) @ weights[rows]
    means: np.ndarray = sums / weights.sum()
    return means
