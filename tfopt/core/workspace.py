"""Memory that lasts from step to step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["Workspace"]


class Workspace:
    """Arrays by name, whose memory is used again when they are asked for again.

    So a step that sums gradient rows allocates nothing that the step before has had. An array is
    valid until the next one of its name.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[str, np.ndarray] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Return an array, not cleared."""
        size = math.prod(shape)
        kept = self._kept.get(name)
        if kept is None or kept.size < size or kept.dtype != dtype:
            kept = self._kept[name] = np.empty(size + size // 8, dtype)  # the next may be larger
        return kept[:size].reshape(shape)
