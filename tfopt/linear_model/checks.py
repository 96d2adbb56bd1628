"""Checks of options and weights."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
from sklearn.utils.validation import _check_sample_weight

__all__ = ["check_count", "check_number", "check_weights"]


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


def check_weights(sample_weight: Any, X: Any) -> np.ndarray:
    """Return the samples' weights, none of them negative, as an array of their own."""
    weights = np.array(_check_sample_weight(sample_weight, X, dtype=np.float64))
    if (weights < 0).any():
        raise ValueError("Negative values in data passed to `sample_weight`")
    return weights
