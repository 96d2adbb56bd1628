"""Arrays for results on a GPU: made by the library whose array the argument is."""

from __future__ import annotations

import sys
from typing import Any

from tfopt.errors import InvalidTypeError

__all__ = ["new_like"]


def new_like(value: Any, shape: tuple[int, ...]) -> Any:
    """Return an array of a shape, not yet written, beside another and of its dtype."""
    torch, cupy, numba = (sys.modules.get(name) for name in ("torch", "cupy", "numba.cuda"))
    if torch is not None and isinstance(value, torch.Tensor):
        return value.new_empty(shape)
    if cupy is not None and isinstance(value, cupy.ndarray):
        with value.device:
            return cupy.empty(shape, value.dtype)
    if numba is not None and type(value).__module__.startswith("numba."):
        return numba.device_array(shape, value.dtype)
    if hasattr(value, "__array_namespace__"):  # of the Python array API standard
        return value.__array_namespace__().empty(shape, dtype=value.dtype, device=value.device)
    raise InvalidTypeError(f"cannot allocate a result for {type(value).__name__}: pass out=")
