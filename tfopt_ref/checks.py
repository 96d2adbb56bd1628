"""What a call must fulfil before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tfopt_ref.errors import IndexOutOfRangeError, InvalidArgumentError, InvalidTypeError

__all__ = ["check_dense", "check_operands", "check_scalars", "check_sparse"]


_NARROW = ("float16", "bfloat16")
_REAL = (*_NARROW, "float32", "float64")
_COMPLEX = ("complex64", "complex128")


def _listed(shape: Any) -> str:
    return "[" + ",".join(map(str, shape)) + "]"


def as_array(value: Any, name: str) -> np.ndarray:
    """Return the array itself, or one that shares the memory of an object that exposes it."""
    if isinstance(value, np.ma.MaskedArray):
        raise InvalidTypeError(f"{name} must be an array without a mask, not MaskedArray")
    if isinstance(value, np.ndarray):
        return value
    try:
        if hasattr(value, "__dlpack__") and not hasattr(value, "__array_interface__"):
            return np.from_dlpack(value)
        return np.asarray(value, copy=False)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
        raise InvalidTypeError(
            f"{name} must be a numpy.ndarray, or share memory with one, not {type(value).__name__}"
        ) from None


def as_scalar(value: Any, name: str) -> float:
    """Return a hyperparameter: a real number or a 0-d array."""
    if isinstance(value, float):
        return value
    shape = (len(value),) if isinstance(value, (list, tuple)) else getattr(value, "shape", ())
    if shape != ():
        raise InvalidArgumentError(f"{name} is not a scalar: {_listed(shape)}")
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise InvalidTypeError(
            f"{name} must be a real number, not {type(value).__name__}"
        ) from None
    except OverflowError:
        raise InvalidArgumentError(f"{name} is too large for a float") from None


def check_layout(array: np.ndarray, name: str, written: bool) -> None:
    """Refuse what cannot be read or written as it lies."""
    if not array.dtype.isnative:
        raise InvalidTypeError(f"{name} has the byte-swapped dtype {array.dtype.str}")
    if not array.flags.aligned:
        raise InvalidArgumentError(f"{name} is not aligned to its items")
    if written and not array.flags.writeable:
        raise InvalidArgumentError(f"{name} is read-only")


def check_operands(arguments: Mapping[str, Any], complex_too: bool) -> dict[str, np.ndarray]:
    """Return the arrays of a call: the variable, its slots, and last the gradient."""
    arrays: dict[str, np.ndarray] = {}
    *_, grad = arguments
    for name, value in arguments.items():
        number = name == grad and isinstance(value, np.generic)  # arithmetic makes it of 0-d arrays
        array = np.asarray(value) if number else as_array(value, name)
        var = arrays.get("var", array)
        dtypes = _REAL + _COMPLEX if complex_too else _REAL
        if var.dtype.name not in dtypes:
            listed = f"{', '.join(dtypes[:-1])} or {dtypes[-1]}"
            raise InvalidTypeError(f"var must be {listed}, not {var.dtype}")
        narrow = name == grad and var.dtype.name == "float32" and array.dtype.name in _NARROW
        if array.dtype.name != var.dtype.name and not narrow:
            raise InvalidTypeError(f"{name} must be {var.dtype} as var is, not {array.dtype}")
        check_layout(array, name, written=name != grad)
        if name != grad and array.shape != var.shape:
            raise InvalidArgumentError(
                f"var and {name} do not have the same shape: "
                f"{_listed(var.shape)} {_listed(array.shape)}"
            )
        arrays[name] = array
    return arrays


def check_scalars(
    hypers: Mapping[str, Any], limits: Mapping[str, str], flags: Mapping[str, bool]
) -> dict[str, float]:
    """Return the hyperparameters as floats, if they keep the step's limits."""
    values = {}
    for name, value in hypers.items():
        values[name] = number = as_scalar(value, name)
        limit = limits.get(name, "anything")
        relation, _, flag = limit.partition(", or 0 with ")
        if not (_LIMITS[relation](number) or (flags.get(flag, False) and number == 0)):
            raise InvalidArgumentError(f"{name} must be {limit}, not {number}")
    return values


_LIMITS: dict[str, Callable[[float], bool]] = {
    "anything": lambda x: True,
    "greater than 0": lambda x: x > 0,
    "at least 0": lambda x: x >= 0,
    "at most 0": lambda x: x <= 0,
}


def check_dense(arrays: Mapping[str, np.ndarray]) -> None:
    """Refuse a gradient of another shape than the variable's."""
    *_, grad = arrays
    var = arrays["var"]
    if arrays[grad].shape != var.shape:
        raise InvalidArgumentError(
            f"var and {grad} do not have the same shape: "
            f"{_listed(var.shape)} {_listed(arrays[grad].shape)}"
        )


def check_sparse(arrays: Mapping[str, np.ndarray], indices: Any) -> np.ndarray:
    """Return the indices, if they and the gradient's rows fit; their range is not looked at."""
    *_, name = arrays
    var, grad = arrays["var"], arrays[name]
    ids = as_array(indices, "indices")
    if ids.dtype.newbyteorder("=") not in (np.int32, np.int64):
        raise InvalidTypeError(f"indices must be int32 or int64, not {ids.dtype}")
    check_layout(ids, "indices", written=False)
    if var.ndim == 0:
        raise InvalidArgumentError("var must be at least 1 dimensional")
    if ids.ndim != 1:
        raise InvalidArgumentError(f"indices must be one-dimensional: {_listed(ids.shape)}")
    if grad.ndim != var.ndim:
        raise InvalidArgumentError(
            f"{name} must have the same number of dimensions as var: "
            f"{_listed(var.shape)} {_listed(grad.shape)}"
        )
    for axis in range(1, var.ndim):
        if var.shape[axis] != grad.shape[axis]:
            raise InvalidArgumentError(
                f"var and {name} must match in dimension {axis}: "
                f"{_listed(var.shape)} {_listed(grad.shape)}"
            )
    if len(grad) != len(ids):
        raise InvalidArgumentError(
            f"{name} must be the same size as indices in the first dimension: "
            f"{len(grad)} {len(ids)}"
        )
    return ids


def check_range(indices: np.ndarray, rows: int) -> None:
    """Refuse indices that name no row; negative ones do not count from the end."""
    for offset, index in enumerate(indices):
        if not 0 <= index < rows:
            raise IndexOutOfRangeError(
                f"Index {index} at offset {offset} in indices is out of range [0, {rows})"
            )


def check_memory(arrays: Mapping[str, np.ndarray], indices: np.ndarray | None = None) -> None:
    """Refuse variables that share memory with each other, with themselves or with the indices."""
    *written, _ = arrays
    for k, name in enumerate(written):
        check_itself(arrays[name], name)
        for other in written[:k]:
            if np.shares_memory(arrays[other], arrays[name]):
                raise InvalidArgumentError(f"{other} and {name} overlap in memory")
    for name in written if indices is not None else ():
        if np.shares_memory(arrays[name], indices):
            raise InvalidArgumentError(f"{name} and indices overlap in memory")


def check_itself(array: np.ndarray, name: str) -> None:
    """Refuse an array whose elements share memory: a stride shorter than what it strides over."""
    if array.size == 0:
        return
    reach = array.itemsize
    for stride, n in sorted(zip(map(abs, array.strides), array.shape, strict=True)):
        if n > 1:
            if stride < reach:
                raise InvalidArgumentError(f"{name} overlaps itself: its elements share memory")
            reach += stride * (n - 1)
