"""The losses of linear models as records: of margins, of distances, and the table of all losses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import expit

from tfopt.linear_model.loss_record import Corner, LossOption, PointwiseLoss, weighted_sum
from tfopt.linear_model.mean_losses import Gamma, Poisson, Tweedie

__all__ = ["LOSSES", "classification_losses", "loss_named", "loss_of", "regression_losses"]


class _Margin(PointwiseLoss):
    """The common part of losses of the margin y * z."""

    is_classification = True

    def clip_duals(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(y * np.clip(y * a, 0, 1))


class Logistic(_Margin):
    """log(1 + exp(-y * z))"""

    name, link = "logistic", "logit"
    is_smooth, bounds_moves, keeps_logits = True, True, True
    is_likelihood, has_unit_dispersion = True, True
    curvature = 0.25

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.logaddexp(0.0, -y * z))

    def gradient(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(-y * expit(-y * z))

    def inverse_link(self, z: np.ndarray) -> np.ndarray:
        return np.asarray(expit(z))

    def information(self, z: np.ndarray) -> np.ndarray:
        return np.asarray(expit(z) * expit(-z))


_LOGISTIC = Logistic()


class Multinomial(Logistic):
    """The cross-entropy of the softmax of all classes' predictions."""

    name, link, is_joint = "multinomial", "softmax", True

    @property
    def kernel(self) -> str:
        return _LOGISTIC.kernel  # for two classes

    def of_samples(self, parameter: float) -> PointwiseLoss:
        return _LOGISTIC


class Hinge(_Margin):
    """max(0, 1 - y * z)"""

    name, is_smooth = "hinge", False

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

    name, is_smooth, is_linear_far = "smooth_hinge", True, True
    option = LossOption("gamma", 1.0)

    def __init__(self, gamma: float = 1.0) -> None:
        self.parameter = self.gamma = gamma
        self.curvature = 1 / gamma

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        u = np.maximum(0.0, 1 - y * z)
        return np.asarray(np.where(u < self.gamma, u * u / (2 * self.gamma), u - self.gamma / 2))

    def gradient(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(-y * np.clip((1 - y * z) / self.gamma, 0, 1))

    def far(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        u = 1 - y * z
        return np.asarray(np.abs(u - np.clip(u, 0, self.gamma)))

    def inverse_link(self, z: np.ndarray) -> np.ndarray:
        return z


class SquaredHinge(_Margin):
    """max(0, 1 - y * z)**2"""

    name, is_smooth = "squared_hinge", True
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
    """The common part of losses of the distance from the label."""

    is_classification, link = False, "identity"

    def inverse_link(self, z: np.ndarray) -> np.ndarray:
        return z

    def without_offset(self, y: np.ndarray, offset: np.ndarray) -> tuple[np.ndarray, float]:
        return y - offset, 1.0

    def intercept_step(self, gradient: float, hessian: float, longest: float) -> float:
        return -gradient / hessian


class Squared(_Distance):
    """(z - y)**2 / 2"""

    name, is_smooth, is_quadratic, bounds_moves = "squared", True, True, True
    best_is_mean, is_likelihood = True, True

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.square(z - y) / 2)

    def gradient(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(z - y)

    def information(self, z: np.ndarray) -> np.ndarray:
        return np.ones_like(z)

    def clip_duals(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        return a

    def dual_sums(self, weight: np.ndarray, y: np.ndarray, a: np.ndarray) -> np.ndarray:
        return np.array([weighted_sum(weight, a), weight.sum()])

    def balanced(self, a: np.ndarray, y: np.ndarray, sums: np.ndarray) -> np.ndarray:
        return np.asarray(a - sums[0] / sums[1])


class SquaredEpsilonInsensitive(_Distance):
    """max(0, |z - y| - epsilon)**2"""

    name, is_smooth = "squared_epsilon_insensitive", True
    option = LossOption("epsilon", 0.1, from_low=True)

    def __init__(self, epsilon: float = 0.1) -> None:
        self.parameter = self.epsilon = epsilon

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.square(_beyond(z - y, self.epsilon)))

    def gradient(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return 2 * _beyond(z - y, self.epsilon)

    def clip_duals(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        return a


class Huber(_Distance):
    """(z - y)**2 / 2, but linear beyond a distance of epsilon."""

    name, is_smooth, is_linear_far = "huber", True, True
    option = LossOption("epsilon", 1.35)

    def __init__(self, epsilon: float = 1.35) -> None:
        self.parameter = self.epsilon = epsilon

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        r = np.abs(z - y)
        linear = self.epsilon * (r - self.epsilon / 2)
        return np.asarray(np.where(r <= self.epsilon, r * r / 2, linear))

    def gradient(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.clip(z - y, -self.epsilon, self.epsilon))

    def far(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.abs(_beyond(z - y, self.epsilon)))

    def clip_duals(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.clip(a, -self.epsilon, self.epsilon))


class _Cornered(_Distance):
    """high * (r - epsilon) or low * (r + epsilon) if one is positive, else 0; r = y - z."""

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

    name, option = "quantile", LossOption("quantile", 0.5, high=1.0, may_be_several=True)

    def __init__(self, q: float = 0.5) -> None:
        self.parameter = q
        self.low, self.high = q - 1, q

    def corners(self, y: np.ndarray) -> tuple[Corner, ...]:
        return (Corner(y, np.full(y.size, self.low), np.full(y.size, self.high)),)


class EpsilonInsensitive(_Cornered):
    """max(0, |z - y| - epsilon)"""

    name = "epsilon_insensitive"
    option = LossOption("epsilon", 0.1, from_low=True)

    def __init__(self, epsilon: float = 0.1) -> None:
        self.parameter = self.epsilon = epsilon

    def corners(self, y: np.ndarray) -> tuple[Corner, ...]:
        zero, one = np.zeros(y.size), np.ones(y.size)
        return Corner(y - self.epsilon, zero, one), Corner(y + self.epsilon, -one, zero)


def _beyond(t: np.ndarray, epsilon: float) -> np.ndarray:
    """Return sign(t) * max(|t| - epsilon, 0)."""
    return np.asarray(t - np.clip(t, -epsilon, epsilon))


_ALL: tuple[PointwiseLoss, ...] = (
    _LOGISTIC,
    Multinomial(),
    Hinge(),
    SmoothHinge(),
    SquaredHinge(),
    Squared(),
    Poisson(),
    Gamma(),
    Tweedie(),
    Huber(),
    Quantile(),
    EpsilonInsensitive(),
    SquaredEpsilonInsensitive(),
)
#: The losses with default parameters, by their names in the estimators.
LOSSES = {loss.name: loss for loss in _ALL}
_BY_KERNEL = {loss.kernel: loss for loss in _ALL if not loss.is_joint}


def classification_losses() -> dict[str, PointwiseLoss]:
    """Return the losses of classifiers, by name."""
    return {name: loss for name, loss in LOSSES.items() if loss.is_classification}


def regression_losses() -> dict[str, PointwiseLoss]:
    """Return the losses of regressors, by name."""
    return {name: loss for name, loss in LOSSES.items() if not loss.is_classification}


def loss_named(kernel: str, parameter: float = 1.0) -> PointwiseLoss:
    """Return a loss by its name in the kernels; a loss without a parameter ignores `parameter`."""
    return _BY_KERNEL[kernel].of_samples(parameter)


def loss_of(name: str, options: Mapping[str, Any]) -> PointwiseLoss:
    """Return a loss by its name in the estimators, with its parameter if the options have it.

    Raises
    ------
    ValueError
        If the parameter is out of range.
    """
    loss = LOSSES[name]
    if loss.option is None:
        return loss
    return loss_named(loss.kernel, loss.option.checked(options.get(loss.option.name)))
