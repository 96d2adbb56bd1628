"""The gradient of some rows of a variable."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt_ref.arithmetic import operand
from tfopt_ref.errors import InvalidArgumentError, InvalidTypeError

__all__ = ["IndexedSlices"]


class IndexedSlices:
    """Gradient rows `values[i]` and the rows `indices[i]` of the variable they belong to."""

    def __init__(self, values: Any, indices: Any, dense_shape: Any = None) -> None:
        self.values = np.asanyarray(values)
        self.indices = np.asanyarray(indices)
        self.dense_shape = None if dense_shape is None else tuple(dense_shape)

    def sum_duplicates(self) -> IndexedSlices:
        """Return slices in which each index occurs once, at the place of its first occurrence."""
        dtype = self.values.dtype
        if dtype.kind not in "fc" and dtype.name != "bfloat16":
            raise InvalidTypeError(f"values must be floats or complex, not {dtype}")
        if self.indices.dtype not in (np.int32, np.int64):
            raise InvalidTypeError(f"indices must be int32 or int64, not {self.indices.dtype}")
        if self.indices.ndim != 1:
            raise InvalidArgumentError(
                f"indices must be one-dimensional: {list(self.indices.shape)}"
            )
        if self.values.shape[:1] != self.indices.shape:
            raise InvalidArgumentError(
                f"values must be the same size as indices in the first dimension: "
                f"{list(self.values.shape)} {len(self.indices)}"
            )
        computed = np.float32 if dtype.itemsize == 2 else dtype  # and rounded once at the end
        sums: dict[int, np.ndarray] = {}
        values = np.empty((len(set(self.indices.tolist())), *self.values.shape[1:]), dtype)
        with np.errstate(all="ignore"):
            for index, row in zip(self.indices.tolist(), self.values, strict=True):
                so_far = sums.get(index, operand(np.zeros_like(row), computed))
                sums[index] = so_far + operand(row, computed)
            for place, total in enumerate(sums.values()):
                values[place] = total
        return IndexedSlices(values, np.array(list(sums), self.indices.dtype), self.dense_shape)

    def __repr__(self) -> str:
        shape = "" if self.dense_shape is None else f", dense_shape {self.dense_shape}"
        return (
            f"IndexedSlices(values of shape {self.values.shape} and dtype {self.values.dtype}, "
            f"{self.indices.size} indices{shape})"
        )
