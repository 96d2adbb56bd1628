"""The record of a linear model's loss: all that estimators and solvers need to know of it.

In the notation of Shalev-Shwartz and Zhang, an example has the label y (-1 or 1 for losses of
classification), the prediction z = x . w + b and the dual variable a. The kernels have the formulas
of each loss under its name with "_loss".
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

    BLAS adds in an order that depends on its number of threads, and wakes threads even for products
    that take less time than that.
    """
    return float(np.add.reduce(weight * values))


@dataclasses.dataclass(frozen=True)
class LossOption:
    """The option of the estimators that is a loss's parameter.

    Attributes
    ----------
    name : str
    default : float
    low, high : float
        The bounds of values, both exclusive.
    from_low : bool
        Whether the lower bound is inclusive instead.
    may_be_several : bool
        Whether a regressor accepts several values and fits a model for each.
    """

    name: str
    default: float
    low: float = 0.0
    high: float = math.inf
    from_low: bool = False
    may_be_several: bool = False

    def checked(self, value: Any) -> float:
        """Return a valid value, or the default for None; raise ValueError for others."""
        if value is None:
            return self.default
        return check_number(self.name, value, self.low, open_end=not self.from_low, high=self.high)

    def several(self, value: Any) -> tuple[float, ...] | None:
        """Return several valid values, or None for a single one; raise ValueError for others."""
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

    The loss of a kink is the maximum of a * (place - z) over a in [low, high].
    """

    place: np.ndarray
    low: np.ndarray
    high: np.ndarray


class PointwiseLoss(Protocol):
    """A loss phi(z; y) as functions of arrays."""

    #: The name in the estimators.
    name: str
    #: Whether phi' is continuous.
    is_smooth: bool
    #: Whether phi'' is constant, so that a Newton step reaches the minimum.
    is_quadratic: bool = False
    #: Whether the gap of a dual variable is at most the square of its distance from -phi', divided
    #: by phi''.
    bounds_moves: bool = False
    #: Whether the labels are -1 and 1.
    is_classification: bool
    #: Whether phi is smooth, but linear far from its minimum, where phi'' is 0.
    is_linear_far: bool = False
    #: For such losses, 1 / phi'' near the minimum.
    gamma: float = 1.0
    #: The largest phi'', or a typical one if phi'' is not bounded.
    curvature: float = 1.0
    #: The option that is its parameter, if there is one, and the value of the parameter.
    option: LossOption | None = None
    parameter: float = 1.0
    #: The function from a mean response or probability to a prediction z; None if there is none.
    link: str | None = None
    #: Whether more than two classes have a joint loss; with two, the loss is that of each sample.
    is_joint: bool = False
    #: Whether joint visits of several classes store the logits of the dual variables.
    keeps_logits: bool = False
    #: Whether the best constant prediction of targets is the link of their mean.
    best_is_mean: bool = False
    #: Whether it is the negative log-likelihood of a generalized linear model, with `information`.
    is_likelihood: bool = False
    #: For such losses, whether the dispersion is 1: the mean of a label determines its variance.
    has_unit_dispersion: bool = False
    #: The requirement for targets, for messages; None if all finite numbers are valid.
    domain: str | None = None

    @property
    def kernel(self) -> str:
        """The name in the kernels."""
        return f"{self.name}_loss"

    def of_samples(self, parameter: float) -> PointwiseLoss:
        """Return the loss of each sample, with this parameter if the loss has one."""
        return type(self)(parameter) if self.option else self  # type: ignore[call-arg]

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return phi(z; y)."""

    def gradient(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return phi'(z; y)."""

    def far(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the distance of predictions from the range where a `is_linear_far` loss bends."""
        return np.zeros(z.shape)

    def least(self, y: np.ndarray) -> np.ndarray | float:
        """Return the least phi(z; y) over all z, which no model can avoid."""
        return 0.0

    def clip_duals(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the nearest dual variables with a finite conjugate."""

    def inverse_link(self, z: np.ndarray) -> np.ndarray:
        """Return the expected label of a prediction (the probability of 1), or the prediction."""

    def corners(self, y: np.ndarray) -> tuple[Corner, ...]:
        """Return the corners of a piecewise linear loss, from left to right."""
        return ()

    def without_offset(
        self, y: np.ndarray, offset: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | float]:
        """Return other targets y' and factors with phi(z + offset; y) = factor * phi(z; y').

        Terms that do not depend on z may differ. The dual variables of y are those of y' times the
        factors. Losses of classification have no such targets.
        """
        raise InvalidArgumentError(f"loss={self.name!r} takes no offset; regression losses do")

    def is_outside(self, y: np.ndarray) -> np.ndarray:
        """Return a mask of the targets that are not in the domain."""
        return np.zeros(y.shape, bool)

    def information(self, z: np.ndarray) -> np.ndarray:
        """Return the expected phi''(z; y) of a loss that is a likelihood."""
        raise InvalidArgumentError(
            f"loss={self.name!r} is not a likelihood of a generalized linear model"
        )

    def initial_intercept(self, mean: float) -> float:
        """Return the intercept of the constant model, or a guess of it, for targets of a mean."""
        return mean

    def intercept_step(self, gradient: float, hessian: float, longest: float) -> float:
        """Return the Newton step of the intercept, given the sums of phi' and of phi'' > 0."""
        return min(max(-gradient / hessian, -longest), longest)

    def dual_sums(self, weight: np.ndarray, y: np.ndarray, a: np.ndarray) -> np.ndarray:
        """Return two sums from which `balanced` makes the weighted sum of dual variables 0."""
        return np.array([weighted_sum(weight, np.abs(a) * (side == (a > 0))) for side in (0, 1)])

    def balanced(self, a: np.ndarray, y: np.ndarray, sums: np.ndarray) -> np.ndarray:
        """Return dual variables whose weighted sum is 0, given `dual_sums` of all samples.

        They have a range around 0: the variables of the sign with the larger sum are scaled down.
        """
        heavy = int(sums[1] > sums[0])
        if sums[heavy] <= sums[1 - heavy]:
            return a
        return np.where((a > 0) == heavy, a * (sums[1 - heavy] / sums[heavy]), a)
