"""Memory that is reused from step to step."""

from __future__ import annotations

import math
from typing import Any
from weakref import ref

import numpy as np

from tfopt.kernels.update import dedup

__all__ = ["Workspace"]


class Workspace:
    """Named arrays whose memory is reused, so that repeated steps do not allocate.

    Memory is reused once no array in it is left, so threads can share a workspace: one that asks
    for memory that another is using gets new memory.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[str, tuple[np.ndarray, ref[np.ndarray]]] = {}

    def __reduce__(self) -> tuple[type[Workspace], tuple[()]]:
        return Workspace, ()  # a copy has memory of its own

    def array(self, name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Return an uninitialized array."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        memory, user = self._kept.pop(name, (None, None))  # by one thread alone
        if memory is None or user is None or memory.size < size or user() is not None:
            memory = np.empty(size + size // 8, np.uint8)  # the next may be larger
        # all views refer to this array, not to the memory, since its base is no array
        array = np.frombuffer(memory.data, dtype, math.prod(shape))
        self._kept[name] = memory, ref(array)
        return array.reshape(shape)

    def summed(
        self,
        values: np.ndarray,
        indices: np.ndarray,
        bound: float = math.inf,
        scale: float = 1.0,
        ascending: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the sums of rows with the same index, and their distinct indices, in this memory.

        Rows are clamped to a bound and multiplied by `scale` before. 16-bit numbers are summed in
        float32 and rounded once. The indices ascend if `ascending` is true; else they are in the
        order of their first occurrence.
        """
        distinct, place = dedup.distinct_indices(np.ascontiguousarray(indices), self)
        if ascending:
            dedup.put_in_order(distinct, place, self)
        dtype = values.dtype
        computed = np.dtype(np.float32) if dtype.itemsize == 2 else dtype.newbyteorder("=")
        sums = self.array("sums", (distinct.size, *values.shape[1:]), computed)
        if sums.size:
            rows = np.ascontiguousarray(values, computed).reshape(indices.size, -1)
            dedup.add_rows(rows, place, sums.reshape(distinct.size, -1), bound, scale)
        if computed != dtype:
            with np.errstate(over="ignore"):  # rounding to infinity gives no warning
                sums = sums.astype(dtype)
        return sums, distinct
