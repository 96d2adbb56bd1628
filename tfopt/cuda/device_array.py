"""The address, shape and dtype of arrays on a GPU (CuPy, Numba, torch)."""

from __future__ import annotations

import math
import sys
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from tfopt.cuda.blocks import Blocks
from tfopt.errors import InvalidTypeError
from tfopt.imports import bfloat16
from tfopt.kernels.arrays.coerce import BLOCK_FORMATS
from tfopt.variable import Variable

__all__ = ["BLOCK_DTYPES", "DeviceArray", "as_device_array", "name_of_dtype", "numpy_dtype"]

#: Names of dtypes by the interface's typestr; bfloat16 is identified by the array's own dtype.
_DTYPES = {"<f2": "float16", "<f4": "float32", "<f8": "float64"}
_DTYPES |= {"|i1": "int8", "<i2": "int16", "<i4": "int32", "<i8": "int64"}
_DTYPES |= {"|u1": "uint8", "<u2": "uint16", "<u4": "uint32", "<u8": "uint64"}
_ITEMSIZES = {name: int(typestr[2:]) for typestr, name in _DTYPES.items()} | {"bfloat16": 2}
#: The dtypes of blocks of codes by their names, which are those in files.
BLOCK_DTYPES = {name: dtype for name, *_, dtype in BLOCK_FORMATS}
_ITEMSIZES |= {name: dtype.itemsize for name, dtype in BLOCK_DTYPES.items()}

LEGACY_STREAM = 1  # for arrays that report no stream; other streams synchronize with it


class DeviceArray(NamedTuple):
    """The location and layout of an array."""

    address: int
    shape: tuple[int, ...]
    dtype: str
    contiguous: bool
    read_only: bool
    stream: int

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def end(self) -> int:
        """The address past the last element; the array must be contiguous and real."""
        if self.dtype not in _ITEMSIZES:
            raise InvalidTypeError(f"arrays of {self.dtype} on a GPU are not supported")
        return self.address + self.size * _ITEMSIZES[self.dtype]


def as_device_array(value: Any, name: str, as_what: str = "var") -> DeviceArray:
    """Return the description of an array on a GPU; raise for host arrays and other objects.

    `name` is the name of the array in an error, `as_what` that of the array that is on the GPU.
    """
    if isinstance(value, Variable):
        value = value.value()
    if isinstance(value, Blocks):
        there = as_device_array(value.array, name, as_what)
        return there._replace(shape=value.shape, dtype=name_of_dtype(value))
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if not value.is_cuda:
            raise _not_on_gpu(value, name, as_what)
        return DeviceArray(
            value.data_ptr(),
            tuple(value.shape),
            name_of_dtype(value),
            value.is_contiguous(),
            False,
            # torch.cuda.current_stream makes an object, for which it takes twenty times as long
            torch._C._cuda_getCurrentRawStream(value.get_device()),
        )
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is None:
        raise _not_on_gpu(value, name, as_what)
    address, read_only = interface["data"]
    dtype = _DTYPES.get(interface["typestr"], str(getattr(value, "dtype", interface["typestr"])))
    shape = tuple(interface["shape"])
    contiguous = _is_contiguous(shape, interface.get("strides"), _ITEMSIZES.get(dtype, 0))
    return DeviceArray(
        address, shape, dtype, contiguous, read_only, interface.get("stream") or LEGACY_STREAM
    )


def _not_on_gpu(value: Any, name: str, as_what: str) -> InvalidTypeError:
    return InvalidTypeError(
        f"{name} must be an array on the GPU, like {as_what}, "
        f"not {type(value).__name__} on the host"
    )


def _is_contiguous(shape: tuple[int, ...], strides: Any, itemsize: int) -> bool:
    """Return whether an array is C-contiguous; without strides it is."""
    if strides is None or 0 in shape:
        return True
    expected = itemsize
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n > 1 and stride != expected:
            return False
        expected *= n
    return True


def name_of_dtype(value: Any) -> str:
    """Return the name of the dtype of an array on a GPU, of any library."""
    if isinstance(value, Blocks):
        return next(name for name, dtype in BLOCK_DTYPES.items() if dtype == value.dtype)
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        typestr: str = value.__cuda_array_interface__["typestr"]
        return _DTYPES.get(typestr, typestr)
    return _name_of(dtype)


@cache
def _name_of(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the NumPy dtype with a name; bfloat16 is that of ml_dtypes."""
    if name in BLOCK_DTYPES:
        return BLOCK_DTYPES[name]
    try:
        return bfloat16() if name == "bfloat16" else np.dtype(name)
    except ImportError:
        raise InvalidTypeError(
            "bfloat16 arrays on a GPU require the package ml_dtypes: install it"
        ) from None
    except TypeError:
        raise InvalidTypeError(f"arrays of {name} on a GPU are not supported") from None
