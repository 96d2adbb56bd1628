"""First values of tables that are made in parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tfopt.errors import InvalidArgumentError

__all__ = ["Initializer", "UniformRows", "first_rows"]

Initializer: TypeAlias = float | Callable[[int, int, int], Any]

_BLOCK = 1024  # rows that have a generator of their own
_MOST = 1 << 16  # rows that are asked for at once


@dataclass(frozen=True)
class UniformRows:
    """Random rows that depend on their numbers and a seed, not on the parts they are made in.

    Parameters
    ----------
    low, high : float
        The bounds of the values.
    seed : int, default 0
        At least 0, and below 2**64.

    Raises
    ------
    InvalidArgumentError
        If the seed is not.

    Notes
    -----
    Each block of 1024 rows has a Philox generator, whose key is the seed and the block's number.

    Examples
    --------
    >>> from tfopt.dask import UniformRows
    >>> rows = UniformRows(seed=7)
    >>> bool((rows(0, 2000, 3)[1500:] == rows(1500, 2000, 3)).all())
    True
    """

    low: float = -0.05
    high: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 1 << 64:
            raise InvalidArgumentError(f"seed must be at least 0 and below 2**64, not {self.seed}")

    def __call__(self, start: int, stop: int, width: int) -> np.ndarray:
        """Return rows from `start` to before `stop`, float64."""
        first = start // _BLOCK
        blocks = [self._block(number, width) for number in range(first, -(-stop // _BLOCK))]
        together = np.concatenate(blocks) if blocks else np.empty((0, width))
        return together[start - first * _BLOCK : stop - first * _BLOCK]

    def _block(self, number: int, width: int) -> np.ndarray:
        key = np.array([self.seed, number], np.uint64)
        generator = np.random.Generator(np.random.Philox(key=key))
        return generator.uniform(self.low, self.high, (_BLOCK, width))


def first_rows(
    initializer: Initializer, start: int, stop: int, width: int, dtype: np.dtype[Any]
) -> np.ndarray:
    """Return the first values of a part.

    Raises
    ------
    InvalidArgumentError
        If a function returns another shape than that of the rows it is asked for.
    """
    if not callable(initializer):
        return np.full((stop - start, width), initializer, dtype)
    rows = np.empty((stop - start, width), dtype)
    for low in range(start, stop, _MOST):
        high = min(low + _MOST, stop)
        made = np.asarray(initializer(low, high, width))
        if made.shape != (high - low, width):
            raise InvalidArgumentError(
                f"the initializer returned shape {list(made.shape)} for rows {low} to {high} of "
                f"width {width}"
            )
        rows[low - start : high - start] = made
    return rows
