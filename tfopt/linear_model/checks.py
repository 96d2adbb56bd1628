"""Checks of options."""

from __future__ import annotations

import math
import numbers
from typing import Any

__all__ = ["check_count", "check_number"]


def check_number(name: str, value: Any, low: float, *, open_end: bool = False) -> float:
    """Return a finite number that is at least `low`, or above it."""
    good = isinstance(value, numbers.Real) and math.isfinite(value)
    if not good or value < low or (open_end and value == low):
        wanted = f"above {low:g}" if open_end else f"at least {low:g}"
        raise ValueError(f"{name} must be a finite number {wanted}, not {value!r}")
    return float(value)


def check_count(name: str, value: Any, low: int) -> int:
    """Return an integer that is at least `low`."""
    if not isinstance(value, numbers.Integral) or value < low:
        raise ValueError(f"{name} must be an integer of at least {low}, not {value!r}")
    return int(value)
