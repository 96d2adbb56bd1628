"""Predictions and scores where the data lie."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import dask
import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from tfopt import linear_model
from tfopt.dask.collections import blocks_of, is_collection
from tfopt.linear_model.predictions import _is_logistic
from tfopt.linear_model.trees import tree_sum

__all__ = ["ClusterClassifier", "ClusterRegressor"]


class _Cluster:
    """A model that predicts collections as collections, and all else as it does without Dask."""

    #: The model that predicts a block, and the attributes that it needs.
    _LOCAL: type
    _FITTED: tuple[str, ...] = ("coef_", "intercept_", "n_features_in_")

    def _local(self) -> Any:
        """Return a model of one block, small enough to travel."""
        check_is_fitted(self)
        model = self._LOCAL(loss=self.loss) if hasattr(self, "loss") else self._LOCAL()
        for name in (*self._FITTED, "feature_names_in_"):
            if hasattr(self, name):
                setattr(model, name, getattr(self, name))
        return model

    def _on_blocks(self, method: str, X: Any) -> Any:
        """Return what a method makes of X, in blocks if X is."""
        predict = partial(_predicted, self._local(), method)
        if not is_collection(X):
            return predict(X)
        if hasattr(X, "chunks"):
            X = X.rechunk({1: -1})
            with warnings.catch_warnings():  # of names that X has not: the blocks will, too
                warnings.simplefilter("ignore", UserWarning)
                some = predict(np.zeros((1, X.shape[1])))
            if some.ndim == 1:
                return X.map_blocks(predict, dtype=some.dtype, drop_axis=1)
            chunks = (X.chunks[0], (some.shape[1],))
            return X.map_blocks(predict, dtype=some.dtype, chunks=chunks)
        if hasattr(X, "map_partitions"):
            import dask.array as da
            import pandas as pd

            some = predict(pd.DataFrame(np.zeros((1, len(X.columns))), columns=X.columns))
            shapes = (np.nan, *some.shape[1:])
            return da.concatenate(
                [
                    da.from_delayed(dask.delayed(predict)(part), shapes, some.dtype)
                    for part in X.to_delayed()
                ],
                allow_unknown_chunksizes=True,
            )
        return [dask.delayed(predict)(block) for block in X]

    def _sums(self, of: Callable[..., Any], X: Any, y: Any, sample_weight: Any) -> Any:
        blocks = blocks_of(X, y, sample_weight)
        parts = dask.compute(*(dask.delayed(of)(self._local(), *block) for block in blocks))
        return tree_sum(parts)

    def predict(self, X: Any) -> Any:
        """Return the predictions, in blocks if X is.

        Parameters
        ----------
        X : dask array or DataFrame, list of blocks, array or sparse matrix

        Returns
        -------
        dask array, list of delayed arrays, or ndarray
        """
        return self._on_blocks("predict", X)


def _predicted(model: Any, method: str, X: Any) -> np.ndarray:
    """Predict a block."""
    found: np.ndarray = getattr(model, method)(X)
    return found


def _weights(y: Any, weight: Any) -> np.ndarray:
    return np.ones(len(y)) if weight is None else np.asarray(weight, np.float64)


def _hits(model: Any, X: Any, y: Any, weight: Any) -> np.ndarray:
    weights = _weights(y, weight)
    right = _predicted(model, "predict", X) == np.asarray(y)
    return np.array([np.sum(weights * right), weights.sum()])


@dataclass(frozen=True)
class _Spread:
    """What R squared needs to know of some targets, which may be far from zero."""

    weight: float
    mean: float
    squares: float  # about the mean
    left: float  # about the predictions

    def __add__(self, other: _Spread) -> _Spread:
        if not other.weight or not self.weight:
            return self if self.weight else other
        weight, apart = self.weight + other.weight, other.mean - self.mean
        share = other.weight / weight
        squares = self.squares + other.squares + apart * apart * self.weight * share
        return _Spread(weight, self.mean + apart * share, squares, self.left + other.left)


def _spread(model: Any, X: Any, y: Any, weight: Any) -> _Spread:
    weights, truth = _weights(y, weight), np.asarray(y, np.float64)
    left = truth - _predicted(model, "predict", X)
    total = float(weights.sum())
    mean = float(np.sum(weights * truth)) / total if total else 0.0
    about = (np.sum(weights * np.square(each)) for each in (truth - mean, left))
    return _Spread(total, mean, *map(float, about))


class ClusterClassifier(_Cluster):
    """Predicts classes."""

    _LOCAL: type = linear_model.SDCAClassifier
    _FITTED = (*_Cluster._FITTED, "classes_")

    def decision_function(self, X: Any) -> Any:
        """Return x . w + b, in blocks if X is."""
        return self._on_blocks("decision_function", X)

    @available_if(_is_logistic)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:
        """Return the classes' probabilities, in blocks if X is."""
        return self._on_blocks("predict_proba", X)

    @available_if(_is_logistic)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Any:
        """Return the logarithms of `predict_proba`."""
        return self._on_blocks("predict_log_proba", X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of samples whose class is predicted.

        Parameters
        ----------
        X, y, sample_weight
            As `fit` takes them, or in memory.
        """
        if not is_collection(X):
            return float(self._local().score(X, y, sample_weight))
        right, all_of = self._sums(_hits, X, y, sample_weight)
        return float(right / all_of)


class ClusterRegressor(_Cluster):
    """Predicts numbers."""

    _LOCAL: type = linear_model.SDCARegressor

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R squared; of targets that are all one, 1 if all are predicted, and 0 otherwise.

        Parameters
        ----------
        X, y, sample_weight
            As `fit` takes them, or in memory.
        """
        if not is_collection(X):
            return float(self._local().score(X, y, sample_weight))
        spread = self._sums(_spread, X, y, sample_weight)
        if not spread.squares:
            return float(not spread.left)
        return float(1 - spread.left / spread.squares)
