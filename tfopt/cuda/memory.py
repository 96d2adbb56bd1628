"""Allocate, fill and read arrays on a GPU through the library of a given array."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from tfopt.cuda.device_array import name_of_dtype, numpy_dtype
from tfopt.errors import InvalidTypeError

__all__ = ["dtype_of", "filled_like", "new_like", "to_host", "write"]


def dtype_of(value: Any) -> np.dtype[Any]:
    """Return the NumPy dtype of an array on a GPU."""
    return numpy_dtype(name_of_dtype(value))


def new_like(value: Any, shape: tuple[int, ...]) -> Any:
    """Return an uninitialized array of a shape, with the device and dtype of another array."""
    torch, cupy, numba = (sys.modules.get(name) for name in ("torch", "cupy", "numba.cuda"))
    if torch is not None and isinstance(value, torch.Tensor):
        return value.new_empty(shape)
    if cupy is not None and isinstance(value, cupy.ndarray):
        with value.device:
            return cupy.empty(shape, value.dtype)
    if numba is not None and type(value).__module__.startswith("numba."):
        return numba.device_array(shape, value.dtype)
    if hasattr(value, "__array_namespace__"):  # the Python array API standard
        return value.__array_namespace__().empty(shape, dtype=value.dtype, device=value.device)
    raise InvalidTypeError(f"cannot allocate a result for {type(value).__name__}: pass out=")


def filled_like(value: Any, host: np.ndarray) -> Any:
    """Return a new array on the device of another, with the contents of a host array."""
    array = new_like(value, host.shape)
    write(array, host)
    return array


def to_host(value: Any) -> np.ndarray:
    """Return a copy of an array on a GPU."""
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
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(into, torch.Tensor):
        if isinstance(value, np.ndarray) and value.dtype.name == "bfloat16":
            value = torch.from_numpy(value.view(np.int16)).view(torch.bfloat16)
        into.detach().copy_(torch.as_tensor(value))
    elif hasattr(into, "copy_to_device"):
        into.copy_to_device(value)
    elif isinstance(value, np.ndarray):
        into.set(value)
    else:
        into[...] = value
