"""Validation of calls with arrays on a GPU: the host's checks, and those of their memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfopt.cuda.device_array import BLOCK_DTYPES, DeviceArray, as_device_array
from tfopt.cuda.library import Library
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.kernels.arrays.overlaps import overlapping
from tfopt.kernels.update.checks import checked_hypers
from tfopt.kernels.update.step_table import Kernel

__all__ = [
    "check_arrays",
    "check_in_order",
    "check_indices",
    "check_layout",
    "check_memory",
    "check_scalar",
    "device_of",
]

_DTYPES = ("float16", "bfloat16", "float32", "float64")
_STORED = (*_DTYPES[:3], *BLOCK_DTYPES)  # what slots may be, whatever the variable, unless float64


def _listed(shape: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"


def check_arrays(kernel: Kernel, arguments: tuple[Any, ...]) -> list[DeviceArray]:
    """Check dtypes and layouts of the variable, its slots and the gradient, and return them."""
    arrays: list[DeviceArray] = []
    for name, value in zip(kernel.rule.operands, arguments, strict=True):
        array = as_device_array(value, name)
        var = arrays[0] if arrays else array
        written = name != kernel.rule.grad
        if var.dtype not in _DTYPES:
            raise InvalidTypeError(
                f"var must be {', '.join(_DTYPES[:-1])} or {_DTYPES[-1]} on a GPU, not {var.dtype}"
            )
        if written:
            by_elements = kernel.rule.reduction is None
            other = by_elements and var.dtype != "float64" and array.dtype in _STORED
        else:
            other = var.dtype == "float32" and array.dtype in _DTYPES[:2]
        if array.dtype != var.dtype and not other:
            raise InvalidTypeError(f"{name} must be {var.dtype} as var is, not {array.dtype}")
        check_layout(array, name, written)
        arrays.append(array)
    return arrays


def check_layout(array: DeviceArray, name: str, written: bool) -> None:
    """Raise if an array is not contiguous, or is to be written and read-only."""
    if not array.contiguous:
        raise InvalidArgumentError(f"{name} is not contiguous: arrays on a GPU must be")
    if written and array.read_only:
        raise InvalidArgumentError(f"{name} is read-only")


def check_indices(value: Any) -> DeviceArray:
    """Check the type and layout of the indices, and return them."""
    indices = as_device_array(value, "indices")
    if indices.dtype not in ("int32", "int64"):
        raise InvalidTypeError(f"indices must be int32 or int64, not {indices.dtype}")
    check_layout(indices, "indices", False)
    return indices


def check_scalar(value: Any, name: str, device: int, library: Library) -> DeviceArray:
    """Check that a number is a floating scalar on the GPU of the other arrays, and return it."""
    number = as_device_array(value, name)
    if number.dtype not in _DTYPES:
        raise InvalidTypeError(f"{name} must be of floats, not {number.dtype}")
    if number.shape:
        raise InvalidArgumentError(f"{name} is not a scalar: {_listed(number.shape)}")
    its_device = device_of([(name, number)], library)
    if its_device != device:
        raise InvalidArgumentError(
            f"{name} is on GPU {its_device}, but the other arrays are on GPU {device}"
        )
    return number


def check_in_order(
    kernel: Kernel,
    arrays: list[DeviceArray],
    indices: DeviceArray | None,
    hypers: tuple[Any, ...],
    flags: int,
) -> tuple[float, ...]:
    """Run the checks of the rule's row in order, raising for the first violation.

    Returns
    -------
    hypers : tuple of float
    """
    ids = None if indices is None else _standing_for(indices)
    operands = tuple(map(_standing_for, arrays))
    return checked_hypers(kernel, operands, ids, hypers, flags)


def _standing_for(array: DeviceArray) -> np.ndarray:
    """Return an array of the same shape, whose elements are all one, for checks of the host."""
    dtype = BLOCK_DTYPES.get(array.dtype, np.dtype(np.uint8))
    strides = (0,) * len(array.shape)
    return np.ndarray(array.shape, dtype, bytes(dtype.itemsize), strides=strides)


def check_memory(
    names: Sequence[str],
    arrays: list[DeviceArray],
    indices: DeviceArray | None,
    library: Library,
) -> int:
    """Check that arrays, the gradient last, do not overlap and are on one device, and return it."""
    every = [*zip(names, arrays, strict=True)]
    if indices is not None:
        every.append(("indices", indices))
    grad = len(arrays) - 1
    pairs = overlapping((array.address, array.end, k < grad) for k, (_, array) in enumerate(every))
    for j, k in sorted((min(pair), max(pair)) for pair in pairs):
        if k == grad and indices is None and arrays[j].address == arrays[k].address:
            continue
        advice = ": on a GPU the gradient must be a copy" if k == grad else ""
        raise InvalidArgumentError(f"{every[j][0]} and {every[k][0]} overlap in memory{advice}")
    return device_of(every, library)


def device_of(arrays: list[tuple[str, DeviceArray]], library: Library) -> int:
    """Return the common device of named arrays; raise if there are several."""
    device = -1
    for name, array in arrays:
        if array.size == 0:
            continue
        its_device = library.device_of(array.address)
        if its_device < 0:
            raise InvalidArgumentError(f"{name} is not in a GPU's memory")
        if device not in (-1, its_device):
            raise InvalidArgumentError(
                f"{name} is on GPU {its_device}, but preceding arrays are on GPU {device}"
            )
        device = its_device
    return max(device, 0)
