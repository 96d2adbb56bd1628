"""The memory of bags and their gradients, which that of the next batch reuses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tfopt.core.workspace import Workspace

__all__ = ["copied", "empty"]

_MEMORY = Workspace()
#: The bytes of an array whose memory is kept.
_MOST = 1 << 26


def empty(name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return an array, in the memory of the last one of the name if nothing uses that any more.

    New memory is that of the system, which takes longer to give it than sums take.
    """
    small = math.prod(shape) * np.dtype(dtype).itemsize <= _MOST
    return _MEMORY.array(name, shape, dtype) if small else np.empty(shape, dtype)


def copied(name: str, array: np.ndarray, dtype: Any) -> np.ndarray:
    """Return a contiguous copy of an array in such memory."""
    copy = empty(name, array.shape, dtype)
    copy[...] = array
    return copy
