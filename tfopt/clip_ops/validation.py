"""Validation of the arguments of clipping, before anything is written."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn, TypeAlias

import numpy as np

from tfopt.core.backends import backend_of, is_device_array
from tfopt.core.engine import Operand, Tensor, recorders
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.arrays.aliasing import certainly_apart, check_layouts, in_place
from tfopt.kernels.arrays.coerce import all_plain, as_array
from tfopt.kernels.arrays.overlaps import overlapping, span_of
from tfopt.variable import Variable

__all__ = [
    "FLOATS",
    "INTEGERS",
    "as_axes",
    "as_bound",
    "as_limit",
    "as_limits",
    "as_list",
    "as_tensor",
    "as_tensors",
    "check_broadcast",
    "check_dtype",
    "check_fits",
    "check_one_dtype",
    "check_results",
    "check_separate",
    "computed",
    "device_backend",
    "densified",
    "is_recorded",
    "of_rows",
    "refuse_dtype",
    "results_for",
    "with_values",
    "wrapped",
]

Array: TypeAlias = np.ndarray[Any, Any]

#: TensorFlow's names of dtypes, where they differ from NumPy's.
_NAMES = {"float16": "half", "float32": "float", "float64": "double"}
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def tensor_name(dtype: str) -> str:
    """Return TensorFlow's name of a dtype."""
    return _NAMES.get(dtype, dtype)


def computed(dtype: np.dtype[Any]) -> type[np.float32] | type[np.float64]:
    """Return the type in which arrays of a dtype are scaled: the computation type."""
    return np.float64 if dtype == np.float64 else np.float32


# ---- tensors


def is_recorded(*values: Any) -> bool:
    """Return whether a value is a tensor, or a variable while a tape or trace records."""
    for value in values:
        if isinstance(value, IndexedSlices):
            value = value.values
        if isinstance(value, Tensor):
            return True
        if isinstance(value, Operand) and recorders():
            return True
    return False


def of_rows(t: Any) -> Any:
    """Return the values of slices; return anything else unchanged."""
    return t.values if isinstance(t, IndexedSlices) else t


def with_values(t: Any, values: Any) -> Any:
    """Return slices with other values if t is slices, else the values."""
    if isinstance(t, IndexedSlices):
        return IndexedSlices(values, t.indices, t.dense_shape)
    return values


def device_backend(t: Any) -> ModuleType | None:
    """Return the backend of a tensor, or of the first of a list; None if it is on the host."""
    if isinstance(t, (list, tuple)):
        t = next((member for member in t if member is not None), None)
    array = t.values if isinstance(t, IndexedSlices) else t
    return backend_of(array) if is_device_array(array) else None


def as_tensor(value: Any, name: str, dtypes: tuple[str, ...]) -> Array:
    """Return an argument as an array, without a copy if possible.

    Python numbers become float32 or int32, as in TensorFlow.
    """
    array = _as_array(value, name, dtypes)
    check_layouts([array], name, False)
    return array


def _as_array(value: Any, name: str, dtypes: tuple[str, ...]) -> Array:
    array: Array
    if type(value) is np.ndarray:
        array = value
    elif value is None:
        raise _none()
    elif isinstance(value, IndexedSlices):
        array = as_array(value.values, f"{name}.values")
    elif isinstance(value, Variable):
        array = value.numpy()
    elif isinstance(value, np.generic):
        array = np.asarray(value)
    elif isinstance(value, (bool, int, float, complex, str, bytes, list, tuple)):
        array = _converted(value, name)
    else:
        array = as_array(value, name)
    dtype = array.dtype
    if dtype.char not in "efd":  # the short test saves time
        check_dtype(dtype.name, dtypes)
    return array


def check_dtype(dtype: str, dtypes: tuple[str, ...]) -> None:
    """Raise if a tensor's dtype is not one of several."""
    if dtype not in dtypes:
        raise InvalidTypeError(
            f"Value for attr 'T' of {tensor_name(dtype)} is not in the list of allowed values: "
            f"{', '.join(map(tensor_name, dtypes))}"
        )


def _none() -> InvalidTypeError:
    return InvalidTypeError(
        "Attempt to convert a value (None) with an unsupported type (<class 'NoneType'>) to a "
        "Tensor."
    )


def _on_device(name: str) -> InvalidTypeError:
    return InvalidTypeError(f"{name} is on a GPU, but the tensor is on the host: copy one of them")


def _converted(value: Any, name: str) -> Array:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InvalidArgumentError(f"{name}: {error}") from None
    if not _holds_arrays(value):
        python = {"f": np.float32, "i": np.int32, "c": np.complex128}.get(array.dtype.kind)
        return array if python is None else array.astype(python)
    return array


def _holds_arrays(value: Any) -> bool:
    """Return whether a nested list has elements with a dtype."""
    if isinstance(value, (list, tuple)):
        return any(map(_holds_arrays, value))
    return hasattr(value, "dtype")


def as_list(t_list: Any) -> list[Any]:
    """Return the members of a sequence of tensors."""
    if not isinstance(t_list, Sequence) or isinstance(t_list, (str, bytes)):
        raise InvalidTypeError(
            f"`t_list` should be a sequence of tensors. Received {type(t_list)}."
        )
    return list(t_list)


def check_one_dtype(dtypes: Sequence[Any]) -> None:
    """Raise if tensors have several dtypes, each a NumPy dtype or the name of one."""
    for k, dtype in enumerate(dtypes):
        if dtype is not dtypes[0] and dtype != dtypes[0]:
            refuse_dtype(dtype, dtypes[0], "Pack", k)


def refuse_dtype(dtype: Any, expected: Any, op: str, k: int = 1) -> NoReturn:
    """Raise TensorFlow's error for input k of an op, whose dtype is not the expected one."""
    was, its = (tensor_name(getattr(each, "name", each)) for each in (expected, dtype))
    raise InvalidTypeError(
        f"cannot compute {op} as input #{k}(zero-based) was expected to be a {was} tensor but is a "
        f"{its} tensor"
    )


def as_tensors(t_list: Any, one_dtype: bool) -> list[Array | None]:
    """Return the tensors of a list as arrays; None stays None."""
    if all_plain(tensors := as_list(t_list)):
        return tensors
    tensors = [None if t is None else _as_array(t, "t_list", FLOATS) for t in tensors]
    arrays = [t for t in tensors if t is not None]
    check_layouts(arrays, "t_list", False)
    if one_dtype:
        check_one_dtype([t.dtype for t in arrays])
    return tensors


def densified(slices: IndexedSlices) -> Array:
    """Return the dense array that slices represent."""
    values = as_tensor(slices, "t", FLOATS)
    if slices.dense_shape is None:
        raise InvalidArgumentError("IndexedSlices without dense_shape cannot become a tensor")
    merged = IndexedSlices(values, slices.indices).sum_duplicates()
    shape = tuple(slices.dense_shape)
    rows = shape[0] if shape else 0
    if merged.values.shape[1:] != shape[1:]:
        raise InvalidArgumentError(
            f"values of shape {values.shape} are not rows of an array of shape {shape}"
        )
    if merged.indices.size and not (merged.indices.min() >= 0 and merged.indices.max() < rows):
        raise InvalidArgumentError(f"indices are out of range [0, {rows})")
    dense = np.zeros(shape, values.dtype)
    dense[merged.indices] = merged.values
    return dense


# ---- bounds and limits


def as_bound(value: Any, name: str, op: str, dtype: np.dtype[Any]) -> Array:
    """Return a bound of clip_by_value, in the tensor's dtype."""
    if value is None:
        raise _none()
    if is_device_array(value):
        raise _on_device(name)
    if isinstance(value, (Variable, np.ndarray, np.generic)) or hasattr(value, "__dlpack__"):
        bound = value.numpy() if isinstance(value, Variable) else np.asarray(value)
        if bound.dtype != dtype and bound.dtype.kind not in "iu":
            refuse_dtype(bound.dtype, dtype, op)
    else:
        try:
            bound = np.asarray(value)
        except ValueError as error:
            raise InvalidArgumentError(f"{name}: {error}") from None
        allowed = "iu" if dtype.kind in "iu" else "iuf"
        if bound.dtype.kind not in allowed and bound.size:
            raise InvalidTypeError(f"Cannot convert {value!r} to a tensor of dtype {dtype}")
    if dtype.kind in "iu" and bound.size:
        info = np.iinfo(dtype)
        least, most = bound.min(), bound.max()
        if int(least) < info.min or int(most) > info.max:
            raise InvalidArgumentError(f"{name} must be between {info.min} and {info.max}")
    with np.errstate(all="ignore"):
        return bound.astype(dtype, copy=False)


def as_limit(value: Any, name: str) -> float:
    """Return a number, NumPy scalar, 0-d array or Variable as a float."""
    limits = as_limits(value, name)
    if limits.ndim:
        raise InvalidArgumentError(f"{name} must be a scalar, not of shape {limits.shape}")
    return float(limits)


def as_limits(value: Any, name: str) -> Array:
    """Return numbers as float64."""
    if value is None:
        raise _none()
    if is_device_array(value):
        raise _on_device(name)
    if isinstance(value, Variable):
        value = value.numpy()
    try:
        limits = np.asarray(value)
    except ValueError as error:
        raise InvalidArgumentError(f"{name}: {error}") from None
    if limits.dtype.kind not in "biuf" and limits.dtype.name not in FLOATS:
        raise InvalidTypeError(f"{name} must be a real number, not {value!r}")
    return limits.astype(np.float64)


def as_axes(axes: Any, ndim: int) -> tuple[int, ...]:
    """Return the axes as sorted non-negative numbers."""
    if axes is None:
        return tuple(range(ndim))
    numbers = np.asarray(axes)
    if numbers.size and numbers.dtype.kind not in "iub":
        raise InvalidTypeError(
            f"Value for attr 'Tidx' of {numbers.dtype} is not in the list of allowed values: "
            "int32, int64"
        )
    normalized: list[int] = []
    for axis in map(int, numbers.flat):
        if not -ndim <= axis < ndim:
            raise InvalidArgumentError(
                f"Invalid reduction dimension ({axis} for input with {ndim} dimension(s)"
            )
        if axis % ndim in normalized:
            raise InvalidArgumentError(
                f"Invalid reduction arguments: Axes contains duplicate dimension: {axis % ndim}"
            )
        normalized.append(axis % ndim)
    return tuple(sorted(normalized))


def check_broadcast(array: Array, other: Array) -> None:
    """Raise if broadcasting with another array would change an array's shape."""
    if other.ndim == 0 or other.shape == array.shape:
        return
    try:
        shape = np.broadcast_shapes(array.shape, other.shape)
    except ValueError:
        ours, theirs = (str(list(a.shape)).replace(" ", "") for a in (array, other))
        raise InvalidArgumentError(f"Incompatible shapes: {ours} vs. {theirs}") from None
    if shape != array.shape:
        raise InvalidArgumentError(f"Shapes {array.shape} and {shape} are incompatible")


# ---- results


def results_for(tensors: Sequence[Array | None], out: Any) -> list[Array | None]:
    """Return the arrays that results are written to; new arrays if there is no `out`."""
    if out is None:
        return [None if t is None else np.empty(t.shape, t.dtype) for t in tensors]
    check_results(out, tensors)
    if all(map(operator.is_, out, tensors)):
        results = list(tensors)
    else:
        each = zip(out, tensors, strict=True)
        results = [None if t is None else _result(member, t) for member, t in each]
    check_layouts([result for result in results if result is not None], "out", True)
    return results


def check_results(out: Any, tensors: Sequence[Any]) -> None:
    """Raise if `out` is not a list with None where the list of tensors has None."""
    if not isinstance(out, (list, tuple)) or len(out) != len(tensors):
        raise InvalidArgumentError(f"out must be a list of {len(tensors)} results")
    for member, t in zip(out, tensors, strict=True):
        if t is None and member is not None:
            raise InvalidArgumentError("out must be None where the tensor is None")


def _result(out: Any, t: Array) -> Any:
    out = of_rows(out)
    array = out.numpy() if isinstance(out, Variable) else as_array(out, "out")
    check_fits(array, t.dtype, t.shape)
    return array


def check_fits(out: Any, dtype: Any, shape: tuple[int, ...]) -> None:
    """Raise if a result does not have a tensor's dtype and shape."""
    if out.dtype != dtype:
        raise InvalidTypeError(f"out must have the tensor's dtype {dtype}, not {out.dtype}")
    if out.shape != shape:
        raise InvalidArgumentError(f"out must have the tensor's shape {shape}, not {out.shape}")


def check_separate(outs: list[Array], tensors: list[Array]) -> None:
    """Raise if results share memory with each other or with another tensor than their own."""
    if certainly_apart(outs, tensors):
        return
    both, n = [*outs, *tensors], len(outs)
    for j, k in overlapping((*span_of(array), at < n) for at, array in enumerate(both)):
        if not np.shares_memory(both[j], both[k]):
            continue
        if abs(j - k) != n or not in_place(both[j], both[k]):
            raise InvalidArgumentError("out overlaps in memory with another result or tensor")


def wrapped(t: Any, result: Array | None, out: Any) -> Any:
    """Return `out` if given, else the result, as slices if t is slices."""
    if out is not None:
        return out
    if isinstance(t, IndexedSlices):
        return IndexedSlices(result, t.indices, t.dense_shape)
    return result
