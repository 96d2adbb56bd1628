"""Allocate, fill and read arrays on a GPU through the library of a given array."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tfopt.cuda.blocks import Blocks
from tfopt.cuda.device_array import BLOCK_DTYPES, name_of_dtype, numpy_dtype
from tfopt.errors import InvalidTypeError

__all__ = ["dtype_of", "filled_like", "new_like", "to_host", "write"]


def dtype_of(value: Any) -> np.dtype[Any]:
    """Return the NumPy dtype of an array on a GPU."""
    return numpy_dtype(name_of_dtype(value))


def new_like(value: Any, shape: tuple[int, ...], dtype: np.dtype[Any] | None = None) -> Any:
    """Return an uninitialized array of a shape, with the device and library of another array.

    It also has its dtype, unless another one is given.
    """
    other = None if dtype is None or dtype == dtype_of(value) else dtype
    torch, cupy, numba = (sys.modules.get(name) for name in ("torch", "cupy", "numba.cuda"))
    if torch is not None and isinstance(value, torch.Tensor):
        return value.new_empty(
            shape, dtype=value.dtype if other is None else getattr(torch, other.name)
        )
    if cupy is not None and isinstance(value, cupy.ndarray):
        with value.device:
            return _of_dtype(partial(cupy.empty, shape, other or value.dtype), other)
    if numba is not None and type(value).__module__.startswith("numba."):
        return _of_dtype(partial(numba.device_array, shape, other or value.dtype), other)
    if hasattr(value, "__array_namespace__"):  # the Python array API standard
        space = value.__array_namespace__()
        named = value.dtype if other is None else getattr(space, other.name, other)
        return _of_dtype(partial(space.empty, shape, dtype=named, device=value.device), other)
    raise InvalidTypeError(f"cannot allocate a result for {type(value).__name__}: pass out=")


def _of_dtype(make: Callable[[], Any], dtype: np.dtype[Any] | None) -> Any:
    """Return a new array; raise if its library has none of the dtype."""
    try:
        return make()
    except (TypeError, ValueError, NotImplementedError) as error:
        if dtype is None:
            raise
        raise InvalidTypeError(
            f"the library of the arrays on the GPU has none of {dtype}: {error}"
        ) from None


def filled_like(value: Any, host: np.ndarray) -> Any:
    """Return a new array on the device of another, with the contents and dtype of a host array."""
    if host.dtype in BLOCK_DTYPES.values():
        count = host.size * host.dtype.itemsize
        array: Any = Blocks(new_like(value, (count,), np.dtype(np.uint8)), host.dtype)
    else:
        array = new_like(value, host.shape, host.dtype)
    write(array, host)
    return array


def to_host(value: Any) -> np.ndarray:
    """Return a copy of an array on a GPU."""
    if isinstance(value, Blocks):
        return to_host(value.array).view(value.dtype)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.detach()
        if value.dtype == torch.bfloat16:  # which NumPy does not have
            return np.asarray(value.view(torch.int16).cpu().numpy()).view(dtype_of(value))
        return np.asarray(value.cpu().numpy())
    read = value.copy_to_host if hasattr(value, "copy_to_host") else value.get
    return np.asarray(read())


def write(into: Any, value: Any) -> None:
    """Copy a host array, or an array of the same library, to one on a GPU."""
    if isinstance(into, Blocks):
        on_host = isinstance(value, np.ndarray)
        into, value = into.array, _bytes_of(value) if on_host else value.array
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(into, torch.Tensor):
        if isinstance(value, np.ndarray) and not value.flags.writeable:
            value = value.copy()  # torch warns of what could be written to
        if isinstance(value, np.ndarray) and value.dtype.name == "bfloat16":
            value = torch.from_numpy(value.view(np.int16)).view(torch.bfloat16)
        into.detach().copy_(torch.as_tensor(value))
    elif hasattr(into, "copy_to_device"):
        into.copy_to_device(value)
    elif isinstance(value, np.ndarray):
        into.set(value)
    else:
        into[...] = value


def _bytes_of(blocks: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(blocks).view(np.uint8).reshape(-1)
