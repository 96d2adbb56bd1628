"""The gradient of some rows of a variable."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from tfopt_ref.autodiff.nest import map_leaves
from tfopt_ref.autodiff.tensor import TABLE, Tensor


class IndexedSlices(NDArrayOperatorsMixin):
    """Gradient rows `values[i]`, which belong to the rows `indices[i]` of the variable.

    Both may be Tensors, as in the gradients of a tape. Operations use the dense form, in which rows
    with the same index are added.
    """

    def __init__(self, values: Any, indices: Any, dense_shape: Any = None) -> None:
        self.values: Any = values if isinstance(values, Tensor) else np.asarray(values)
        self.indices: Any = indices if isinstance(indices, Tensor) else np.asarray(indices)
        self.dense_shape = dense_shape

    shape = property(lambda self: self.dense_shape)
    dtype = property(lambda self: self.values.dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return getattr(ufunc, method)(*map(densified, inputs), **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        given, named = map_leaves(densified, (list(args), kwargs))
        return function(*given, **named)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(densified(self), dtype)


def densified(value: Any) -> Any:
    """Return the dense form of slices, a tensor with a gradient, or anything else unchanged."""
    if not isinstance(value, IndexedSlices):
        return value
    return TABLE["densify"](value.values, value.indices, value.dense_shape)
