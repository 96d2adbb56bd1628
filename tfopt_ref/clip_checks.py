"""What arguments of clipping must fulfil before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from tfopt_ref.autodiff.indexed_slices import IndexedSlices
from tfopt_ref.autodiff.variable import Variable
from tfopt_ref.checks import as_array, check_itself, check_layout
from tfopt_ref.errors import InvalidArgumentError, InvalidTypeError

__all__ = [
    "FLOATS",
    "INTEGERS",
    "as_axes",
    "as_bound",
    "as_limits",
    "as_scalar_limit",
    "as_tensor",
    "as_tensors",
    "check_broadcast",
    "results_for",
]

_NAMES = {"float16": "half", "float32": "float", "float64": "double"}
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def _name(dtype: Any) -> str:
    return str(_NAMES.get(dtype.name, dtype.name))


def _not_none(value: Any) -> None:
    if value is None:
        raise InvalidTypeError(
            "Attempt to convert a value (None) with an unsupported type (<class 'NoneType'>) to a "
            "Tensor."
        )


def _knows_dtype(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_knows_dtype, value))
    return hasattr(value, "dtype")


def _as_numbers(value: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(value)
    except ValueError as error:
        raise InvalidArgumentError(f"{name}: {error}") from None


def as_tensor(value: Any, name: str, dtypes: Sequence[str]) -> np.ndarray:
    """Return an argument as an array; Python's numbers become float32 and int32."""
    _not_none(value)
    if isinstance(value, IndexedSlices):
        value = value.values
    if isinstance(value, Variable):
        value = value.numpy()
    if isinstance(value, (bool, int, float, complex, str, bytes, list, tuple, np.generic)):
        array = _as_numbers(value, name)
        python = {"f": np.float32, "i": np.int32}.get(array.dtype.kind)
        if python is not None and not _knows_dtype(value):
            array = array.astype(python)
    else:
        array = as_array(value, name)
    if array.dtype.name not in dtypes:
        raise InvalidTypeError(
            f"Value for attr 'T' of {_name(array.dtype)} is not in the list of allowed values: "
            + ", ".join(_NAMES.get(dtype, dtype) for dtype in dtypes)
        )
    check_layout(array, name, written=False)
    return array


def as_tensors(t_list: Any, one_dtype: bool) -> list[np.ndarray | None]:
    """Return the arrays of a list, with None in the places of None."""
    if not isinstance(t_list, Sequence) or isinstance(t_list, (str, bytes)):
        raise InvalidTypeError(
            f"`t_list` should be a sequence of tensors. Received {type(t_list)}."
        )
    tensors = [None if t is None else as_tensor(t, "t_list", FLOATS) for t in t_list]
    dtypes = [t.dtype for t in tensors if t is not None]
    for k, dtype in enumerate(dtypes):
        if one_dtype and dtype != dtypes[0]:
            raise InvalidTypeError(
                f"cannot compute Pack as input #{k}(zero-based) was expected to be a "
                f"{_name(dtypes[0])} tensor but is a {_name(dtype)} tensor"
            )
    return tensors


def as_bound(value: Any, name: str, op: str, dtype: Any) -> np.ndarray:
    """Return a bound of clip_by_value, in the tensor's dtype."""
    _not_none(value)
    integers = dtype.kind in "iu"
    if isinstance(value, (Variable, np.ndarray, np.generic)) or hasattr(value, "__dlpack__"):
        given = value.numpy() if isinstance(value, Variable) else np.asarray(value)
        if given.dtype != dtype and given.dtype.kind not in "iu":
            raise InvalidTypeError(
                f"cannot compute {op} as input #1(zero-based) was expected to be a "
                f"{_name(dtype)} tensor but is a {_name(given.dtype)} tensor"
            )
    else:
        given = _as_numbers(value, name)
        if given.dtype.kind not in ("iu" if integers else "iuf") and given.size:
            raise InvalidTypeError(f"Cannot convert {value!r} to a tensor of dtype {dtype}")
    if integers and given.size:
        info = np.iinfo(dtype)
        if int(given.min()) < info.min or int(given.max()) > info.max:
            raise InvalidArgumentError(f"{name} must be between {info.min} and {info.max}")
    with np.errstate(all="ignore"):
        return given.astype(dtype)


def as_limits(value: Any, name: str) -> np.ndarray:
    """Return numbers as float64."""
    _not_none(value)
    given = _as_numbers(value.numpy() if isinstance(value, Variable) else value, name)
    if given.dtype.kind not in "biuf" and given.dtype.name not in FLOATS:
        raise InvalidTypeError(f"{name} must be a real number, not {value!r}")
    return given.astype(np.float64)


def as_scalar_limit(value: Any, name: str) -> np.ndarray:
    """Return one number as float64."""
    limit = as_limits(value, name)
    if limit.ndim:
        raise InvalidArgumentError(f"{name} must be a scalar, not of shape {limit.shape}")
    return limit


def as_axes(axes: Any, ndim: int) -> tuple[int, ...]:
    """Return the axes as numbers from 0 on; None means all."""
    if axes is None:
        return tuple(range(ndim))
    given = np.asarray(axes)
    if given.size and given.dtype.kind not in "iub":
        raise InvalidTypeError(
            f"Value for attr 'Tidx' of {given.dtype} is not in the list of allowed values: "
            "int32, int64"
        )
    found: list[int] = []
    for axis in map(int, given.flat):
        if not -ndim <= axis < ndim:
            raise InvalidArgumentError(
                f"Invalid reduction dimension ({axis} for input with {ndim} dimension(s)"
            )
        if axis % ndim in found:
            raise InvalidArgumentError(
                f"Invalid reduction arguments: Axes contains duplicate dimension: {axis % ndim}"
            )
        found.append(axis % ndim)
    return tuple(sorted(found))


def check_broadcast(array: np.ndarray, other: np.ndarray) -> None:
    """Refuse what would enlarge a tensor in an operation with it."""
    try:
        shape = np.broadcast_shapes(array.shape, other.shape)
    except ValueError:
        ours, theirs = (str(list(a.shape)).replace(" ", "") for a in (array, other))
        raise InvalidArgumentError(f"Incompatible shapes: {ours} vs. {theirs}") from None
    if shape != array.shape:
        raise InvalidArgumentError(f"Shapes {array.shape} and {shape} are incompatible")


def results_for(tensors: Sequence[np.ndarray | None], out: Any) -> list[Any]:
    """Return the arrays that results are written into; new ones if there is no `out`."""
    if out is None:
        return [None if t is None else np.empty(t.shape, t.dtype) for t in tensors]
    if not isinstance(out, (list, tuple)) or len(out) != len(tensors):
        raise InvalidArgumentError(f"out must be a list of {len(tensors)} results")
    results = [_result(given, t) for given, t in zip(out, tensors, strict=True)]
    for k, result in enumerate(results):
        for j, other in chain(enumerate(results[:k]), enumerate(tensors)):
            if result is None or other is None or not np.shares_memory(result, other):
                continue
            if j != k or not _in_place(result, other):
                raise InvalidArgumentError("out overlaps in memory with another result or tensor")
    return results


def _result(given: Any, t: np.ndarray | None) -> np.ndarray | None:
    if t is None:
        if given is not None:
            raise InvalidArgumentError("out must be None where the tensor is")
        return None
    if isinstance(given, IndexedSlices):
        given = given.values
    array = given.numpy() if isinstance(given, Variable) else as_array(given, "out")
    if array.dtype != t.dtype:
        raise InvalidTypeError(f"out must be {t.dtype} as the tensor is, not {array.dtype}")
    if array.shape != t.shape:
        raise InvalidArgumentError(f"out must have the tensor's shape {t.shape}, not {array.shape}")
    check_layout(array, "out", written=True)
    check_itself(array, "out")
    return array


def _in_place(out: np.ndarray, array: np.ndarray) -> bool:
    return out.ctypes.data == array.ctypes.data and out.strides == array.strides
