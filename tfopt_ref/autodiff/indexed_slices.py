"""The gradient of some rows of a variable."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt_ref.arithmetic import operand
from tfopt_ref.autodiff.nest import map_leaves
from tfopt_ref.autodiff.tensor import TABLE, Tensor
from tfopt_ref.errors import InvalidArgumentError, InvalidTypeError

__all__ = ["IndexedSlices", "densified"]

_SUMMED = {"float16", "bfloat16", "float32", "float64", "complex64", "complex128"}


class IndexedSlices:
    """Gradient rows `values[i]` and the rows `indices[i]` of the variable they belong to.

    Both may be Tensors, as in the gradients of a tape. As an array it is dense: the rows of one
    index are added.
    """

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if ufunc is np.multiply and inputs[1] is self and np.ndim(inputs[0]) == 0:
            return self * inputs[0]  # a number of NumPy's times rows
        return getattr(ufunc, method)(*map(densified, inputs), **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        given, named = map_leaves(densified, (list(args), kwargs))
        return function(*given, **named)

    def __init__(self, values: Any, indices: Any, dense_shape: Any = None) -> None:
        self.values: Any = values if isinstance(values, Tensor) else np.asanyarray(values)
        self.indices: Any = indices if isinstance(indices, Tensor) else np.asanyarray(indices)
        self.dense_shape = None if dense_shape is None else tuple(dense_shape)

    shape = property(lambda self: self.dense_shape)
    dtype = property(lambda self: self.values.dtype)

    def __neg__(self) -> IndexedSlices:
        return IndexedSlices(-self.values, self.indices, self.dense_shape)

    def __mul__(self, factor: Any) -> IndexedSlices:
        if np.ndim(factor):
            return NotImplemented
        return IndexedSlices(self.values * factor, self.indices, self.dense_shape)

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> IndexedSlices:
        if np.ndim(divisor):
            return NotImplemented
        return IndexedSlices(self.values / divisor, self.indices, self.dense_shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self.dense_shape is None:
            raise ValueError(
                "Tensor conversion requested for IndexedSlices for argument `value` without "
                f"dense_shape: {self!r}"
            )
        if copy is False:
            raise ValueError("a dense array of IndexedSlices is a copy")
        dense = np.zeros(self.dense_shape, self.values.dtype if dtype is None else dtype)
        np.add.at(dense, np.asarray(self.indices), np.asarray(self.values))
        return dense

    def sum_duplicates(self) -> IndexedSlices:
        """Return slices in which each index occurs once, at the place of its first occurrence."""
        given, indices = np.asarray(self.values), np.asarray(self.indices)
        dtype = given.dtype
        if dtype.name not in _SUMMED:
            raise InvalidTypeError(
                f"values must be floats or complex of at most double precision, not {dtype}"
            )
        if indices.dtype not in (np.int32, np.int64):
            raise InvalidTypeError(f"indices must be int32 or int64, not {indices.dtype}")
        if indices.ndim != 1:
            raise InvalidArgumentError(f"indices must be one-dimensional: {list(indices.shape)}")
        if given.shape[:1] != indices.shape:
            raise InvalidArgumentError(
                f"values must be the same size as indices in the first dimension: "
                f"{list(given.shape)} {len(indices)}"
            )
        computed = np.float32 if dtype.itemsize == 2 else dtype  # and rounded once at the end
        sums: dict[int, np.ndarray] = {}
        values = np.empty((len(set(indices.tolist())), *given.shape[1:]), dtype)
        with np.errstate(all="ignore"):
            for index, row in zip(indices.tolist(), given, strict=True):
                so_far = sums.get(index, operand(np.zeros_like(row), computed))
                sums[index] = so_far + operand(row, computed)
            for place, total in enumerate(sums.values()):
                values[place] = total
        return IndexedSlices(values, np.array(list(sums), indices.dtype), self.dense_shape)

    def __repr__(self) -> str:
        shape = "" if self.dense_shape is None else f", dense_shape {self.dense_shape}"
        return (
            f"IndexedSlices(values of shape {self.values.shape} and dtype {self.values.dtype}, "
            f"{self.indices.size} indices{shape})"
        )


def densified(value: Any) -> Any:
    """Return what slices stand for, a tensor with a gradient; anything else as it is."""
    if not isinstance(value, IndexedSlices):
        return value
    if value.dense_shape is None:
        raise ValueError(
            "Tensor conversion requested for IndexedSlices for argument `value` without "
            f"dense_shape: {value!r}"
        )
    return TABLE["densify"](value.values, value.indices, value.dense_shape)
