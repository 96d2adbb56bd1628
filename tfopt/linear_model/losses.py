"""The losses of linear models: all that estimators and solvers must know of each, in one record.

In the symbols of Shalev-Shwartz and Zhang: an example has the label y (-1 or 1 for the losses of
classification), the prediction z = x . w + b and the dual variable a. The kernels have the formulas
of each loss by its name with "_loss".
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.special import expit

from tfopt.linear_model._solver.reductions import weighted_sum
from tfopt.linear_model.validation import check_number

__all__ = [
    "LOSSES",
    "Corner",
    "LossOption",
    "PointwiseLoss",
    "classification_losses",
    "loss_named",
    "regression_losses",
]


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

    #: The estimators' name.
    name: str
    #: Whether phi' is continuous.
    is_smooth: bool
    #: Whether phi'' is the same everywhere, so that a Newton step leads to the minimum.
    is_quadratic: bool = False
    #: Whether a dual variable that is moved from -phi' has a gap of at most its move's square,
    #: divided by phi''.
    bounds_moves: bool = False
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
    #: Whether all classes have one loss together; of two classes it is that of each sample.
    is_joint: bool = False
    #: Whether visits of several classes keep the logits of the dual variables.
    keeps_logits: bool = False
    #: What targets must be, if not all finite numbers will do.
    domain: str | None = None

    @property
    def kernel(self) -> str:
        """The kernels' name."""
        return f"{self.name}_loss"

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

    def is_outside(self, y: np.ndarray) -> np.ndarray:
        """Return which targets are not in the domain."""
        return np.zeros(y.shape, bool)

    def initial_intercept(self, mean: float) -> float:
        """Return the intercept of the constant model, or a guess, for targets with a mean."""
        return mean

    def intercept_step(self, gradient: float, hessian: float, longest: float) -> float:
        """Return Newton's step of the intercept, given the sums of phi' and of phi'' > 0."""
        return min(max(-gradient / hessian, -longest), longest)

    def dual_sums(self, weight: np.ndarray, y: np.ndarray, a: np.ndarray) -> np.ndarray:
        """Return two sums by which `balanced` makes the weighted sum of dual variables 0."""
        return np.array([weighted_sum(weight, np.abs(a) * (side == (a > 0))) for side in (0, 1)])

    def balanced(self, a: np.ndarray, y: np.ndarray, sums: np.ndarray) -> np.ndarray:
        """Return dual variables whose weighted sum is 0, given `dual_sums` of all samples.

        They are from a range around 0: those of the sign with the larger sum are scaled down.
        """
        heavy = int(sums[1] > sums[0])
        if sums[heavy] <= sums[1 - heavy]:
            return a
        return np.where((a > 0) == heavy, a * (sums[1 - heavy] / sums[heavy]), a)


class _Margin(PointwiseLoss):
    """What losses of the margin y * z have in common."""

    is_classification = True

    def clip_duals(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(y * np.clip(y * a, 0, 1))


class Logistic(_Margin):
    """log(1 + exp(-y * z))"""

    name, link = "logistic", "logit"
    is_smooth, bounds_moves, keeps_logits = True, True, True
    curvature = 0.25

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.logaddexp(0.0, -y * z))

    def gradient(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(-y * expit(-y * z))

    def inverse_link(self, z: np.ndarray) -> np.ndarray:
        return np.asarray(expit(z))


_LOGISTIC = Logistic()


class Multinomial(Logistic):
    """The cross-entropy of the softmax of all classes' predictions."""

    name, link, is_joint = "multinomial", "softmax", True

    @property
    def kernel(self) -> str:
        return _LOGISTIC.kernel  # of two classes


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
    """What losses of the distance from the label have in common."""

    is_classification, link = False, "identity"

    def inverse_link(self, z: np.ndarray) -> np.ndarray:
        return z

    def intercept_step(self, gradient: float, hessian: float, longest: float) -> float:
        return -gradient / hessian


class Squared(_Distance):
    """(z - y)**2 / 2"""

    name, is_smooth, is_quadratic, bounds_moves = "squared", True, True, True

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.square(z - y) / 2)

    def gradient(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(z - y)

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
        self.epsilon = epsilon

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.square(_beyond(z - y, self.epsilon)))

    def gradient(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return 2 * _beyond(z - y, self.epsilon)

    def clip_duals(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        return a


class Huber(_Distance):
    """(z - y)**2 / 2, and linear from a distance of epsilon on."""

    name, is_smooth, is_linear_far = "huber", True, True
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

    name, option = "quantile", LossOption("quantile", 0.5, high=1.0)

    def __init__(self, q: float = 0.5) -> None:
        self.low, self.high = q - 1, q

    def corners(self, y: np.ndarray) -> tuple[Corner, ...]:
        return (Corner(y, np.full(y.size, self.low), np.full(y.size, self.high)),)


class EpsilonInsensitive(_Cornered):
    """max(0, |z - y| - epsilon)"""

    name = "epsilon_insensitive"
    option = LossOption("epsilon", 0.1, from_low=True)

    def __init__(self, epsilon: float = 0.1) -> None:
        self.epsilon = epsilon

    def corners(self, y: np.ndarray) -> tuple[Corner, ...]:
        zero, one = np.zeros(y.size), np.ones(y.size)
        return Corner(y - self.epsilon, zero, one), Corner(y + self.epsilon, -one, zero)


def _beyond(t: np.ndarray, epsilon: float) -> np.ndarray:
    """Return sign(t) * max(|t| - epsilon, 0)."""
    return np.asarray(t - np.clip(t, -epsilon, epsilon))


class _OfMeans(PointwiseLoss):
    """What losses of the logarithm of a mean have in common."""

    is_classification, link = False, "log"
    is_smooth, bounds_moves = True, True

    def inverse_link(self, z: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(z))

    def initial_intercept(self, mean: float) -> float:
        return math.log(mean)


class Poisson(_OfMeans):
    """exp(z) - y * z"""

    name, domain = "poisson", "non-negative"

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(z) - y * z)

    def gradient(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(z) - y)

    def clip_duals(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.minimum(a, y))

    def is_outside(self, y: np.ndarray) -> np.ndarray:
        return np.asarray(y < 0)

    def intercept_step(self, gradient: float, hessian: float, longest: float) -> float:
        if gradient < hessian:
            return math.log1p(-gradient / hessian)  # the derivative is hessian * e**step - a sum
        return super().intercept_step(gradient, hessian, longest)

    def dual_sums(self, weight: np.ndarray, y: np.ndarray, a: np.ndarray) -> np.ndarray:
        return np.array([weighted_sum(weight, y), weighted_sum(weight, y - a)])

    def balanced(self, a: np.ndarray, y: np.ndarray, sums: np.ndarray) -> np.ndarray:
        return np.asarray(y - (y - a) * (sums[0] / sums[1]))  # y - a >= 0 gets the mean of y


class Gamma(_OfMeans):
    """y * exp(-z) + z - 1 - log(y), half the unit deviance"""

    name, domain = "gamma", "positive"

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        s = np.log(y) - z
        return np.asarray(np.expm1(s) - s)

    def gradient(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(-np.expm1(np.log(y) - z))

    def clip_duals(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.maximum(a, -1.0))

    def is_outside(self, y: np.ndarray) -> np.ndarray:
        return np.asarray(y <= 0)

    def intercept_step(self, gradient: float, hessian: float, longest: float) -> float:
        # the derivative is a sum - hessian * e**-step
        return math.log(hessian / (gradient + hessian)) if gradient > -hessian else longest

    def dual_sums(self, weight: np.ndarray, y: np.ndarray, a: np.ndarray) -> np.ndarray:
        return np.array([weight.sum(), weighted_sum(weight, 1 + a)])

    def balanced(self, a: np.ndarray, y: np.ndarray, sums: np.ndarray) -> np.ndarray:
        return np.asarray((1 + a) * (sums[0] / sums[1]) - 1)  # 1 + a >= 0 gets the mean 1


_ALL: tuple[PointwiseLoss, ...] = (
    _LOGISTIC,
    Multinomial(),
    Hinge(),
    SmoothHinge(),
    SquaredHinge(),
    Squared(),
    Poisson(),
    Gamma(),
    Huber(),
    Quantile(),
    EpsilonInsensitive(),
    SquaredEpsilonInsensitive(),
)
#: By the estimators' names, with default parameters.
LOSSES = {loss.name: loss for loss in _ALL}
_BY_KERNEL = {loss.kernel: loss for loss in _ALL if not loss.is_joint}


def classification_losses() -> dict[str, PointwiseLoss]:
    """Return the losses of classifiers, by name."""
    return {name: loss for name, loss in LOSSES.items() if loss.is_classification}


def regression_losses() -> dict[str, PointwiseLoss]:
    """Return the losses of regressors, by name."""
    return {name: loss for name, loss in LOSSES.items() if not loss.is_classification}


def loss_named(kernel: str, parameter: float = 1.0) -> PointwiseLoss:
    """Return a loss by the kernels' name; a loss without a parameter ignores it."""
    loss = _BY_KERNEL[kernel]
    return type(loss)(parameter) if loss.option else loss  # type: ignore[call-arg]
