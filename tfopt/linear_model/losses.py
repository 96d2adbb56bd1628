"""The losses of linear models: values, derivatives, feasible dual variables, corners, links.

In the symbols of Shalev-Shwartz and Zhang: an example has the label y (-1 or 1 for the losses of
classification), the prediction z = x . w + b and the dual variable a.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.special import expit

from tfopt.linear_model.validation import check_number

__all__ = ["LOSSES", "Corner", "Logistic", "LossOption", "PointwiseLoss", "loss_named"]


@dataclasses.dataclass(frozen=True)
class LossOption:
    """An option of the estimators that is the parameter of a loss.

    Attributes
    ----------
    name : str
    default : float
    low, high : float
        It must be above the one and below the other.
    from_low : bool
        Whether it may be the lower one, too.
    """

    name: str
    default: float
    low: float = 0.0
    high: float = math.inf
    from_low: bool = False

    def checked(self, value: Any) -> float:
        """Return a value, or the default for None; raise ValueError for others."""
        if value is None:
            return self.default
        return check_number(self.name, value, self.low, open_end=not self.from_low, high=self.high)


class Corner(NamedTuple):
    """A corner: a loss that is linear but for corners is the sum of those with one each.

    That is the largest a * (place - z) of the a from low to high.
    """

    place: np.ndarray
    low: np.ndarray
    high: np.ndarray


class PointwiseLoss(Protocol):
    """A loss phi(z; y), as functions of arrays."""

    #: Whether phi' is continuous.
    is_smooth: bool
    #: Whether the labels are -1 and 1.
    is_classification: bool
    #: Whether phi is smooth and, where it is large, linear: phi'' is 0 far from the minimum.
    is_linear_far: bool = False
    #: Of those that are: 1 / phi'' near the minimum.
    gamma: float = 1.0
    #: The largest phi'', or a typical one where there is none.
    curvature: float = 1.0
    #: The parameter, if there is one.
    option: LossOption | None = None
    #: What turns a mean response or a probability into a prediction z; None: nothing does.
    link: str | None = None

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return phi(z; y)."""

    def gradient(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return phi'(z; y)."""

    def clip_duals(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the nearest dual variables whose conjugate is finite."""

    def inverse_link(self, z: np.ndarray) -> np.ndarray:
        """Return the expected label of a prediction (the probability of 1), or the prediction."""

    def corners(self, y: np.ndarray) -> tuple[Corner, ...]:
        """Return the corners of a loss that is linear but for them, from left to right."""
        return ()


class _Margin(PointwiseLoss):
    """What losses of the margin y * z have in common."""

    is_classification = True

    def clip_duals(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(y * np.clip(y * a, 0, 1))


class Logistic(_Margin):
    """log(1 + exp(-y * z))"""

    is_smooth, link = True, "logit"
    curvature = 0.25

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.logaddexp(0.0, -y * z))

    def gradient(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(-y * expit(-y * z))

    def inverse_link(self, z: np.ndarray) -> np.ndarray:
        return np.asarray(expit(z))


class Hinge(_Margin):
    """max(0, 1 - y * z)"""

    is_smooth = False

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.maximum(0.0, 1 - y * z))

    def gradient(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(-y * (1 - y * z > 0))

    def inverse_link(self, z: np.ndarray) -> np.ndarray:
        return z

    def corners(self, y: np.ndarray) -> tuple[Corner, ...]:
        return (Corner(y, np.minimum(y, 0.0), np.maximum(y, 0.0)),)


class SmoothHinge(_Margin):
    """max(0, 1 - y * z), with a quadratic part of width `gamma` instead of the corner."""

    is_smooth, is_linear_far = True, True
    option = LossOption("gamma", 1.0)

    def __init__(self, gamma: float = 1.0) -> None:
        self.gamma, self.curvature = gamma, 1 / gamma

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        u = np.maximum(0.0, 1 - y * z)
        return np.asarray(np.where(u < self.gamma, u * u / (2 * self.gamma), u - self.gamma / 2))

    def gradient(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(-y * np.clip((1 - y * z) / self.gamma, 0, 1))

    def inverse_link(self, z: np.ndarray) -> np.ndarray:
        return z


class SquaredHinge(_Margin):
    """max(0, 1 - y * z)**2"""

    is_smooth = True
    curvature = 2.0

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.square(np.maximum(0.0, 1 - y * z)))

    def gradient(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(-2 * y * np.maximum(0.0, 1 - y * z))

    def clip_duals(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(y * np.maximum(y * a, 0))

    def inverse_link(self, z: np.ndarray) -> np.ndarray:
        return z


class _Distance(PointwiseLoss):
    """What losses of the distance from the label have in common."""

    is_classification, link = False, "identity"

    def inverse_link(self, z: np.ndarray) -> np.ndarray:
        return z


class Squared(_Distance):
    """(z - y)**2 / 2"""

    is_smooth = True

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.square(z - y) / 2)

    def gradient(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(z - y)

    def clip_duals(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        return a


class SquaredEpsilonInsensitive(_Distance):
    """max(0, |z - y| - epsilon)**2"""

    is_smooth = True
    option = LossOption("epsilon", 0.1, from_low=True)

    def __init__(self, epsilon: float = 0.1) -> None:
        self.epsilon = epsilon

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.square(_beyond(z - y, self.epsilon)))

    def gradient(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return 2 * _beyond(z - y, self.epsilon)

    def clip_duals(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        return a


class Huber(_Distance):
    """(z - y)**2 / 2, and linear from a distance of epsilon on."""

    is_smooth, is_linear_far = True, True
    option = LossOption("epsilon", 1.35)

    def __init__(self, epsilon: float = 1.35) -> None:
        self.epsilon = epsilon

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        r = np.abs(z - y)
        linear = self.epsilon * (r - self.epsilon / 2)
        return np.asarray(np.where(r <= self.epsilon, r * r / 2, linear))

    def gradient(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.clip(z - y, -self.epsilon, self.epsilon))

    def clip_duals(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.clip(a, -self.epsilon, self.epsilon))


class _Cornered(_Distance):
    """high * (r - epsilon) or low * (r + epsilon) where one is positive, else 0; r = y - z."""

    is_smooth = False
    low, high, epsilon = -1.0, 1.0, 0.0

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.where(y > z, self.high, self.low) * _beyond(y - z, self.epsilon))

    def gradient(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        r = y - z
        return np.select([r > self.epsilon, r < -self.epsilon], [-self.high, -self.low], 0.0)

    def clip_duals(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.clip(a, self.low, self.high))


class Quantile(_Cornered):
    """q * (y - z) if that is positive, else (q - 1) * (y - z)"""

    option = LossOption("quantile", 0.5, high=1.0)

    def __init__(self, q: float = 0.5) -> None:
        self.low, self.high = q - 1, q

    def corners(self, y: np.ndarray) -> tuple[Corner, ...]:
        return (Corner(y, np.full(y.size, self.low), np.full(y.size, self.high)),)


class EpsilonInsensitive(_Cornered):
    """max(0, |z - y| - epsilon)"""

    option = LossOption("epsilon", 0.1, from_low=True)

    def __init__(self, epsilon: float = 0.1) -> None:
        self.epsilon = epsilon

    def corners(self, y: np.ndarray) -> tuple[Corner, ...]:
        zero, one = np.zeros(y.size), np.ones(y.size)
        return Corner(y - self.epsilon, zero, one), Corner(y + self.epsilon, -one, zero)


def _beyond(t: np.ndarray, epsilon: float) -> np.ndarray:
    """Return sign(t) * max(|t| - epsilon, 0)."""
    return np.asarray(t - np.clip(t, -epsilon, epsilon))


class Poisson(PointwiseLoss):
    """exp(z) - y * z"""

    is_smooth, is_classification, link = True, False, "log"

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(z) - y * z)

    def gradient(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(z) - y)

    def clip_duals(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.minimum(a, y))

    def inverse_link(self, z: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(z))


#: By the kernels' names, with default parameters.
LOSSES: dict[str, PointwiseLoss] = {
    "logistic_loss": Logistic(),
    "squared_loss": Squared(),
    "hinge_loss": Hinge(),
    "smooth_hinge_loss": SmoothHinge(),
    "poisson_loss": Poisson(),
    "squared_hinge_loss": SquaredHinge(),
    "squared_epsilon_insensitive_loss": SquaredEpsilonInsensitive(),
    "huber_loss": Huber(),
    "quantile_loss": Quantile(),
    "epsilon_insensitive_loss": EpsilonInsensitive(),
}


def loss_named(name: str, parameter: float = 1.0) -> PointwiseLoss:
    """Return a loss by the kernels' name; a loss without a parameter ignores it."""
    loss = LOSSES[name]
    return type(loss)(parameter) if loss.option else loss  # type: ignore[call-arg]
