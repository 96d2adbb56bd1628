"""Where an array is: in the host's memory, or on a GPU, whose side is loaded when it is needed."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt.autodiff.core import Readable

__all__ = [
    "apply_on_gpu",
    "first_is_device_array",
    "gpu_arrays",
    "gpu_clip_ops",
    "gpu_steps",
    "is_device_array",
]


def is_device_array(value: Any) -> bool:
    """Return whether an array, or that of a variable, is in a GPU's memory.

    Also of a torch tensor that requires a gradient, which tells it by a RuntimeError.
    """
    if isinstance(value, Readable):
        value = value._array
    if isinstance(value, np.ndarray):
        return False
    try:
        return hasattr(value, "__cuda_array_interface__")
    except RuntimeError:
        return True


def first_is_device_array(value: Any) -> bool:
    """Return whether an array, or the first of a list, is in a GPU's memory."""
    if isinstance(value, (list, tuple)):
        value = value[0] if value else None
    return is_device_array(value)


def apply_on_gpu(*arguments: Any) -> None:
    """Call :func:`tfopt.cuda.calls.apply`."""
    from tfopt.cuda.calls import apply

    apply(*arguments)


def gpu_clip_ops() -> Any:
    """Return :mod:`tfopt.cuda.clip_ops`."""
    from tfopt.cuda import clip_ops

    return clip_ops


def gpu_steps() -> Any:
    """Return :mod:`tfopt.cuda.steps`."""
    from tfopt.cuda import steps

    return steps


def gpu_arrays() -> Any:
    """Return :mod:`tfopt.cuda.transfer`."""
    from tfopt.cuda import transfer

    return transfer
