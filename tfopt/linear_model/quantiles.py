"""Several quantiles at once: a model for each, with a row of coefficients in the estimator."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt.errors import InvalidArgumentError
from tfopt.linear_model.evaluation import Deviance

__all__ = ["QuantilesMixin"]

#: The attributes of single models that become rows of arrays, and entries of lists.
_STACKED = ("coef_", "intercept_", "dual_coef_", "objective_", "dual_gap_")
_LISTED = ("n_iter_", "history_", "solver_")


def _take_names(model: Any, other: Any) -> None:
    """Set the features of a model to those of another model."""
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(other, name):
            setattr(model, name, getattr(other, name))


class QuantilesMixin:
    """A regressor whose loss may have several values of its parameter."""

    def _several(self: Any) -> tuple[float, ...] | None:
        """Return the values of the loss's parameter if there are several, else None."""
        loss = self._LOSSES.get(self.loss)  # an unknown loss is refused elsewhere
        option = None if loss is None else loss.option
        values: tuple[float, ...] | None = option and option.several(getattr(self, option.name))
        return values

    def _single(self: Any, value: float) -> Any:
        """Return an estimator for one of the values."""
        name = self._phi.option.name
        return type(self)(**{**self.get_params(deep=False), name: value})

    def _fit_several(
        self: Any, values: tuple[float, ...], fit: Callable[[Any, float], object]
    ) -> None:
        """Fit a model for each value by a function, and collect their attributes."""
        if self.warm_start:
            raise InvalidArgumentError(
                f"{self._phi.option.name}={list(values)} cannot start from the last fit: set "
                "warm_start=False"
            )
        models = []
        for k, value in enumerate(values):
            model = self._single(value)
            if self.callback is not None:
                model.callback = lambda record, k=k: self.callback({**record, "problem": k})
            fit(model, value)
            models.append(model)
            for record in model.history_[0]:
                record["problem"] = k
        for name in _STACKED:
            self.__dict__.pop(name, None)
            if hasattr(models[0], name):
                setattr(self, name, np.stack([getattr(model, name) for model in models]))
        for name in _LISTED:
            setattr(self, name, [getattr(model, name)[0] for model in models])
        self.n_iter_ = np.array(self.n_iter_)
        self.__dict__.pop("feature_names_in_", None)
        _take_names(self, models[0])

    def predict(self: Any, X: Any, offset: Any = None) -> np.ndarray:
        """Return x . w + b + offset, or its exponential for "poisson", "gamma" and "tweedie".

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features), or as `fit` takes them
        offset : array, shape (n_samples,), or float, optional
            A known part of each sample's score, as in `fit`; 0 by default.

        Returns
        -------
        ndarray of float64, shape (n_samples,) or (n_samples, n_targets)
            Several quantiles have a column each. They are fitted separately, so predictions may
            cross; if they are not in ascending order, there is a warning.
        """
        predicted: np.ndarray = super().predict(X, offset)  # type: ignore[misc]
        if self._several() is not None:
            predicted = predicted.reshape(len(predicted), -1)
            crossed = int((np.diff(predicted, axis=1) < 0).any(axis=1).sum())
            if crossed:
                warnings.warn(
                    f"the quantiles of {crossed} of {len(predicted)} samples are not in ascending "
                    "order, as each was fitted by itself: sort the columns where that matters",
                    UserWarning,
                    stacklevel=2,
                )
        return predicted

    def _deviances(
        self: Any, X: Any, y: Any, weights: np.ndarray | None, offset: Any = None
    ) -> tuple[Deviance, ...]:
        """Return the deviance on rows, for each target or value."""
        values = self._several()
        if values is None:
            found: tuple[Deviance, ...] = super()._deviances(X, y, weights, offset)  # type: ignore[misc]
            return found
        each: list[Deviance] = []
        for value, coef, bias in zip(values, self._dense_coef(), self.intercept_, strict=True):
            model = self._single(value)
            model.coef_, model.intercept_ = coef, bias
            _take_names(model, self)
            each.extend(model._deviances(X, y, weights, offset))
        return tuple(each)
