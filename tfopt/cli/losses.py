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

    def predict(self, margins: np.ndarray) -> np.ndarray:
        """Return what the model says about each row."""
        ...


class SteepLoss(Loss, Protocol):
    """A loss with a derivative."""

    def derivative(self, margins: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return d loss / d margin of each row."""
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


class Hinge:
    """max(0, 1 - y·margin), y = -1 or 1 for targets 0 and 1; predicts the margin.

    The corner is rounded by a parabola as wide as `gamma`.
    """

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma

    def mean(self, margins: np.ndarray, targets: np.ndarray) -> float:
        short = np.maximum(0.0, 1 - (2 * targets - 1) * margins)
        width = self.gamma
        if width:
            short = np.where(short < width, short**2 / (2 * width), short - width / 2)
        return float(np.mean(short))

    def predict(self, margins: np.ndarray) -> np.ndarray:
        return margins


class Poisson:
    """exp(margin) - target·margin; predicts exp(margin)."""

    def mean(self, margins: np.ndarray, targets: np.ndarray) -> float:
        return float(np.mean(np.exp(margins) - targets * margins))

    def predict(self, margins: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(margins))


#: Those that steps can go down.
STEPS: dict[str, SteepLoss] = {"logistic": Logistic(), "squared": Squared()}
BY_NAME: dict[str, Loss] = {
    **STEPS,
    "hinge": Hinge(0.0),
    "smooth_hinge": Hinge(1.0),
    "poisson": Poisson(),
}


class OneVersusRest:
    """The sum of a loss over margins, one for each class: y = 1 for a row's own class, else 0.

    Predicts what the loss does, a column for each class; probabilities are made to sum to 1.
    """

    def __init__(self, loss: Loss) -> None:
        self.loss = loss

    def mean(self, margins: np.ndarray, targets: np.ndarray) -> float:
        return sum(
            self.loss.mean(of_class, (targets == k).astype(np.float64))
            for k, of_class in enumerate(margins.T)
        )

    def predict(self, margins: np.ndarray) -> np.ndarray:
        if isinstance(self.loss, Logistic):
            from tfopt.linear_model.predictions import probabilities  # loaded if needed only

            return probabilities(margins)
        return self.loss.predict(margins)


def loss_of(name: str, classes: tuple[float, ...] | None) -> Loss:
    """Return the loss of a model."""
    loss = BY_NAME[name]
    return OneVersusRest(loss) if classes and len(classes) > 2 else loss
