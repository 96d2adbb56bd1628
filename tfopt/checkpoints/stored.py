"""Arrays that stay in their file until they are read into their destination."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from tfopt.checkpoints.entries import AT_ONCE, Entry, empty, is_as_stored, name_of, pieces
from tfopt.errors import CheckpointError, InvalidArgumentError, InvalidTypeError

__all__ = ["Stored", "fill"]


class Stored:
    """An array of an open file that has been checked.

    Parameters
    ----------
    file : file object
    entry : Entry
    start : int
        The offset of its bytes in the file.
    seed, crc : int
        The initial and the final value of its checksum.
    """

    def __init__(self, file: BinaryIO, entry: Entry, start: int, seed: int, crc: int) -> None:
        self._file, self._entry, self._start = file, entry, start
        self._seed, self._crc = seed, crc

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self._entry.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the array."""
        return self._entry.numpy_dtype

    def read(self) -> np.ndarray:
        """Return a new array.

        Raises
        ------
        CheckpointError
            If the file is closed, or its contents changed after it was checked.
        OSError
            If the file cannot be read.
        """
        array, parts = empty(self._entry)
        self._fill(parts)
        return array

    def read_into(self, array: np.ndarray) -> None:
        """Read into an existing array of the same shape and dtype.

        Raises
        ------
        InvalidArgumentError, InvalidTypeError
            If `array` has another shape or dtype, or is read-only.
        CheckpointError, OSError
            As in `read`; then part of `array` has been overwritten.
        """
        if not isinstance(array, np.ndarray) or name_of(array.dtype) != self._entry.dtype:
            kind = getattr(array, "dtype", type(array).__name__)
            raise InvalidTypeError(f"{self._entry.name} is {self._entry.dtype}, not {kind}")
        if array.shape != self.shape:
            raise InvalidArgumentError(
                f"{self._entry.name} has shape {self.shape}, not {array.shape}"
            )
        if not array.flags.writeable:
            raise InvalidArgumentError(f"{self._entry.name} cannot be read into a read-only array")
        if is_as_stored(array):
            self._fill(pieces(array, AT_ONCE))
        else:
            array[...] = self.read()

    def _fill(self, parts: Iterator[memoryview]) -> None:
        if self._file.closed:
            raise CheckpointError(f"{self._entry.name}: the file is closed")
        self._file.seek(self._start)
        if fill(self._file, parts, self._seed) != self._crc:
            raise CheckpointError(f"{self._entry.name}: the file changed after it was checked")

    def __repr__(self) -> str:
        return f"<Stored {self._entry.name!r} shape={self.shape} dtype={self.dtype}>"


def fill(file: BinaryIO, parts: Iterator[memoryview], crc: int) -> int:
    """Read bytes of a file into parts of memory; return their checksum.

    Raises
    ------
    CheckpointError
        If the file ends early.
    """
    for part in parts:
        if file.readinto(part) != len(part):  # type: ignore[attr-defined]
            raise CheckpointError("the file is truncated")
        crc = zlib.crc32(part, crc)
    return crc
