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
        if self.values.dtype not in (np.float32, np.float64):
            raise InvalidTypeError(f"values must be float32 or float64, not {self.values.dtype}")
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
        sums: dict[int, np.ndarray] = {}
        for index, row in zip(self.indices.tolist(), self.values, strict=True):
            row = operand(row, row.dtype)
            with np.errstate(all="ignore"):
                sums[index] = sums.get(index, operand(np.zeros_like(row), row.dtype)) + row
        values = np.empty((len(sums), *self.values.shape[1:]), self.values.dtype)
        for place, total in enumerate(sums.values()):
            values[place] = total
        return IndexedSlices(values, np.array(list(sums), self.indices.dtype), self.dense_shape)

    def __repr__(self) -> str:
        shape = "" if self.dense_shape is None else f", dense_shape {self.dense_shape}"
        return (
            f"IndexedSlices(values of shape {self.values.shape} and dtype {self.values.dtype}, "
            f"{self.indices.size} indices{shape})"
        )
