"""The base of all schedules: steps, checked arguments, configurations."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Self

from tfopt.errors import InvalidArgumentError
from tfopt.names import unknown_argument
from tfopt.optimizers.arguments import call_of, parameters_of
from tfopt.optimizers.settings import (
    HasSettings,
    Setting,
    constant,
    elements,
    finite,
    not_negative,
    positive,
)

__all__ = [
    "SCHEDULES",
    "Described",
    "Formula",
    "LearningRateSchedule",
    "Number",
    "increasing",
    "power",
]


def increasing(values: Iterable[Any]) -> list[float]:
    """Check that boundaries increase, and return them."""
    boundaries = [
        constant("each boundary", each) for each in elements("boundaries", values, "numbers")
    ]
    if any(low >= high for low, high in pairwise(boundaries)):
        raise InvalidArgumentError(f"boundaries must increase, not {boundaries}")
    return boundaries


def power(base: float, exponent: float) -> float:
    """Return a power of a non-negative number; infinity if it overflows."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return math.inf


class Number(Setting[float]):
    """A finite number, at least 0 or, if `above`, greater than 0."""

    def __init__(self, above: bool = False) -> None:
        super().__init__(positive if above else not_negative)


#: This package's schedules by name, as `deserialize` finds them.
SCHEDULES: dict[str, type[LearningRateSchedule]] = {}


class LearningRateSchedule(HasSettings):
    """Base class of schedules.

    Subclasses define `__call__`, and `get_config` if they are to be serialized.

    Examples
    --------
    >>> from tfopt.optimizers.schedules import LearningRateSchedule
    >>> class Harmonic(LearningRateSchedule):
    ...     def __call__(self, step):
    ...         return 1 / (1 + int(step))
    >>> Harmonic()(3)
    0.25
    """

    def __init_subclass__(cls, abstract: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith(f"{__package__}.") and not abstract:
            SCHEDULES[cls.__name__] = cls

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Refuse unknown arguments before a schedule is made."""
        if kwargs and cls.__init__ is not object.__init__:
            taken = inspect.signature(cls.__init__).parameters.values()
            if all(each.kind is not each.VAR_KEYWORD for each in taken):
                names = [each.name for each in taken][1:]
                for name in kwargs.keys() - names:
                    raise unknown_argument(cls, name, names)
        return super().__new__(cls)

    def __call__(self, step: Any) -> float:
        """Return the learning rate of a step; the first step is number 0."""
        raise NotImplementedError("Learning rate schedule must override __call__")

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make a schedule like this one."""
        raise NotImplementedError("Learning rate schedule must override get_config")

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> LearningRateSchedule:
        """Return a schedule with the arguments that `get_config` returned."""
        return cls(**config)


class Described(LearningRateSchedule, abstract=True):
    """A schedule each of whose constructor arguments is also an attribute."""

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make a schedule like this one."""
        values = {name: getattr(self, name) for name in parameters_of(type(self))}
        return {name: [*v] if isinstance(v, list) else v for name, v in values.items()}

    def __repr__(self) -> str:
        return call_of(self, {})


class Formula(Described, abstract=True):
    """A schedule that is an expression of the step.

    It is computed in Python floats, which raise where IEEE 754 has infinity or NaN.
    """

    def __call__(self, step: Any) -> float:
        """Return the learning rate of a step; the first step is number 0.

        Raises
        ------
        InvalidArgumentError
            If the step is not a finite number, or the learning rate at this step is not finite.
        """
        s = float(finite("step", step))
        try:
            rate = float(self._rate(s))
        except (ArithmeticError, ValueError):
            rate = math.nan
        if not math.isfinite(rate):
            raise InvalidArgumentError(f"{self} has no finite learning rate at step {s}")
        return rate

    def _rate(self, s: float) -> float:
        raise NotImplementedError(f"{type(self).__name__} does not define its formula")
