"""Arguments of bags: arrays, lists of integers and of real numbers, offsets."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt.bags.memory import copied
from tfopt.core.backends import backend_of, is_device_array
from tfopt.core.engine import Operand
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.kernels.arrays.coerce import as_array, of_torch

__all__ = ["array_of", "check_offsets", "check_out", "integers", "real_numbers"]


def array_of(value: Any, name: str) -> Any:
    """Return an array, or one on a GPU as it is."""
    return value if is_device_array(value) else as_array(value, name)


def _listed(value: Any, name: str) -> np.ndarray:
    if is_device_array(value):
        value = backend_of(value).to_host(value)
    array = of_torch(value, name)
    found = np.asarray(value) if array is None else np.asarray(array)
    if found.ndim != 1:
        raise InvalidArgumentError(
            f"{name} must be one-dimensional, not of the shape {found.shape}"
        )
    return found


def integers(value: Any, name: str) -> np.ndarray:
    """Return a copy, in which no other thread changes anything."""
    found = _listed(value, name)
    if found.size and found.dtype not in (np.int32, np.int64):
        raise InvalidTypeError(f"{name} must be int32 or int64, not {found.dtype}")
    return copied(name, found, np.intp)


def real_numbers(value: Any, n: int) -> np.ndarray:
    """Return a copy of weights, one for each of n ids."""
    if isinstance(value, Operand):
        raise InvalidTypeError(
            "weights have no gradient, so they must be an array, not a variable or a tensor: pass "
            "their numpy()"
        )
    found = _listed(value, "weights")
    if found.size and found.dtype.kind not in "fiub" and found.dtype.name != "bfloat16":
        raise InvalidTypeError(f"weights must be real numbers, not {found.dtype}")
    if found.size != n:
        raise InvalidArgumentError(f"there are {found.size} weights for {n} ids")
    return np.array(found, np.float64)


def check_offsets(begins: np.ndarray, n: int, with_last: bool) -> None:
    """Raise unless offsets say where the bags of n ids begin."""
    if begins.size and begins[0] != 0:
        raise InvalidArgumentError(f"offsets must begin with 0, not {begins[0]}")
    falls = np.flatnonzero(begins[1:] < begins[:-1])
    if falls.size:
        k = falls[0] + 1
        raise InvalidArgumentError(
            f"offsets must not decrease, but offsets[{k}] is {begins[k]}, less than {begins[k - 1]}"
        )
    last = begins[-1] if begins.size else 0
    if with_last and (not begins.size or last != n):
        raise InvalidArgumentError(
            f"the last offset must be the number of ids, {n}, not {last if begins.size else 'none'}"
        )
    if last > n:
        raise InvalidArgumentError(f"offsets go to {last}, but there are {n} ids")
    if n and not begins.size:
        raise InvalidArgumentError(f"there are {n} ids, but no offsets, where bags begin")


def check_out(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise unless an array can receive a result of a shape and a dtype."""
    if not isinstance(out, np.ndarray) or out.dtype != dtype:
        found = getattr(out, "dtype", type(out).__name__)
        raise InvalidTypeError(f"out must be an array of {dtype}, as the table, not {found}")
    if out.shape != shape:
        raise InvalidArgumentError(f"out must have the shape {shape}, not {out.shape}")
    if not out.flags.writeable:
        raise InvalidArgumentError("out is read-only")
