"""The record of a loss of linear models: all that estimators and solvers need of it.

In the symbols of Shalev-Shwartz and Zhang: an example has the label y (-1 or 1 for the losses of
classification), the prediction z = x . w + b and the dual variable a. The kernels have the formulas
of each loss by its name with "_loss".
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from tfopt.errors import InvalidArgumentError
from tfopt.linear_model.validation import check_number

__all__ = ["Corner", "LossOption", "PointwiseLoss", "weighted_sum"]


def weighted_sum(weight: np.ndarray, values: np.ndarray) -> float:
    """Return the sum of weight * value, without BLAS.

    BLAS adds up in an order that depends on its number of threads, and wakes them for products
    that are shorter than the waking.
    """
    return float(np.add.reduce(weight * values))


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
    may_be_several : bool
        Whether a regressor fits a model for each of several values.
    """

    name: str
    default: float
    low: float = 0.0
    high: float = math.inf
    from_low: bool = False
    may_be_several: bool = False

    def checked(self, value: Any) -> float:
        """Return a value, or the default for None; raise ValueError for others."""
        if value is None:
            return self.default
        return check_number(self.name, value, self.low, open_end=not self.from_low, high=self.high)

    def several(self, value: Any) -> tuple[float, ...] | None:
        """Return values, if there are several; None of one; raise ValueError for others."""
        is_one = isinstance(value, str) or not isinstance(value, (Sequence, np.ndarray))
        if is_one or not self.may_be_several:
            return None
        values = tuple(self.checked(each) for each in value)
        if not values or list(values) != sorted({*values}):
            raise InvalidArgumentError(
                f"{self.name} must be a number, or several in ascending order, not {value!r}"
            )
        return values


class Corner(NamedTuple):
    """A kink of a loss: a piecewise linear loss is a sum of losses with one kink each.

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
    #: The option that is its parameter, if there is one, and the value.
    option: LossOption | None = None
    parameter: float = 1.0
    #: What turns a mean response or a probability into a prediction z; None: nothing does.
    link: str | None = None
    #: Whether all classes have one loss together; of two classes it is that of each sample.
    is_joint: bool = False
    #: Whether visits of several classes keep the logits of the dual variables.
    keeps_logits: bool = False
    #: Whether the best constant prediction of targets is their mean, through the link.
    best_is_mean: bool = False
    #: Whether it is minus a log-likelihood of a generalized linear model, with `information`.
    is_likelihood: bool = False
    #: Of those: whether the variance of a label is known by its mean, or but for a factor.
    has_unit_dispersion: bool = False
    #: What targets must be, if not all finite numbers will do.
    domain: str | None = None

    @property
    def kernel(self) -> str:
        """The kernels' name."""
        return f"{self.name}_loss"

    def of_samples(self, parameter: float) -> PointwiseLoss:
        """Return the loss of each sample, with this parameter if it has one."""
        return type(self)(parameter) if self.option else self  # type: ignore[call-arg]

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return phi(z; y)."""

    def gradient(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return phi'(z; y)."""

    def far(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return how far predictions are from where phi bends, if it is linear elsewhere."""
        return np.zeros(z.shape)

    def least(self, y: np.ndarray) -> np.ndarray | float:
        """Return the least phi(z; y) of any z: what no model can avoid."""
        return 0.0

    def clip_duals(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the nearest dual variables whose conjugate is finite."""

    def inverse_link(self, z: np.ndarray) -> np.ndarray:
        """Return the expected label of a prediction (the probability of 1), or the prediction."""

    def corners(self, y: np.ndarray) -> tuple[Corner, ...]:
        """Return the corners of a loss that is linear but for them, from left to right."""
        return ()

    def without_offset(
        self, y: np.ndarray, offset: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | float]:
        """Return other targets y', and factors, with phi(z + offset; y) = factor * phi(z; y').

        But for what does not depend on z. The dual variables of the other targets, times the
        factors, are those of y. Losses of classification have no such targets.
        """
        raise InvalidArgumentError(f"loss={self.name!r} takes no offset; regression losses do")

    def is_outside(self, y: np.ndarray) -> np.ndarray:
        """Return which targets are not in the domain."""
        return np.zeros(y.shape, bool)

    def information(self, z: np.ndarray) -> np.ndarray:
        """Return the expected phi''(z; y), of a loss that is a likelihood."""
        raise InvalidArgumentError(
            f"loss={self.name!r} is not a likelihood of a generalized linear model"
        )

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
