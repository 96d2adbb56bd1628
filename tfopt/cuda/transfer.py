"""Arrays on a GPU made, filled and read: by the library whose array the argument is."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from tfopt.cuda.arrays import as_device_array
from tfopt.cuda.clip_arguments import numpy_dtype
from tfopt.cuda.results import new_like

__all__ = ["as_device_array", "dtype_of", "filled_like", "to_host", "write"]


def dtype_of(value: Any) -> np.dtype[Any]:
    """Return NumPy's dtype of an array on a GPU."""
    return numpy_dtype(as_device_array(value, "var").dtype)


def filled_like(value: Any, host: np.ndarray) -> Any:
    """Return an array beside another, with what an array of the host has."""
    array = new_like(value, host.shape)
    write(array, host)
    return array


def to_host(value: Any) -> np.ndarray:
    """Return a copy of an array on a GPU."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.detach()
        if value.dtype == torch.bfloat16:  # of which NumPy knows nothing
            return np.asarray(value.view(torch.int16).cpu().numpy()).view(dtype_of(value))
        return np.asarray(value.cpu().numpy())
    read = value.copy_to_host if hasattr(value, "copy_to_host") else value.get
    return np.asarray(read())


def write(into: Any, value: Any) -> None:
    """Copy an array of the host, or of the same library, into one on a GPU."""
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
