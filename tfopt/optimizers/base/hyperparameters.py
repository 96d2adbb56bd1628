"""Hyperparameters: numbers that are checked whenever they are set."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np

from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.optimizers.schedules import LearningRateSchedule, serialize
from tfopt.optimizers.schedules.schedule import is_variable, refuse_variable

__all__ = ["Hyper", "LearningRate", "is_live", "rate_config"]


class Hyper:
    """An attribute that holds a finite float within bounds.

    Kept in float64 and rounded to a variable's dtype when its update is computed. An optimizer
    with ``compat="tensorflow"`` rounds what is given as a Python number to float32, unless the
    attribute is exact in TensorFlow, too.
    """

    def __init__(
        self,
        low: float = -math.inf,
        high: float = math.inf,
        above: bool = False,
        exact: bool = False,
    ):
        self.low, self.high, self.above, self.exact = low, high, above, exact

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, optimizer: Any, owner: type | None = None) -> Any:
        return self if optimizer is None else optimizer.__dict__[self.name]

    def __set__(self, optimizer: Any, value: Any) -> None:
        refuse_variable(self.name, value)
        number = self.checked(value)
        single = not self.exact and type(value) in (float, int)
        if single and optimizer.compat == "tensorflow":
            number = float(np.float32(number))
        optimizer.__dict__[self.name] = number

    def checked(self, value: Any) -> float:
        """Return a value as a float, if it is one that fits."""
        if isinstance(value, (str, bytes, bool)) or getattr(value, "shape", ()) != ():
            raise InvalidTypeError(f"{self.name} must be a number, not {value!r}")
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise InvalidTypeError(f"{self.name} must be a number, not {value!r}") from None
        except OverflowError:
            number = math.inf
        low = number > self.low if self.above else number >= self.low
        if not (low and number <= self.high and math.isfinite(number)):
            raise InvalidArgumentError(f"{self.name} must be {self._bounds()}, not {number}")
        return number

    def _bounds(self) -> str:
        if math.isfinite(self.low) and math.isfinite(self.high):
            return f"between {self.low:g} and {self.high:g}"
        if math.isfinite(self.low):
            return f"finite and {'greater than' if self.above else 'at least'} {self.low:g}"
        if math.isfinite(self.high):
            return f"finite and at most {self.high:g}"
        return "finite"


class LearningRate(Hyper):
    """A hyperparameter that may be a function instead, of the step or of nothing, or a variable.

    What a function returns or a variable holds at a step must be what the number would have to be.
    """

    def __set__(self, optimizer: Any, value: Any) -> None:
        if is_live(value):
            if is_variable(value):
                self.checked(value.numpy())
            optimizer.__dict__[self.name] = value
        else:
            super().__set__(optimizer, value)

    def at(self, optimizer: Any, step: int) -> float:
        """Return the number for a step, the first of which is 0."""
        value = optimizer.__dict__[self.name]
        if type(value) is float:
            return value
        if is_variable(value):
            return self.checked(value.numpy())
        made = value(step) if _takes_a_step(value) else value()
        single = optimizer.compat == "tensorflow" and type(made) is float
        return self.checked(np.float32(made) if single else made)


def is_live(rate: Any) -> bool:
    """Whether a learning rate is read at each step: a function, a schedule or a variable."""
    return callable(rate) or is_variable(rate)


def _takes_a_step(function: Any) -> bool:
    """Whether a function has a parameter without a default."""
    if isinstance(function, LearningRateSchedule):
        return True
    parameters = inspect.signature(function).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(p.kind in positional and p.default is p.empty for p in parameters)


def rate_config(rate: Any) -> Any:
    """Return a learning rate as a configuration holds it: a number, or a schedule's own."""
    if isinstance(rate, LearningRateSchedule):
        return serialize(rate)
    if is_variable(rate):
        return float(rate.numpy())
    if not callable(rate):
        return rate
    if _takes_a_step(rate):
        raise InvalidTypeError("a configuration cannot hold a function: use a schedule")
    return rate()
