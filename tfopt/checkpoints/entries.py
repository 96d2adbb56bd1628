"""The arrays of a checkpoint: what describes each, and their bytes."""

from __future__ import annotations

import math
import sys
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tfopt.errors import InvalidTypeError

__all__ = ["Entry", "checksum", "described", "empty", "pieces"]

_PIECE = 1 << 24  # bytes that are written or read at once

#: By name of a dtype: that of its bytes in a file, and how many of these make one element.
STORED: dict[str, tuple[str, int]] = {
    **{name: (name, 1) for name in ("bool", "float16", "float32", "float64")},
    **{
        f"{kind}{bits}": (f"{kind}{bits}", 1)
        for kind in ("int", "uint")
        for bits in (8, 16, 32, 64)
    },
    "bfloat16": ("uint16", 1),
    "complex64": ("float32", 2),
    "complex128": ("float64", 2),
}


class Entry(NamedTuple):
    """One array of a file."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def stored(self) -> np.dtype[Any]:
        """The dtype of its bytes: always with the lowest byte first."""
        return np.dtype(STORED[self.dtype][0]).newbyteorder("<")

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Its shape in that dtype: complex numbers are pairs."""
        pairs = STORED[self.dtype][1] == 2
        return (*self.shape, 2) if pairs else self.shape

    @property
    def nbytes(self) -> int:
        """How many bytes it takes."""
        return math.prod(self.stored_shape) * self.stored.itemsize


def described(name: str, array: np.ndarray) -> Entry:
    """Return what describes an array.

    Raises
    ------
    InvalidTypeError
        If a checkpoint cannot hold its dtype.
    """
    if array.dtype.name not in STORED:
        raise InvalidTypeError(f"a checkpoint cannot hold {name} of dtype {array.dtype}")
    return Entry(name, array.dtype.name, array.shape)


def pieces(array: np.ndarray) -> Iterator[memoryview]:
    """Give an array's bytes as a file has them; without a copy, if it is contiguous."""
    if array.size == 0:
        return
    if array.dtype.name == "bfloat16":
        array = array.view(np.uint16)
    stored: np.dtype[Any] = array.dtype.newbyteorder("<")
    if array.flags.c_contiguous and stored == array.dtype:
        data = memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        for start in range(0, len(data), _PIECE):
            yield data[start : start + _PIECE]
        return
    size = _PIECE // stored.itemsize
    parts = np.nditer(
        [array], ["external_loop", "buffered"], [["readonly"]], [stored], "C", "equiv",
        buffersize=size,
    )  # fmt: skip
    for part in parts:
        yield memoryview(np.ascontiguousarray(part).view(np.uint8))  # type: ignore[arg-type]


def checksum(parts: Iterator[memoryview], crc: int) -> int:
    """Return the CRC-32 of bytes that come in parts, after those with another one."""
    for part in parts:
        crc = zlib.crc32(part, crc)
    return crc


def empty(entry: Entry) -> tuple[np.ndarray, Iterator[memoryview]]:
    """Return a new array of an entry, and its memory in parts, to be filled."""
    stored = np.empty(entry.stored_shape, entry.stored)
    array = stored if sys.byteorder == "little" else stored.view()
    if entry.dtype == "bfloat16":
        array = array.view(_bfloat16())
    elif STORED[entry.dtype][1] == 2:
        array = array.view(np.dtype(entry.dtype)).reshape(entry.shape)
    return array, pieces(stored)


def _bfloat16() -> np.dtype[Any]:
    import ml_dtypes

    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype
