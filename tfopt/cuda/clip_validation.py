"""Validation of the arguments of clipping on a GPU, before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tfopt.clip_ops.validation import (
    FLOATS,
    Array,
    as_bound,
    as_limits,
    as_list,
    check_dtype,
    check_fits,
    check_one_dtype,
    check_results,
    of_rows,
    refuse_dtype,
)
from tfopt.core.backends import is_device_array
from tfopt.cuda.device_array import DeviceArray, as_device_array, numpy_dtype
from tfopt.cuda.memory import new_like
from tfopt.cuda.validation import check_layout
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.kernels.arrays.overlaps import overlapping
from tfopt.variable import Variable

__all__ = [
    "Tensor",
    "as_device_bound",
    "as_device_limit",
    "as_tensor",
    "as_tensors",
    "check_separate",
    "results_for",
    "scalar_for",
]


class Tensor(NamedTuple):
    """An array on a GPU, and the object that was passed."""

    given: Any
    array: DeviceArray


# ---- tensors


def as_tensor(value: Any, name: str, dtypes: tuple[str, ...]) -> Tensor:
    """Return an argument as an array on a GPU, unwrapping IndexedSlices and Variables."""
    value = of_rows(value)
    if isinstance(value, Variable):
        value = value.value()
    array = as_device_array(value, name, "the first tensor")
    check_dtype(array.dtype, dtypes)
    check_layout(array, name, False)
    return Tensor(value, array)


def as_tensors(t_list: Any, one_dtype: bool) -> list[Tensor | None]:
    """Return the tensors of a list; None stays None."""
    tensors = [None if t is None else as_tensor(t, "t_list", FLOATS) for t in as_list(t_list)]
    if one_dtype:
        check_one_dtype([t.array.dtype for t in tensors if t is not None])
    return tensors


# ---- bounds and limits


def as_device_bound(value: Any, name: str, op: str, tensor: DeviceArray) -> Array | DeviceArray:
    """Return a bound of clip_by_value: a number as a 0-d array, or an array of t's shape."""
    if not is_device_array(value):
        bound = as_bound(value, name, op, numpy_dtype(tensor.dtype))
        if bound.ndim:
            raise InvalidArgumentError(
                f"{name} must be a number or an array on the GPU, like t, "
                f"not a host array of shape {bound.shape}"
            )
        return bound
    array = as_device_array(value, name, "t")
    if array.dtype != tensor.dtype:
        refuse_dtype(array.dtype, tensor.dtype, op)
    if array.shape != tensor.shape:
        raise InvalidArgumentError(
            f"on a GPU {name} must be a number or have t's shape {tensor.shape}, not {array.shape}"
        )
    check_layout(array, name, False)
    return array


def as_device_limit(
    value: Any, name: str, tensor: DeviceArray, shape: tuple[int, ...]
) -> float | DeviceArray:
    """Return a limit for norms: a number, or an array with the norms' shape and t's dtype."""
    if not is_device_array(value):
        limits = as_limits(value, name)
        if limits.ndim:
            raise InvalidArgumentError(
                f"{name} must be a number or an array on the GPU, like t, "
                f"not a host array of shape {limits.shape}"
            )
        return float(np.maximum(limits, 0.0))
    array = as_device_array(value, name, "t")
    if array.dtype != tensor.dtype:
        raise InvalidTypeError(
            f"on a GPU {name} must have t's dtype {tensor.dtype}, not {array.dtype}"
        )
    if array.shape != shape:
        raise InvalidArgumentError(
            f"on a GPU {name} must be a number or have the norms' shape {shape}, not {array.shape}"
        )
    check_layout(array, name, False)
    return array


# ---- results


def results_for(tensors: Sequence[Tensor | None], out: Any) -> list[Tensor | None]:
    """Return the arrays that results are written to; new arrays if there is no `out`."""
    if out is None:
        return [None if t is None else _new(t, t.array.shape) for t in tensors]
    check_results(out, tensors)
    each = zip(out, tensors, strict=True)
    return [None if t is None else _fitting(r, t.array.dtype, t.array.shape) for r, t in each]


def scalar_for(tensor: Tensor, out: Any, dtype: np.dtype[Any] | None = None) -> Tensor:
    """Return the array to which a number is written, by default of a tensor's dtype."""
    if out is None:
        return _new(tensor, (), dtype)
    return _fitting(out, tensor.array.dtype if dtype is None else dtype.name, ())


def _new(tensor: Tensor, shape: tuple[int, ...], dtype: np.dtype[Any] | None = None) -> Tensor:
    given = new_like(tensor.given, shape, dtype)
    return Tensor(given, as_device_array(given, "out"))


def _fitting(out: Any, dtype: str, shape: tuple[int, ...]) -> Tensor:
    value = of_rows(out)
    array = as_device_array(value, "out", "the tensor")
    check_fits(array, dtype, shape)
    check_layout(array, "out", True)
    return Tensor(value, array)


def check_separate(outs: Sequence[DeviceArray], tensors: Sequence[DeviceArray]) -> None:
    """Raise if results share memory with each other or with another tensor than their own."""
    both, n = [*outs, *tensors], len(outs)
    for j, k in overlapping((array.address, array.end, at < n) for at, array in enumerate(both)):
        if abs(j - k) != n or both[j].address != both[k].address:
            raise InvalidArgumentError("out overlaps in memory with another result or tensor")
