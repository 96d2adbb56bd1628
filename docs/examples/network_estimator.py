"""An estimator for scikit-learn: a network that any optimizer of tfopt trains, with any loss."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

import tfopt
from tfopt.optimizers import Adam


def squared(residuals: Any) -> Any:
    """Return the losses of least squares."""
    return np.square(residuals)


class Pinball:
    """The losses whose minimum is a quantile, which scikit-learn's networks do not have."""

    def __init__(self, quantile: float) -> None:
        self.quantile = quantile

    def __call__(self, residuals: Any) -> Any:
        """Return the losses of predictions minus targets."""
        return np.maximum((1 - self.quantile) * residuals, -self.quantile * residuals)


class NetworkRegressor(RegressorMixin, BaseEstimator):
    """A network of layers with rectifiers.

    Parameters
    ----------
    hidden : tuple of int
        The widths of the layers between the features and the prediction.
    loss : callable
        Of predictions minus targets, in NumPy's functions: `squared`, or ``Pinball(0.9)``.
    optimizer : tfopt.optimizers.Optimizer, optional
        Is copied, not changed. By default ``Adam(0.001)``.
    epochs, batch_size : int
    random_state : int, RandomState or None
    """

    def __init__(
        self, hidden: tuple[int, ...] = (100,), loss: Callable[[Any], Any] = squared,
        optimizer: Any = None, epochs: int = 50, batch_size: int = 200, random_state: Any = None,
    ) -> None:  # fmt: skip
        self.hidden = hidden
        self.loss = loss
        self.optimizer = optimizer
        self.epochs = epochs
        self.batch_size = batch_size
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> NetworkRegressor:
        """Train from the beginning: one traced step for each batch."""
        X, y = validate_data(self, X, y, dtype=np.float32, y_numeric=True)
        y = y.astype(np.float32)
        random = check_random_state(self.random_state)
        widths = [X.shape[1], *self.hidden, 1]
        self.layers_ = []
        for inputs, outputs in itertools.pairwise(widths):
            edge = np.sqrt(6 / (inputs + outputs))
            W = random.uniform(-edge, edge, (inputs, outputs)).astype(np.float32)
            self.layers_.append((tfopt.Variable(W), tfopt.Variable(np.zeros(outputs, np.float32))))
        variables = [v for layer in self.layers_ for v in layer]
        optimizer = Adam(0.001) if self.optimizer is None else copy.deepcopy(self.optimizer)

        @tfopt.function
        def step(x: Any, t: Any) -> Any:
            with tfopt.GradientTape() as tape:
                loss = np.mean(self.loss(self._output(x) - t))
            optimizer.minimize(loss, variables, tape=tape)
            return loss

        for _ in range(self.epochs):
            order = random.permutation(len(X))
            for begin in range(0, len(X), self.batch_size):
                rows = order[begin : begin + self.batch_size]
                self.loss_ = float(step(X[rows], y[rows]))
        return self

    def _output(self, x: Any) -> Any:
        *hidden, (W, b) = self.layers_
        for V, c in hidden:
            x = np.maximum(x @ V + c, 0)
        return (x @ W + b)[:, 0]

    def predict(self, X: Any) -> np.ndarray:
        """Return a prediction for each row."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float32, reset=False)
        return np.asarray(self._output(X))
