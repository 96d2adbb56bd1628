"""Hyperparameters: numbers that are checked whenever they are set."""

from __future__ import annotations

import math
from typing import Any

from tfopt.errors import InvalidArgumentError, InvalidTypeError

__all__ = ["Hyper"]


class Hyper:
    """An attribute that holds a finite float within bounds.

    Kept in float64 and rounded to a variable's dtype when its update is computed.
    """

    def __init__(self, low: float = -math.inf, high: float = math.inf, above: bool = False):
        self.low, self.high, self.above = low, high, above

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, optimizer: Any, owner: type | None = None) -> float:
        number: float = optimizer.__dict__[self.name]
        return number

    def __set__(self, optimizer: Any, value: Any) -> None:
        if isinstance(value, (str, bytes, bool)) or getattr(value, "shape", ()) != ():
            raise InvalidTypeError(f"{self.name} must be a number, not {value!r}")
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise InvalidTypeError(f"{self.name} must be a number, not {value!r}") from None
        low = number > self.low if self.above else number >= self.low
        if not (low and number <= self.high and math.isfinite(number)):
            raise InvalidArgumentError(f"{self.name} must be {self._bounds()}, not {number}")
        optimizer.__dict__[self.name] = number

    def _bounds(self) -> str:
        if math.isfinite(self.low) and math.isfinite(self.high):
            return f"between {self.low:g} and {self.high:g}"
        if math.isfinite(self.low):
            return f"finite and {'greater than' if self.above else 'at least'} {self.low:g}"
        if math.isfinite(self.high):
            return f"finite and at most {self.high:g}"
        return "finite"
