"""Predictions and scores of data on a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import dask
import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from tfopt import linear_model
from tfopt.dask.linear.blocks import as_blocks, is_collection
from tfopt.imports import imported
from tfopt.linear_model._fit.reductions import tree_reduce
from tfopt.linear_model.evaluation import Deviance, explained
from tfopt.linear_model.predictions import has_probabilities

__all__ = ["ClusterClassifier", "ClusterRegressor"]


class _ClusterPredictor:
    """A model that predicts Dask collections lazily, and data in memory at once."""

    #: The class that predicts a block, and its fitted attributes.
    _LOCAL_CLASS: type
    _FITTED_ATTRIBUTES: tuple[str, ...] = ("coef_", "intercept_", "n_features_in_")

    def _local_model(self) -> Any:
        """Return a local model with the fitted attributes only, which is small to send."""
        check_is_fitted(self)
        model = self._unfitted_model()
        for name in (*self._FITTED_ATTRIBUTES, "feature_names_in_"):
            if hasattr(self, name):
                setattr(model, name, getattr(self, name))
        return model

    def _unfitted_model(self: Any) -> Any:
        """Return an unfitted local model, without a callback, which need not be pickled."""
        own, local = self.get_params(deep=False), self._LOCAL_CLASS()
        names = {*own} & {*local.get_params()} - {"verbose", "callback"}
        return local.set_params(**{name: own[name] for name in names})

    def _map_blocks(self, method: str, X: Any, offset: Any) -> Any:
        """Return a method's result for X, in blocks if X is."""
        predict = partial(_predict_block, self._local_model(), method)
        if not is_collection(X):
            return predict(X, offset)
        parts = [dask.delayed(predict)(*block) for block in as_blocks(X, offset=offset)]
        if not hasattr(X, "shape"):
            return parts
        model = self._local_model()
        sample: Any = np.zeros((1, X.shape[1]))
        model.intercept_ = np.zeros_like(model.intercept_)  # its quantiles do not cross
        if hasattr(X, "columns"):  # which are refused at once if they are others
            sample = imported("pandas").DataFrame(sample, columns=X.columns)
        else:
            vars(model).pop("feature_names_in_", None)  # it does not miss the sample's names
        none = _predict_block(model, method, sample, None)
        lengths = X.chunks[0] if hasattr(X, "chunks") else [np.nan] * len(parts)
        da = imported("dask.array")
        return da.concatenate(
            [
                da.from_delayed(part, (length, *none.shape[1:]), none.dtype)
                for part, length in zip(parts, lengths, strict=True)
            ],
            allow_unknown_chunksizes=True,
        )

    def _sums(self, of: Callable[..., Any], X: Any, **of_rows: Any) -> Any:
        blocks = as_blocks(X, **of_rows)
        parts = dask.compute(*(dask.delayed(of)(self._local_model(), *block) for block in blocks))
        return tree_reduce(parts)

    def predict(self, X: Any, offset: Any = None) -> Any:
        """Return the predictions, in blocks if X is.

        Parameters
        ----------
        X : dask array or DataFrame, list of blocks, array or sparse matrix
        offset : in blocks as X, or float, optional
            A known part of each sample's score, as of `fit`; 0 by default.

        Returns
        -------
        dask array, list of delayed arrays, or ndarray
        """
        return self._map_blocks("predict", X, offset)


def _predict_block(model: Any, method: str, X: Any, offset: Any) -> np.ndarray:
    """Predict a block."""
    predicted: np.ndarray = getattr(model, method)(X, offset)
    return predicted


def _weights(y: Any, weight: Any) -> np.ndarray:
    return np.ones(len(y)) if weight is None else np.asarray(weight, np.float64)


def _correct_and_total(model: Any, X: Any, y: Any, weight: Any, offset: Any) -> np.ndarray:
    weights = _weights(y, weight)
    right = _predict_block(model, "predict", X, offset) == np.asarray(y)
    return np.array([np.sum(weights * right), weights.sum()])


def _deviances(model: Any, X: Any, y: Any, weight: Any, offset: Any) -> tuple[Deviance, ...]:
    deviances: tuple[Deviance, ...] = model._deviances(X, y, _weights(y, weight), offset)
    return deviances


class ClusterClassifier(_ClusterPredictor):
    """A classifier of collections."""

    _LOCAL_CLASS: type = linear_model.LinearClassifier
    _FITTED_ATTRIBUTES = (*_ClusterPredictor._FITTED_ATTRIBUTES, "classes_")

    def decision_function(self, X: Any, offset: Any = None) -> Any:
        """Return x . w + b + offset, in blocks if X is."""
        return self._map_blocks("decision_function", X, offset)

    @available_if(has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any, offset: Any = None) -> Any:
        """Return the classes' probabilities, in blocks if X is."""
        return self._map_blocks("predict_proba", X, offset)

    @available_if(has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any, offset: Any = None) -> Any:
        """Return the logarithms of `predict_proba`."""
        return self._map_blocks("predict_log_proba", X, offset)

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, offset: Any = None) -> float:
        """Return the accuracy: the share of samples whose class is predicted.

        Parameters
        ----------
        X, y, sample_weight, offset
            As `fit` takes them, or in memory.
        """
        if not is_collection(X):
            return float(self._local_model().score(X, y, sample_weight, offset=offset))
        right, all_of = self._sums(
            _correct_and_total, X, y=y, sample_weight=sample_weight, offset=offset
        )
        return float(right / all_of)


class ClusterRegressor(_ClusterPredictor):
    """A regressor of collections."""

    _LOCAL_CLASS: type = linear_model.LinearRegressor

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, offset: Any = None) -> float:
        """Return D squared, as `LinearRegressor.score` does; of the squared loss it is R squared.

        Parameters
        ----------
        X, y, sample_weight, offset
            As `fit` takes them, or in memory.
        """
        if not is_collection(X):
            return float(self._local_model().score(X, y, sample_weight, offset=offset))
        rows = {"y": y, "sample_weight": sample_weight, "offset": offset}
        return explained(self._sums(_deviances, X, **rows))
