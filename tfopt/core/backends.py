"""Backends: the modules that compute with arrays in a device's memory.

A backend is a module with the functions that `tfopt.cuda.backend` lists. Each checks its arguments
before anything is written, and raises the same exceptions as the function for host arrays.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from tfopt.core.engine import Readable
from tfopt.imports import imported

__all__ = ["backend_of", "first_is_device_array", "is_device_array"]

#: The attribute that identifies a device's arrays, and the backend that computes with them.
BACKENDS = [("__cuda_array_interface__", "tfopt.cuda.backend")]
_loaded = cache(imported)


def is_device_array(value: Any) -> bool:
    """Return whether an array or a variable is in a device's memory; loads no backend."""
    if isinstance(value, Readable):
        value = value._array
    return not isinstance(value, np.ndarray) and _name_of(value) is not None


def first_is_device_array(value: Any) -> bool:
    """Return whether an array, or the first array of a list, is in a device's memory."""
    return is_device_array(_first(value))


def backend_of(value: Any) -> ModuleType:
    """Return the backend of a device array, a variable on a device, or the first of a list.

    Backends are imported on first use.

    Raises
    ------
    TypeError
        If no backend supports the array.
    """
    value = _first(value)
    name = _name_of(value._array if isinstance(value, Readable) else value)
    if name is None:
        raise TypeError(f"no backend supports arrays of type {type(value).__name__}")
    backend: ModuleType = _loaded(name)
    return backend


def _first(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return value[0] if value else None
    return value


def _name_of(value: Any) -> str | None:
    """Return the name of an array's backend; None if it is not on a device."""
    for attribute, name in BACKENDS:
        try:
            if hasattr(value, attribute):
                return name
        except (KeyError, RuntimeError):  # of torch: it requires a gradient, or has another layout
            return name if getattr(value, "is_cuda", True) else None
    return None
