"""Norms, computed in float64 in the same order on every machine."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt_ref.arithmetic import computed, operand

LANES = 256
SPAN = 65536


def sum_in_lanes(x: np.ndarray) -> np.float64:
    """Return the sum of x: element i is added to lane i mod 256; lanes are then added by halves."""
    rows = np.zeros((-(-x.size // LANES), LANES))
    rows.flat[: x.size] = x
    lanes = np.zeros(LANES)
    for row in rows:
        lanes = lanes + row
    while lanes.size > 1:
        half = lanes.size // 2
        lanes = lanes[:half] + lanes[half:]
    return np.float64(lanes[0])


def sum_in_spans(arrays: list[np.ndarray]) -> np.float64:
    """Return the sum of all elements: the sum over spans of at most 65 536 elements."""
    spans = [x[i : i + SPAN] for x in arrays for i in range(0, x.size, SPAN)]
    return sum_in_lanes(np.array([sum_in_lanes(span) for span in spans]))


def widened(array: np.ndarray) -> np.ndarray:
    """Return the elements in C order in float64, with denormals of the computed dtype flushed."""
    wide: np.ndarray = operand(array, computed(array.dtype)).ravel().astype(np.float64)
    return wide


def squares(x: np.ndarray) -> np.ndarray:
    """Return the squares of numbers."""
    return np.asarray(x * x)


def sum_of_squares(array: np.ndarray) -> np.float64:
    """Return the sum of an array's squares."""
    with np.errstate(all="ignore"):
        return sum_in_spans([squares(widened(array))])


def norm(arrays: list[np.ndarray]) -> tuple[np.float64, int]:
    """Return root and exponent: the norm of all elements is root * 2**exponent.

    The exponent is 0, unless squares of float64 overflow or underflow: then the elements are scaled
    so that the largest is about 1.
    """
    with np.errstate(all="ignore"):
        wide = [widened(array) for array in arrays]
        total = sum_in_spans([squares(x) for x in wide])
        may_miss = any(array.dtype == np.float64 for array in arrays)
        if not may_miss or np.isnan(total) or 2.0**-900 <= total < np.inf:
            return np.sqrt(total), 0
        peak = max((np.asarray(abs(x)).max() for x in wide if x.size), default=0.0)
        if peak == 0 or peak == np.inf:
            return np.float64(peak), 0
        exponent = int(np.clip(np.frexp(peak)[1], -1021, 1021))
        scaled = [squares(x * operand(2.0**-exponent, np.float64)) for x in wide]
        return np.sqrt(sum_in_spans(scaled)), exponent


def factors(root: Any, exponent: Any, limit: Any, dtype: Any) -> tuple[Any, Any]:
    """Return two factors: multiplied by both, norms of root * 2**exponent keep the limits.

    The second is 1, unless the whole factor is too small to be a normal number of the dtype.
    """
    smallest = -126 if dtype == np.float32 else -1022
    with np.errstate(all="ignore"):
        mantissa, power = np.frexp(root)
        finite = np.isfinite(root)
        quotient = limit / np.where(finite, mantissa, root)
        power = np.where(finite, power, 0) + exponent
        factor = np.ldexp(quotient, -power)
        twice = (factor < 2.0**smallest) & (quotient > 0)
        factor = np.where(twice, np.ldexp(quotient, -power - smallest), factor)
        keep = (limit == np.inf) | (root <= np.ldexp(limit, np.negative(exponent)))
        first = np.where(keep, 1, factor).astype(dtype)
        second = np.where(twice & ~keep, 2.0**smallest, 1).astype(dtype)
        rounded_up = first == 1  # the second is then the whole factor
        return np.where(rounded_up, second, first), np.where(rounded_up, first, second)
