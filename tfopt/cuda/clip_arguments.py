"""The arguments of clipping on a GPU, checked before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tfopt.clip_ops.validation import FLOATS, Array, as_bound, as_limits, tensor_name
from tfopt.core.backends import is_device_array
from tfopt.cuda.arrays import DeviceArray, as_device_array
from tfopt.cuda.checks import check_layout
from tfopt.cuda.results import new_like
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.indexed_slices import IndexedSlices
from tfopt.variable import Variable

__all__ = [
    "Tensor",
    "as_bound_there",
    "as_limit_there",
    "as_tensor",
    "as_tensors",
    "check_separate",
    "numpy_dtype",
    "results_for",
    "scalar_for",
]


class Tensor(NamedTuple):
    """An array on a GPU, and the object that it was given as."""

    given: Any
    array: DeviceArray


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return NumPy's dtype of a name; bfloat16 is ml_dtypes'."""
    if name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise InvalidTypeError("bounds of bfloat16 arrays need the package ml_dtypes") from None
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


# ---- what is clipped


def as_tensor(value: Any, name: str, dtypes: tuple[str, ...]) -> Tensor:
    """Return an array on a GPU: the argument, or the values or the variable that it holds."""
    if isinstance(value, IndexedSlices):
        value = value.values
    if isinstance(value, Variable):
        value = value.value()
    array = as_device_array(value, name, "the first tensor")
    if array.dtype not in dtypes:
        raise InvalidTypeError(
            f"Value for attr 'T' of {_named(array.dtype)} is not in the list of allowed values: "
            f"{', '.join(map(_named, dtypes))}"
        )
    check_layout(array, name, False)
    return Tensor(value, array)


def _named(dtype: str) -> str:
    return dtype if dtype not in FLOATS or dtype == "bfloat16" else tensor_name(np.dtype(dtype))


def as_tensors(t_list: Any, one_dtype: bool) -> list[Tensor | None]:
    """Return the tensors of a list, with None in the places of None."""
    if not isinstance(t_list, Sequence):
        raise InvalidTypeError(
            f"`t_list` should be a sequence of tensors. Received {type(t_list)}."
        )
    tensors = [None if t is None else as_tensor(t, "t_list", FLOATS) for t in t_list]
    dtypes = [t.array.dtype for t in tensors if t is not None]
    for k, dtype in enumerate(dtypes):
        if one_dtype and dtype != dtypes[0]:
            raise InvalidTypeError(
                f"cannot compute Pack as input #{k}(zero-based) was expected to be a "
                f"{_named(dtypes[0])} tensor but is a {_named(dtype)} tensor"
            )
    return tensors


# ---- bounds and limits


def as_bound_there(value: Any, name: str, op: str, tensor: DeviceArray) -> Array | DeviceArray:
    """Return a bound of clip_by_value: a number as a 0-d array, or an array of t's shape."""
    if not is_device_array(value):
        bound = as_bound(value, name, op, numpy_dtype(tensor.dtype))
        if bound.ndim:
            raise InvalidArgumentError(
                f"{name} must be a number or an array on the GPU as t is, "
                f"not an array of shape {bound.shape} of the host"
            )
        return bound
    there = as_device_array(value, name, "t")
    if there.dtype != tensor.dtype:
        raise InvalidTypeError(
            f"cannot compute {op} as input #1(zero-based) was expected to be a "
            f"{_named(tensor.dtype)} tensor but is a {_named(there.dtype)} tensor"
        )
    if there.shape != tensor.shape:
        raise InvalidArgumentError(
            f"on a GPU {name} must be a number or of t's shape {tensor.shape}, not {there.shape}"
        )
    check_layout(there, name, False)
    return there


def as_limit_there(
    value: Any, name: str, tensor: DeviceArray, shape: tuple[int, ...]
) -> float | DeviceArray:
    """Return a limit for norms: a number of at least 0, or an array of a shape and t's dtype."""
    if not is_device_array(value):
        limits = as_limits(value, name)
        if limits.ndim:
            raise InvalidArgumentError(
                f"{name} must be a number or an array on the GPU as t is, "
                f"not an array of shape {limits.shape} of the host"
            )
        return float(np.maximum(limits, 0.0))
    there = as_device_array(value, name, "t")
    if there.dtype != tensor.dtype:
        raise InvalidTypeError(f"on a GPU {name} must be {tensor.dtype} as t is, not {there.dtype}")
    if there.shape != shape:
        raise InvalidArgumentError(
            f"on a GPU {name} must be a number or have the norms' shape {shape}, not {there.shape}"
        )
    check_layout(there, name, False)
    return there


# ---- results


def results_for(tensors: Sequence[Tensor | None], out: Any) -> list[Tensor | None]:
    """Return what results are written into; new arrays if there is no `out`."""
    if out is None:
        return [None if t is None else _new(t, t.array.shape) for t in tensors]
    if not isinstance(out, (list, tuple)) or len(out) != len(tensors):
        raise InvalidArgumentError(f"out must be a list of {len(tensors)} results")
    return [_result(given, t) for given, t in zip(out, tensors, strict=True)]


def scalar_for(tensor: Tensor, out: Any) -> Tensor:
    """Return what a number of a tensor's dtype is written into."""
    if out is None:
        return _new(tensor, ())
    return _fitting(out, tensor.array.dtype, ())


def _new(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    given = new_like(tensor.given, shape)
    return Tensor(given, as_device_array(given, "out"))


def _result(given: Any, t: Tensor | None) -> Tensor | None:
    if t is not None:
        return _fitting(given, t.array.dtype, t.array.shape)
    if given is not None:
        raise InvalidArgumentError("out must be None where the tensor is")
    return None


def _fitting(given: Any, dtype: str, shape: tuple[int, ...]) -> Tensor:
    value = given.values if isinstance(given, IndexedSlices) else given
    array = as_device_array(value, "out", "the tensor")
    if array.dtype != dtype:
        raise InvalidTypeError(f"out must be {dtype} as the tensor is, not {array.dtype}")
    if array.shape != shape:
        raise InvalidArgumentError(f"out must have the tensor's shape {shape}, not {array.shape}")
    check_layout(array, "out", True)
    return Tensor(value, array)


def check_separate(outs: Sequence[DeviceArray], tensors: Sequence[DeviceArray]) -> None:
    """Refuse results that share memory with each other, or with a tensor not their own."""
    spans = sorted(
        (array.address, array.end, k, written)
        for written, arrays in ((True, outs), (False, tensors))
        for k, array in enumerate(arrays)
        if array.size
    )
    opened: list[tuple[int, int, int, bool]] = []
    for span in spans:
        low, _, k, written = span
        opened = [other for other in opened if other[1] > low]
        for begin, _, owner, kind in opened:
            own = k == owner and written != kind and low == begin
            if (written or kind) and not own:
                raise InvalidArgumentError("out overlaps in memory with another result or tensor")
        opened.append(span)
