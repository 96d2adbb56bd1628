"""What a call must fulfil before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from tfopt_ref.errors import IndexOutOfRangeError, InvalidArgumentError, InvalidTypeError

__all__ = ["check_in_order", "check_indices", "check_memory", "check_operands", "check_range"]


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
    """Return the arrays of a call, of one dtype: the variable, its slots, and the gradient."""
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
        arrays[name] = array
    return arrays


def check_indices(indices: Any) -> np.ndarray:
    """Return the indices, if they have a type that indices may have."""
    ids = as_array(indices, "indices")
    if ids.dtype.newbyteorder("=") not in (np.int32, np.int64):
        raise InvalidTypeError(f"indices must be int32 or int64, not {ids.dtype}")
    check_layout(ids, "indices", written=False)
    return ids


def check_in_order(
    order: Sequence[str],
    arrays: Mapping[str, np.ndarray],
    indices: np.ndarray | None,
    hypers: Mapping[str, Any],
    limits: Mapping[str, str],
    flags: Mapping[str, bool],
) -> dict[str, float]:
    """Make the named checks, of several faults to report the first; return the hyperparameters.

    A name is that of a hyperparameter, of an array whose shape is to be the variable's, or of one
    of the checks of rows.
    """
    values = {}
    for name in order:
        if name in hypers:
            values[name] = check_scalar(hypers[name], name, limits.get(name, "anything"), flags)
        elif name in arrays:
            check_shape(arrays, name)
        else:
            _ROWS[name](arrays, indices)
    return values


def check_scalar(value: Any, name: str, limit: str, flags: Mapping[str, bool]) -> float:
    """Return a hyperparameter as a float, if it keeps its limit."""
    number = as_scalar(value, name)
    relation, _, flag = limit.partition(", or 0 with ")
    if not (_LIMITS[relation](number) or (flags.get(flag, False) and number == 0)):
        raise InvalidArgumentError(f"{name} must be {limit}, not {number}")
    return number


_LIMITS: dict[str, Callable[[float], bool]] = {
    "anything": lambda x: True,
    "greater than 0": lambda x: x > 0,
    "at least 0": lambda x: x >= 0,
    "at most 0": lambda x: x <= 0,
}


def check_shape(arrays: Mapping[str, np.ndarray], name: str) -> None:
    """Refuse a slot, or a dense gradient, of another shape than the variable's."""
    var = arrays["var"]
    if arrays[name].shape != var.shape:
        raise InvalidArgumentError(
            f"var and {name} do not have the same shape: "
            f"{_listed(var.shape)} {_listed(arrays[name].shape)}"
        )


def check_rank(arrays: Mapping[str, np.ndarray], indices: np.ndarray) -> None:
    """Refuse a variable that has no rows."""
    if arrays["var"].ndim == 0:
        raise InvalidArgumentError("var must be at least 1 dimensional")


def check_list(arrays: Mapping[str, np.ndarray], indices: np.ndarray) -> None:
    """Refuse indices that are no list."""
    if indices.ndim != 1:
        raise InvalidArgumentError(f"indices must be one-dimensional: {_listed(indices.shape)}")


def check_columns(arrays: Mapping[str, np.ndarray], indices: np.ndarray) -> None:
    """Refuse gradient rows of another shape than the variable's."""
    *_, name = arrays
    var, grad = arrays["var"], arrays[name]
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


def check_rows(arrays: Mapping[str, np.ndarray], indices: np.ndarray) -> None:
    """Refuse more or fewer gradient rows than indices."""
    *_, name = arrays
    if len(arrays[name]) != len(indices):
        raise InvalidArgumentError(
            f"{name} must be the same size as indices in the first dimension: "
            f"{len(arrays[name])} {len(indices)}"
        )


def check_inner(arrays: Mapping[str, np.ndarray], indices: np.ndarray) -> None:
    """Refuse rows without elements."""
    shape = arrays["var"].shape
    if 0 in shape[1:]:
        raise InvalidArgumentError(f"the rows of var must not be empty: {_listed(shape)}")


_ROWS: dict[str, Callable[..., None]] = {
    "rank": check_rank,
    "indices": check_list,
    "columns": check_columns,
    "rows": check_rows,
    "inner": check_inner,
}


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


def check_lists(names: Sequence[str], lists: Sequence[Any]) -> None:
    """Refuse operands of many variables that are no lists of one length."""
    for name, arrays in zip(names, lists, strict=True):
        if not isinstance(arrays, (list, tuple)):
            raise InvalidTypeError(
                f"{name} must be a list of arrays as var is, not {type(arrays).__name__}"
            )
        if len(arrays) != len(lists[0]):
            raise InvalidArgumentError(f"{len(lists[0])} var, but {len(arrays)} {name}")


def check_many_variables(variables: Sequence[Sequence[np.ndarray]]) -> None:
    """Refuse variables, each with its slots, of several dtypes or that share memory."""
    for t, (var, *_) in enumerate(variables):
        if var.dtype != variables[0][0].dtype:
            raise InvalidTypeError(
                f"variable {t}: var must be {variables[0][0].dtype} as that of variable 0 is, "
                f"not {var.dtype}"
            )
    for (s, one), (t, other) in combinations(enumerate(variables), 2):
        if any(np.shares_memory(a, b) for a in one for b in other):
            raise InvalidArgumentError(f"variables {s} and {t} overlap in memory")
