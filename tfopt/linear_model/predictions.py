"""Mixins of the estimators: scores and predictions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_array
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from tfopt.core.links import probabilities
from tfopt.io.hashed_model import products
from tfopt.kernels.arrays import csr
from tfopt.linear_model.coefficients import CoefficientsMixin
from tfopt.linear_model.evaluation import Deviance, explained
from tfopt.linear_model.loss_record import PointwiseLoss
from tfopt.linear_model.losses import LOSSES, loss_of
from tfopt.linear_model.validation import (
    CheckedData,
    check_offset,
    check_weights,
    checked_sparse,
)

__all__ = [
    "LinearClassifierMixin",
    "LinearModel",
    "LinearRegressorMixin",
    "has_probabilities",
]

#: The number of values of X that are converted at a time, to stay in the cache.
PIECE = 2**18


def _pieces(X: Any) -> Iterator[slice]:
    """Yield slices of rows, so that a conversion takes little memory: X may be memory-mapped."""
    n_rows = X.shape[0]
    in_a_row = (X.nnz if sparse.issparse(X) else X.size) // n_rows + 1
    size = max(1, PIECE // in_a_row)
    for start in range(0, n_rows, size):  # gen_batches checks its arguments for longer than a row
        yield slice(start, min(start + size, n_rows))


def _sparse_products(X: Any, coef: np.ndarray) -> np.ndarray:
    """Return the products of a CSR matrix, even if another thread writes to it meanwhile."""
    ends = X.indptr.astype(np.int64)
    # arrays from a message may be misaligned
    data, indices = (
        np.require(a[: ends[-1]], requirements=("C", "A")) for a in (X.data, X.indices)
    )
    if not coef.flags.c_contiguous and data.size < len(coef):  # all of them need not be copied
        indices = indices.copy()
        csr.check_indices(indices, len(coef), "X.indices")
        coef, indices = coef[indices], np.arange(indices.size)
    coef = np.require(coef, requirements=("C", "A"))
    products = []
    for rows in _pieces(X):
        of_rows = ends[rows.start : rows.stop + 1]
        entries = slice(of_rows[0], of_rows[-1])
        values = data[entries].astype(coef.dtype, copy=False)
        products.append(csr.dot(values, indices[entries], of_rows - of_rows[0], coef))
    return np.concatenate(products)


class LinearModel(CheckedData, CoefficientsMixin, BaseEstimator):  # type: ignore[misc]
    """A linear model with the scores x . w + b."""

    def _scores(self, X: Any, offset: Any = None) -> np.ndarray:
        """Return x . w + b + offset, a column for each row of `coef_`."""
        check_is_fitted(self)
        X = self._validate_features(X, reset=False)
        coef: Any = (self.coef_ if sparse.issparse(self.coef_) else np.atleast_2d(self.coef_)).T
        if X.shape[1] != coef.shape[0]:
            raise ValueError(f"X has {X.shape[1]} features, but coef_ has {coef.shape[0]}")
        if sparse.issparse(coef) and sparse.issparse(X):
            entries = coef.tocoo()
            columns, places = np.unique(entries.row, return_inverse=True)
            weights = np.zeros((columns.size, coef.shape[1]))
            np.add.at(weights, (places, entries.col), entries.data)
            scores: np.ndarray = products(checked_sparse(X, own=True), columns, weights)
        elif sparse.issparse(coef):
            scores = X @ coef
        elif sparse.issparse(X):
            scores = _sparse_products(X, coef)
        elif X.dtype == coef.dtype:
            scores = X @ coef
        else:
            scores = np.concatenate([X[rows] @ coef for rows in _pieces(X)])
        scores += self.intercept_
        if (offset := check_offset(offset, X)) is not None:
            scores += offset[:, None]
        return scores

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def has_probabilities(model: Any) -> bool:
    """Return True, or raise AttributeError for a loss without probabilities."""
    name = model.loss
    names = [each for each, loss in LOSSES.items() if loss.is_classification and loss.link]
    if name not in names:
        needed = " or ".join(map(repr, names))
        raise AttributeError(f"probabilities need loss={needed}, not {name!r}")
    return True


class LinearClassifierMixin(ClassifierMixin, LinearModel):  # type: ignore[misc]
    """A linear classifier: one score for two classes, else one for each class."""

    def decision_function(self, X: Any, offset: Any = None) -> np.ndarray:
        """Return x . w + b + offset.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features), or as `fit` takes them
        offset : array, shape (n_samples,) or (n_samples, n_classes), or float, optional
            A known part of each sample's score, of more than two classes of each; 0 by default.

        Returns
        -------
        ndarray of float64, shape (n_samples,) or (n_samples, n_classes)
        """
        scores = self._class_scores(X, offset)
        return scores.ravel() if scores.shape[1] == 1 else scores

    def predict(self, X: Any, offset: Any = None) -> np.ndarray:
        """Return the most likely class of each sample.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features), or as `fit` takes them
        offset : array, shape (n_samples,) or (n_samples, n_classes), or float, optional
            A known part of each sample's score, of more than two classes of each; 0 by default.

        Returns
        -------
        ndarray, shape (n_samples,)
        """
        scores = self._class_scores(X, offset)
        best = scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(int)
        predicted: np.ndarray = self.classes_[best]
        return predicted

    @available_if(has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any, offset: Any = None) -> np.ndarray:
        """Return class probabilities; those of more than two classes are scaled to a sum of 1.

        For ``loss="multinomial"`` it is the softmax of the scores.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features), or as `fit` takes them
        offset : array, shape (n_samples,) or (n_samples, n_classes), or float, optional
            A known part of each sample's score, of more than two classes of each; 0 by default.

        Returns
        -------
        ndarray of float64, shape (n_samples, n_classes)
        """
        scores = self._class_scores(X, offset)
        if LOSSES[self.loss].is_joint and scores.shape[1] > 1:
            p: np.ndarray = softmax(scores, axis=1)
            return p
        return probabilities(scores)

    @available_if(has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any, offset: Any = None) -> np.ndarray:
        """Return the logarithms of `predict_proba`."""
        with np.errstate(divide="ignore"):
            logarithms: np.ndarray = np.log(self.predict_proba(X, offset))
        return logarithms

    def _class_scores(self, X: Any, offset: Any) -> np.ndarray:
        """Return the scores of the second class, or of each class if there are more than two."""
        scores = self._scores(X)
        if (known := check_offset(offset, scores, scores.shape[1])) is not None:
            scores += known.reshape(scores.shape)
        return scores

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, offset: Any = None) -> float:
        """Return the accuracy: the share of samples whose class is predicted.

        Parameters
        ----------
        X, offset
            As in `predict`.
        y, sample_weight
            As in `fit`.
        """
        predicted = self.predict(X, offset)
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))


class LinearRegressorMixin(RegressorMixin, LinearModel):  # type: ignore[misc]
    """A linear regressor, with an exponential link for the losses of means."""

    def predict(self, X: Any, offset: Any = None) -> np.ndarray:
        """Return x . w + b + offset, or its exponential for "poisson", "gamma" and "tweedie".

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features), or as `fit` takes them
        offset : array, shape (n_samples,), or float, optional
            A known part of each sample's score, as in `LinearRegressor.fit`; 0 by default.

        Returns
        -------
        ndarray of float64, shape (n_samples,) or, for several targets, (n_samples, n_targets)
        """
        scores = self._scores(X, offset)
        phi: PointwiseLoss = LOSSES[self.loss]
        return phi.inverse_link(scores[:, 0] if scores.shape[1] == 1 else scores)

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, offset: Any = None) -> float:
        """Return D squared: 1 - the loss divided by the loss of the best constant.

        For the squared loss it is R squared. With an offset, the constant has the same offset. For
        several targets it is the mean. If all targets are equal, it is 1 for exact predictions and
        0 otherwise.

        Parameters
        ----------
        X, offset
            As in `predict`.
        y, sample_weight
            As in `fit`.

        Returns
        -------
        float
            At most 1. It is NaN, with a warning, for a single sample.
        """
        weights = None if sample_weight is None else check_weights(sample_weight, X)
        return explained(self._deviances(X, y, weights, offset))

    def _deviances(
        self, X: Any, y: Any, weights: np.ndarray | None, offset: Any = None
    ) -> tuple[Deviance, ...]:
        """Return the deviance on rows, for each target."""
        z = np.atleast_2d(self._scores(X).T)
        y = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
        targets = np.atleast_2d(y.T)
        if targets.shape != z.shape:
            raise ValueError(f"y has the shape {y.shape}, and the predictions {z.T.shape}")
        phi = loss_of(self.loss, vars(self))
        if phi.is_outside(targets).any():
            raise ValueError(f"loss={self.loss!r} needs {phi.domain} targets")
        weights = np.ones(len(y)) if weights is None else weights
        if (offset := check_offset(offset, X)) is not None:
            targets, factor = phi.without_offset(targets, offset)
            weights = weights * factor
        return tuple(Deviance.of(phi, *pair, weights) for pair in zip(z, targets, strict=True))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        loss = LOSSES.get(self.loss)  # an unknown loss is refused when it is used
        tags.target_tags.positive_only = loss is not None and loss.domain is not None
        return tags
