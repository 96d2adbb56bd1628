"""The losses of a linear model: value, derivative and prediction, from the margin w·x + b."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy.special import expit


class Loss(Protocol):
    """A loss of one row as a function of its margin and target."""

    def mean(self, margins: np.ndarray, targets: np.ndarray) -> float:
        """Return the mean loss."""
        ...

    def derivative(self, margins: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return d loss / d margin of each row."""
        ...

    def predict(self, margins: np.ndarray) -> np.ndarray:
        """Return what the model says about each row."""
        ...


class Logistic:
    """log(1 + exp(margin)) - target·margin, for targets 0 and 1; predicts P(target = 1)."""

    def mean(self, margins: np.ndarray, targets: np.ndarray) -> float:
        # logaddexp overflows for no margin, unlike the formula as written above
        return float(np.mean(np.logaddexp(0.0, margins) - targets * margins))

    def derivative(self, margins: np.ndarray, targets: np.ndarray) -> np.ndarray:
        return np.asarray(expit(margins) - targets)

    def predict(self, margins: np.ndarray) -> np.ndarray:
        return np.asarray(expit(margins))


class Squared:
    """(margin - target)² / 2; predicts the margin itself."""

    def mean(self, margins: np.ndarray, targets: np.ndarray) -> float:
        return float(np.mean((margins - targets) ** 2) / 2)

    def derivative(self, margins: np.ndarray, targets: np.ndarray) -> np.ndarray:
        return np.asarray(margins - targets)

    def predict(self, margins: np.ndarray) -> np.ndarray:
        return margins


BY_NAME: dict[str, Loss] = {"logistic": Logistic(), "squared": Squared()}
