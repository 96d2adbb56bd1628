"""The arrays of a checkpoint: their descriptions and their bytes."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tfopt.errors import InvalidTypeError
from tfopt.imports import bfloat16
from tfopt.storage import BLOCKS, FORMATS

__all__ = [
    "AT_ONCE",
    "STORED",
    "Entry",
    "described",
    "empty",
    "is_as_stored",
    "is_name",
    "is_sound",
    "name_of",
    "pieces",
]

AT_ONCE = 1 << 18  # bytes read, checksummed or written at a time: few enough to stay in cache

#: By name of a dtype: the dtype stored in a file, and how many of its elements make one element.
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


_BLOCKS = {each.name: each.dtype for each in FORMATS}
STORED |= {name: ("uint8", dtype.itemsize) for name, dtype in _BLOCKS.items()}


class Entry(NamedTuple):
    """One array of a file."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def stored(self) -> np.dtype[Any]:
        """The dtype in the file, always little-endian."""
        return np.dtype(STORED[self.dtype][0]).newbyteorder("<")

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape in that dtype: complex numbers are pairs, blocks of codes are bytes."""
        parts = STORED[self.dtype][1]
        return (*self.shape, parts) if parts > 1 else self.shape

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The dtype of the array."""
        return _dtype_named(self.dtype)

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return math.prod(self.stored_shape) * self.stored.itemsize


def described(name: str, array: np.ndarray) -> Entry:
    """Return the entry of an array.

    Raises
    ------
    InvalidTypeError
        If checkpoints do not support its dtype.
    """
    dtype = name_of(array.dtype)
    if dtype not in STORED:
        raise InvalidTypeError(f"a checkpoint cannot hold {name} of dtype {array.dtype}")
    return Entry(name, dtype, array.shape)


def name_of(dtype: np.dtype[Any]) -> str:
    """Return the name of a dtype in a file."""
    return next((name for name, blocks in _BLOCKS.items() if dtype == blocks), dtype.name)


def is_sound(entry: Entry) -> bool:
    """Return whether an entry declared by a file is valid."""
    named = is_name(entry.name) and isinstance(entry.dtype, str) and entry.dtype in STORED
    if not named or not all(type(length) is int and length >= 0 for length in entry.shape):
        return False
    # NumPy's limits; the length of the file limits only arrays that are not empty
    size = math.prod(length or 1 for length in entry.stored_shape) * entry.stored.itemsize
    return len(entry.stored_shape) <= 64 and (entry.nbytes > 0 or size <= sys.maxsize)


def is_name(name: Any) -> bool:
    """Return whether a value can be the name of an array in a file."""
    try:
        return len(name.encode()) < 1 << 15
    except (AttributeError, UnicodeEncodeError):
        return False


def pieces(array: np.ndarray, most: int) -> Iterator[memoryview]:
    """Yield the bytes of an array in file format, at most `most` at a time.

    Contiguous arrays are not copied.
    """
    if array.size == 0:
        return
    array = _plain(array)
    if is_as_stored(array):
        data = memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        for start in range(0, len(data), most):
            yield data[start : start + most]
        return
    stored: np.dtype[Any] = array.dtype.newbyteorder("<")
    size = most // stored.itemsize
    parts = np.nditer(
        [array], ["external_loop", "buffered"], [["readonly"]], [stored], "C", "equiv",
        buffersize=size,
    )  # fmt: skip
    for part in parts:
        yield memoryview(np.ascontiguousarray(part).view(np.uint8))  # type: ignore[arg-type]


def is_as_stored(array: np.ndarray) -> bool:
    """Return whether an array's memory has the same bytes as in a file."""
    dtype = _plain(array).dtype
    return bool(array.flags.c_contiguous) and dtype == dtype.newbyteorder("<")


def _plain(array: np.ndarray) -> np.ndarray:
    """Return an array of bfloat16, or of blocks of codes, as one of a dtype of NumPy's."""
    if array.dtype in BLOCKS:
        array = array if array.flags.c_contiguous else array.copy()
        return array.view(np.uint8)
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


def empty(entry: Entry) -> tuple[np.ndarray, Iterator[memoryview]]:
    """Return a new array for an entry, and its memory in parts, to be filled."""
    stored = np.empty(entry.stored_shape, entry.stored)
    array = stored if sys.byteorder == "little" else stored.view()
    if array.dtype != entry.numpy_dtype:
        array = array.view(entry.numpy_dtype).reshape(entry.shape)
    return array, pieces(stored, AT_ONCE)


def _dtype_named(name: str) -> np.dtype[Any]:
    if name == "bfloat16":
        return bfloat16()
    return _BLOCKS.get(name) or np.dtype(name)
