"""Mean losses of several linear models on the same samples, from one product."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import logsumexp
from sklearn.utils import gen_batches
from sklearn.utils.extmath import safe_sparse_dot

from tfopt.linear_model.loss_record import PointwiseLoss

__all__ = ["mean_losses"]

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


def _targets(y: np.ndarray, classes: np.ndarray | None) -> np.ndarray:
    """Return the labels for each problem: 1 for its class and -1 for others, if there are any."""
    if classes is None:
        return y[None]
    positive = classes[1:] if len(classes) == 2 else classes
    return np.where(y == positive[:, None], 1.0, -1.0)


def mean_losses(
    X: Any,
    y: np.ndarray,
    weights: np.ndarray,
    coefs: np.ndarray,
    intercepts: np.ndarray,
    phi: PointwiseLoss,
    classes: np.ndarray | None = None,
    offset: np.ndarray | None = None,
) -> np.ndarray:
    """Return the mean losses of models, each summed over its problems.

    Samples of classes that the models do not know say nothing of them.

    Parameters
    ----------
    X : array or CSR matrix, shape (n_samples, n_features)
    y, weights : ndarray, shape (n_samples,)
    coefs : ndarray, shape (n_models, n_problems, n_features)
        One problem separates two classes; otherwise there is one for each class.
    intercepts : ndarray, shape (n_models, n_problems)
    phi : PointwiseLoss
    classes : ndarray, shape (n_classes,), or None
    offset : ndarray, shape (n_samples,), or None
        What is added to the scores.

    Returns
    -------
    ndarray, shape (n_models,)
        0 if no sample with weight says anything.
    """
    targets, sums = _targets(y, classes), np.zeros(len(coefs))
    if classes is not None:
        weights = weights * np.isin(y, classes)
    total = weights.sum()
    if not total:
        return sums
    with np.errstate(over="ignore"):  # a loss that overflows is not the best
        for rows, z in _scores(X, coefs, intercepts):
            z = z if offset is None else z + offset[rows]
            signs = targets[:, rows]
            if phi.is_joint and len(signs) > 1:
                losses = logsumexp(z, axis=1) - (z * (signs > 0)).sum(axis=1)
            else:
                losses = phi.value(z, signs).sum(axis=1)
            sums += losses @ weights[rows]
    means: np.ndarray = sums / total
    return means
