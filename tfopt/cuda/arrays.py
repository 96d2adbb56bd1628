"""What is known of an array on a GPU: CuPy's, Numba's, torch's."""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

from tfopt.errors import InvalidTypeError
from tfopt.variable import Variable

__all__ = ["DeviceArray", "as_device_array"]

#: Names of the dtypes by the interface's typestr; bfloat16 is told by the array's own dtype.
_DTYPES = {"<f2": "float16", "<f4": "float32", "<f8": "float64"}
_DTYPES |= {"|i1": "int8", "<i2": "int16", "<i4": "int32", "<i8": "int64"}
_DTYPES |= {"|u1": "uint8", "<u2": "uint16", "<u4": "uint32", "<u8": "uint64"}
_ITEMSIZES = {name: int(typestr[2:]) for typestr, name in _DTYPES.items()} | {"bfloat16": 2}

LEGACY_STREAM = 1  # of an array that names none; the other streams wait for it


class DeviceArray(NamedTuple):
    """Where an array lies and how."""

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
        """The address after the last element; of a contiguous array of real numbers."""
        if self.dtype not in _ITEMSIZES:
            raise InvalidTypeError(f"arrays of {self.dtype} on a GPU are not supported")
        return self.address + self.size * _ITEMSIZES[self.dtype]


def as_device_array(value: Any, name: str, as_what: str = "var") -> DeviceArray:
    """Return what is known of an array on a GPU, as that of another name is; refuse the rest."""
    if isinstance(value, Variable):
        value = value.value()
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if not value.is_cuda:
            raise _not_there(value, name, as_what)
        return DeviceArray(
            value.data_ptr(),
            tuple(value.shape),
            str(value.dtype).removeprefix("torch."),
            value.is_contiguous(),
            False,
            torch.cuda.current_stream(value.device).cuda_stream,
        )
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is None:
        raise _not_there(value, name, as_what)
    address, read_only = interface["data"]
    dtype = _DTYPES.get(interface["typestr"], str(getattr(value, "dtype", interface["typestr"])))
    shape = tuple(interface["shape"])
    contiguous = _is_contiguous(shape, interface.get("strides"), _ITEMSIZES.get(dtype, 0))
    return DeviceArray(
        address, shape, dtype, contiguous, read_only, interface.get("stream") or LEGACY_STREAM
    )


def _not_there(value: Any, name: str, as_what: str) -> InvalidTypeError:
    return InvalidTypeError(
        f"{name} must be an array on the GPU as {as_what} is, "
        f"not {type(value).__name__} of the host"
    )


def _is_contiguous(shape: tuple[int, ...], strides: Any, itemsize: int) -> bool:
    """Whether elements follow each other in C's order; without strides they do."""
    if strides is None or 0 in shape:
        return True
    expected = itemsize
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n > 1 and stride != expected:
            return False
        expected *= n
    return True
