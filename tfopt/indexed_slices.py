"""The gradient of some rows of a variable."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tfopt.core.backends import is_device_array
from tfopt.core.engine import CUT, Op, Tensor, apply, raw
from tfopt.core.nest import flatten, pack
from tfopt.core.tensor_tree import Composite
from tfopt.core.workspace import Workspace
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.kernels.arrays.coerce import of_torch

__all__ = ["IndexedSlices"]

_COMMON = np.dtype(np.float32), np.dtype(np.float64)  # a dtype's name takes long to make
_SUMMED = {"float16", "bfloat16", "float32", "float64", "complex64", "complex128"}


class IndexedSlices(Composite):
    """A sparse gradient: some rows, and their indices in the variable.

    ``values[i]`` is the gradient of row ``indices[i]``; rows with the same index are summed. Rows
    that do not occur have no gradient, which is different from a gradient of zero: most optimizers
    leave such rows and their slots unchanged.

    Parameters
    ----------
    values : array_like, shape (n, ...)
        An array is not copied; it may be on a GPU.
    indices : array_like of int32 or int64, shape (n,)
        An array is not copied.
    dense_shape : sequence of int, optional
        The shape of the variable. Optimizers do not need it.

    See Also
    --------
    tfopt.optimizers.Optimizer.apply_gradients : accepts sparse and dense gradients.

    Notes
    -----
    TensorFlow's class of the same name.

    NumPy functions and operators treat slices with a `dense_shape` as the dense array, or tensor,
    that they represent, and gradients pass through. Only negation and multiplication or division
    by a number return slices.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt import IndexedSlices
    >>> IndexedSlices(np.ones((2, 3)), [4, 1], dense_shape=(5, 3))
    IndexedSlices(values of shape (2, 3) and dtype float64, 2 indices, dense_shape (5, 3))
    """

    __slots__ = ("dense_shape", "indices", "values")

    def __init__(self, values: Any, indices: Any, dense_shape: Any = None) -> None:
        self.values: Any = _as_array(values)
        self.indices: Any = _as_array(indices)
        self.dense_shape = None if dense_shape is None else tuple(dense_shape)

    def __reduce__(self) -> Any:
        return IndexedSlices, (self.values, self.indices, self.dense_shape)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if ufunc is np.multiply and inputs[1] is self and np.ndim(inputs[0]) == 0:
            return self * inputs[0]  # a NumPy scalar times slices
        return getattr(ufunc, method)(*map(densify, inputs), **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        dense = pack((args, kwargs), list(map(densify, flatten((args, kwargs)))))
        return function(*dense[0], **dense[1])

    @property
    def _parts(self) -> tuple[Any, Any]:
        return self.values, self.indices

    def _with_parts(self, values: Any, indices: Any) -> IndexedSlices:
        return IndexedSlices(values, indices, self.dense_shape)

    @property
    def _memory(self) -> Any:
        """The array that a step of these rows reads."""
        return self.values

    def _concrete(self) -> IndexedSlices:
        """Return the same with arrays in the place of tensors."""
        if not isinstance(self.values, Tensor):
            return self
        return IndexedSlices(raw(self.values), raw(self.indices), self.dense_shape)

    def _shared_rows(self) -> tuple[Any, Any, Any] | None:
        """Return rows, the one of each index, and indices whose sums by index these are.

        None if the gradient is not of that kind, or has been summed.
        """
        return None

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of the variable, if it is known."""
        return self.dense_shape

    @property
    def dtype(self) -> Any:
        """The dtype of the values."""
        return self.values.dtype

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
            raise ValueError("IndexedSlices cannot become a dense array without a copy")
        dense = np.zeros(self.dense_shape, self.dtype if dtype is None else dtype)
        # NumPy checks indices and then reads them again: another thread must not write to them
        np.add.at(dense, np.array(self.indices), np.asarray(self.values))
        return dense

    def sum_duplicates(self) -> IndexedSlices:
        """Return slices in which each index occurs once.

        Indices are in the order of their first occurrence; the rows of an index are added to zero
        in their order. 16-bit values are summed in float32 and rounded once.

        Raises
        ------
        InvalidTypeError
            If the values are not floating or complex of at most double precision, or the indices
            are not int32 or int64.
        InvalidArgumentError
            If the indices are not one-dimensional, or their number is not that of the values' rows.

        Examples
        --------
        >>> slices = IndexedSlices([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [7, 2, 7])
        >>> merged = slices.sum_duplicates()
        >>> merged.indices, merged.values
        (array([7, 2]), array([[6., 8.],
               [3., 4.]]))
        """
        if isinstance(self.values, Tensor):
            concrete = IndexedSlices(np.asarray(self.values), self.indices, self.dense_shape)
            return concrete.sum_duplicates()
        if is_device_array(self.values) or is_device_array(self.indices):
            raise InvalidTypeError(
                "cannot sum rows on a GPU; pass them to an update, which sums them, or copy "
                "them to the host"
            )
        dtype = self.values.dtype
        if dtype not in _COMMON and dtype.name not in _SUMMED:
            raise InvalidTypeError(
                f"values must be floats or complex of at most double precision, not {dtype}"
            )
        if self.indices.dtype not in (np.int32, np.int64):
            raise InvalidTypeError(f"indices must be int32 or int64, not {self.indices.dtype}")
        if self.indices.ndim != 1:
            raise InvalidArgumentError(
                f"indices must be one-dimensional: {list(self.indices.shape)}"
            )
        n = self.indices.size
        if self.values.shape[:1] != (n,):
            raise InvalidArgumentError(
                f"values must be the same size as indices in the first dimension: "
                f"{list(self.values.shape)} {n}"
            )
        return IndexedSlices(*Workspace().summed(self.values, self.indices), self.dense_shape)

    def __repr__(self) -> str:
        shape = "" if self.dense_shape is None else f", dense_shape {self.dense_shape}"
        return (
            f"IndexedSlices(values of shape {tuple(self.values.shape)} and dtype "
            f"{self.values.dtype}, {math.prod(self.indices.shape)} indices{shape})"
        )


def densify_rows(values: Any, indices: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return the dense array that `IndexedSlices` represent."""
    dense = np.zeros(shape, values.dtype)
    if values.dtype.kind in "fc" and indices.dtype in (np.int32, np.int64):
        merged = IndexedSlices(values, indices).sum_duplicates()
        dense[merged.indices] = merged.values
    else:
        np.add.at(dense, np.array(indices), values)
    return dense


_DENSIFY = Op("IndexedSlicesToDense", densify_rows)
_DENSIFY.define((lambda g, y, values, indices, shape: g[indices], "b"), CUT)


def densify(slices: Any) -> Any:
    """Return the dense array or tensor that slices represent; return other values unchanged.

    Raises
    ------
    ValueError
        If the slices have no `dense_shape`.
    """
    if not isinstance(slices, IndexedSlices):
        return slices
    shape = slices.dense_shape
    if shape is None:
        raise ValueError(
            "Tensor conversion requested for IndexedSlices for argument `value` without "
            f"dense_shape: {slices!r}"
        )
    parts = slices.values, slices.indices
    if any(isinstance(part, Tensor) for part in parts):
        return apply(_DENSIFY, parts, {"shape": shape})
    return densify_rows(*parts, shape)


def _as_array(value: Any) -> Any:
    """Convert to an array, except device arrays and tensors, which would lose their gradient."""
    if isinstance(value, Tensor) or is_device_array(value):
        return value
    array = of_torch(value, "a part of IndexedSlices")
    return np.asanyarray(value) if array is None else array
