"""What fitted weights say of samples, however they were found."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import gen_batches
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from tfopt.linear_model.checks import check_csr_arrays

__all__ = ["LinearClassifier", "LinearModel", "LinearRegressor", "probabilities"]

#: Numbers of X that are converted at a time: the cache keeps them.
PIECE = 2**18


def probabilities(scores: np.ndarray) -> np.ndarray:
    """Return the classes' probabilities: of more than two, each's own scaled to a sum of 1.

    Parameters
    ----------
    scores : ndarray, shape (n_samples, 1) or (n_samples, n_classes)

    Returns
    -------
    ndarray of float64, shape (n_samples, n_classes)
    """
    if scores.shape[1] == 1:
        return np.column_stack([expit(-scores[:, 0]), expit(scores[:, 0])])
    p = expit(scores)
    total = p.sum(axis=1, keepdims=True)
    even = np.full_like(p, 1 / p.shape[1])  # none is likely, not even a little
    shares: np.ndarray = np.divide(p, total, out=even, where=total > 0)
    return shares


def _pieces(X: Any) -> Iterator[slice]:
    """Yield slices of rows whose conversion takes little memory: X may be larger than that is."""
    n_rows = X.shape[0]
    in_a_row = (X.nnz if sparse.issparse(X) else X.size) // n_rows + 1
    yield from gen_batches(n_rows, max(1, PIECE // in_a_row))


class LinearModel(BaseEstimator):  # type: ignore[misc]
    """Scores x . w + b, of samples in rows of an array or of a CSR matrix."""

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Put all attributes back if something raises, were it an interrupt."""
        before = self.__dict__.copy()
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _features(self, X: Any, reset: bool, **options: Any) -> Any:
        """Return X as an array or a CSR matrix, and with it what `validate_data` makes of y."""
        check_csr_arrays(X)
        return validate_data(
            self, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32], **options
        )

    def _scores(self, X: Any) -> np.ndarray:
        """Return x . w + b, a column for each row of weights."""
        check_is_fitted(self)
        X = self._features(X, reset=False)
        coef = np.atleast_2d(self.coef_).T
        if X.dtype == coef.dtype:
            scores: np.ndarray = X @ coef
        else:
            scores = np.concatenate([X[rows] @ coef for rows in _pieces(X)])
        scores += self.intercept_
        return scores

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _is_logistic(model: Any) -> bool:
    loss = getattr(model, "loss", "logistic")
    if loss != "logistic":
        raise AttributeError(f"probabilities need loss='logistic', not {loss!r}")
    return True


class LinearClassifier(ClassifierMixin, LinearModel):  # type: ignore[misc]
    """Of two classes one score, of more a score for each."""

    def decision_function(self, X: Any) -> np.ndarray:
        """Return x . w + b.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features), or as `fit` takes them

        Returns
        -------
        ndarray of float64, shape (n_samples,) or (n_samples, n_classes)
        """
        scores = self._scores(X)
        return scores.ravel() if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> np.ndarray:
        """Return the likeliest class of each sample.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features), or as `fit` takes them

        Returns
        -------
        ndarray, shape (n_samples,)
        """
        scores = self._scores(X)
        best = scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(int)
        predicted: np.ndarray = self.classes_[best]
        return predicted

    @available_if(_is_logistic)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the classes' probabilities: of more than two, each's own scaled to a sum of 1.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features), or as `fit` takes them

        Returns
        -------
        ndarray of float64, shape (n_samples, n_classes)
        """
        return probabilities(self._scores(X))

    @available_if(_is_logistic)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithms of `predict_proba`."""
        with np.errstate(divide="ignore"):
            logarithms: np.ndarray = np.log(self.predict_proba(X))
        return logarithms


class LinearRegressor(RegressorMixin, LinearModel):  # type: ignore[misc]
    """The score itself or, of counts, its exponential."""

    def predict(self, X: Any) -> np.ndarray:
        """Return x . w + b, or its exponential for ``loss="poisson"``.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features), or as `fit` takes them

        Returns
        -------
        ndarray of float64, shape (n_samples,)
        """
        scores = self._scores(X)[:, 0]
        return np.exp(scores) if self.loss == "poisson" else scores

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.loss == "poisson"
        return tags
