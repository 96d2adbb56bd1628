"""Sums over the elements of rows, for rules in which the step of an element depends on others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tfopt_ref.arithmetic import operand, wide
from tfopt_ref.norms import sum_in_spans


def mean_square(x: np.ndarray) -> Any:
    """Return the mean square of each row in double precision, summed as norms are."""
    n = math.prod(x.shape[1:])
    squares = np.asarray(wide(x) * wide(x)).reshape(-1, n)
    sums = [sum_in_spans([row]) for row in squares]
    return operand(sums, np.float64).reshape(x.shape[:1]) / np.float64(n)


def square_sum(x: np.ndarray) -> Any:
    """Return the sum of the squares of all elements in double precision, summed as norms are."""
    squares = np.asarray(wide(x) * wide(x))
    return operand(sum_in_spans([squares.reshape(-1)]), np.float64)


def of_its_row(numbers: Any, like: np.ndarray) -> Any:
    """Return one number for each row in a shape that broadcasts to the elements of `like`."""
    return numbers.reshape((*like.shape[:1], *(1 for _ in like.shape[1:])))
