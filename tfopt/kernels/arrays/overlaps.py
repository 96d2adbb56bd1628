"""Find the overlapping pairs among ranges of addresses, by a sweep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["overlapping", "span_of"]


def span_of(array: NDArray[Any]) -> tuple[int, int]:
    """Return where an array's range of addresses begins and ends; both are 0 if it is empty."""
    return np.lib.array_utils.byte_bounds(array) if array.size else (0, 0)


def overlapping(spans: Iterable[tuple[int, int, bool]]) -> Iterator[tuple[int, int]]:
    """Yield the positions of each two spans that overlap, unless both are only read.

    The one that begins first comes first. `kernels.arrays.aliasing` says of thousands of spans in
    less time that none overlap.

    Parameters
    ----------
    spans : iterable of (int, int, bool)
        Where each begins and ends, and whether it is written to.
    """
    opened: tuple[list[tuple[int, int]], ...] = [], []  # the ends of those read, those written
    reach = 0
    for low, high, k, written in sorted(
        (low, high, k, written) for k, (low, high, written) in enumerate(spans) if low < high
    ):
        if low >= reach:
            opened = [], []
        else:
            opened = tuple([span for span in each if span[0] > low] for each in opened)
            for each in opened if written else opened[1:]:
                yield from ((j, k) for _, j in each)
        opened[written].append((high, k))
        reach = max(reach, high)
