"""Hyperparameters: attributes that hold numbers, checked on assignment."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.optimizers.options import LearningRateLike
from tfopt.optimizers.schedules import LearningRateSchedule, serialize
from tfopt.optimizers.settings import (
    CheckedAttribute,
    floating,
    is_variable,
    refuse_class,
    refuse_variable,
)

__all__ = ["Hyper", "LearningRate", "is_live", "limit", "rate_config"]

T = TypeVar("T")

#: The least number that stays above 0 in float32, also times 1 - beta**t, and the greatest below 1.
_ABOVE_0, _BELOW_1 = 2.0**-100, 1 - 2.0**-24


class _Bounded(CheckedAttribute[T]):
    """An attribute that holds a finite float within bounds.

    It is kept in float64 and rounded to a variable's dtype when an update is computed. An
    optimizer with ``compat="tensorflow"`` rounds Python numbers to float32, unless TensorFlow keeps
    the attribute exact, too.

    Parameters
    ----------
    low, high : float
        The bounds.
    above : bool
        Whether it is greater than 0, in float32, too: for what a rule divides by.
    below : bool
        Whether it is less than 1, in float32, too: for a decay of which a rule divides by one
        minus a power.
    exact : bool
        Whether TensorFlow keeps it exact.
    instead : float, optional
        What None and 0 stand for, and the value before the first assignment.
    usual : float, optional
        The value that configurations leave out.
    """

    binds = False

    def __init__(
        self,
        low: float = -math.inf,
        high: float = math.inf,
        above: bool = False,
        below: bool = False,
        exact: bool = False,
        instead: float | None = None,
        usual: float | None = None,
    ) -> None:
        self.low, self.high = (_ABOVE_0 if above else low), (_BELOW_1 if below else high)
        self.above, self.below, self.exact = above, below, exact
        self.instead, self.usual = instead, usual
        if instead is not None:
            self.initial = instead

    if TYPE_CHECKING:

        def __set__(self, owner: object, value: T | None) -> None: ...

    def assign(self, owner: Any, value: Any) -> None:
        """Check a value and set the attribute of an optimizer to it."""
        refuse_variable(self.name, value)
        number = self.checked(value)
        single = not self.exact and type(value) in (float, int)
        if single and owner.compat == "tensorflow":
            number = float(np.float32(number))
        owner.__dict__[self.name] = number

    def checked(self, value: Any) -> float:
        """Return a value as a float, or raise if it is not a number within the bounds."""
        if value is None and self.instead is not None:
            return self.instead
        number = floating(self.name, value)
        if number == 0 and self.instead is not None:
            return self.instead
        if not (self.low <= number <= self.high and math.isfinite(number)):
            raise InvalidArgumentError(f"{self.name} must be {self._bounds(number)}, not {number}")
        return number

    def _bounds(self, number: float) -> str:
        if self.above and 0 < number < self.low:
            return "greater than 0 in float32, too: at least 2**-100"
        if self.below and self.high < number < 1:
            return "less than 1 in float32, too: at most 1 - 2**-24"
        low = "greater than 0" if self.above else f"at least {self.low:g}"
        high = "less than 1" if self.below else f"at most {self.high:g}"
        if math.isfinite(self.low) and math.isfinite(self.high):
            between = f"between {self.low:g} and {self.high:g}"
            return f"{low} and {high}" if self.above or self.below else between
        bounds = [text for text in (low, high) if "inf" not in text]
        return " and ".join(["finite", *bounds])


class Hyper(_Bounded[float]):
    """A hyperparameter that is a number."""


class LearningRate(_Bounded[LearningRateLike]):
    """A hyperparameter that may also be a variable, or a function of the step or of no argument.

    The value that a function returns or a variable holds at a step is checked like a number.
    """

    def assign(self, owner: Any, value: Any) -> None:
        """Check a value and set the attribute of an optimizer to it."""
        refuse_class(self.name, value)
        if is_live(value):
            if is_variable(value):
                self.checked(value.numpy())
            owner.__dict__[self.name] = value
        elif isinstance(value, (list, tuple, Iterator)):
            raise InvalidTypeError(
                f"{self.name} must be a number, a schedule, a function or a variable, not "
                f"{type(value).__name__}: variables are passed to step or apply_gradients; "
                "tfopt.interop.torch has optimizers that take the parameters of torch"
            )
        else:
            super().assign(owner, value)

    def in_config(self, owner: Any) -> dict[str, Any]:
        """Return the entry of a configuration: a number, or a serialized schedule."""
        return {self.name: rate_config(owner.__dict__[self.name])}

    def at(self, owner: Any, step: int) -> float:
        """Return the value for a step, counted from 0."""
        value = owner.__dict__[self.name]
        if type(value) is float:
            return value
        if is_variable(value):
            return self.checked(value.numpy())
        value_at_step = value(step) if _takes_a_step(value) else value()
        single = owner.compat == "tensorflow" and type(value_at_step) is float
        return self.checked(np.float32(value_at_step) if single else value_at_step)


def limit(name: str, value: Any) -> float | None:
    """Return None or a number of at least 0; infinity clips nothing."""
    if value is None:
        return None
    refuse_variable(name, value)
    number = floating(name, value)
    if math.isinf(number) and not isinstance(value, (float, np.floating)):
        raise InvalidArgumentError(f"{name} is too large for a float")
    if not number >= 0:
        raise InvalidArgumentError(f"Expected {name} >= 0, received: {number}")
    return number


def is_live(rate: Any) -> bool:
    """Whether a learning rate is evaluated at each step: a function, a schedule or a variable."""
    return callable(rate) or is_variable(rate)


def _takes_a_step(function: Any) -> bool:
    """Whether a function has a parameter without a default."""
    if isinstance(function, LearningRateSchedule):
        return True
    parameters = inspect.signature(function).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(p.kind in positional and p.default is p.empty for p in parameters)


def rate_config(rate: Any) -> Any:
    """Return a learning rate for a configuration: a number, or a serialized schedule."""
    if isinstance(rate, LearningRateSchedule):
        return serialize(rate)
    if is_variable(rate):
        return float(rate.numpy())
    if not callable(rate):
        return rate
    if _takes_a_step(rate):
        raise InvalidTypeError("a configuration cannot hold a function: use a schedule")
    return rate()
