"""What stands around the arrays in a file: it follows from the text and the arrays' entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO, Protocol

from tfopt.checkpoints.entries import Entry
from tfopt.errors import CheckpointError

__all__ = ["MOST_TEXT", "MOST_THINGS", "Framing", "Reader", "exactly", "has_too_many"]

MOST_TEXT = 100_000_000  # bytes; safetensors has this limit, too
#: Of lists, dictionaries and what is in them, which take more memory than a file has bytes for
#: them: so many, and one more for each 32 bytes of the file.
MOST_THINGS = 1_000_000


class Framing(Protocol):
    """The bytes between arrays. A file with others, or another length, is refused."""

    def __init__(self, text: bytes, entries: Sequence[Entry]) -> None: ...

    def opening(self) -> bytes:
        """Return what comes first."""
        ...

    def before(self, k: int) -> bytes:
        """Return what comes before an array."""
        ...

    def seed(self, k: int) -> int:
        """Return the checksum that an array's goes on from."""
        ...

    def after(self, k: int, crc: int) -> bytes:
        """Return what comes after an array with this checksum."""
        ...

    def closing(self, crcs: Sequence[int]) -> bytes:
        """Return what comes last."""
        ...


class Reader(Protocol):
    """Finds the text in a file of so many bytes."""

    def __call__(self, file: BinaryIO, size: int) -> bytes: ...


def has_too_many(text: bytes, size: int) -> bool:
    """Return whether a file of so many bytes may not have a JSON text: before it is parsed."""
    things = sum(text.count(mark) for mark in (b"[", b"{", b",", b":"))
    return things > MOST_THINGS + size // 32


def exactly(file: BinaryIO, count: int) -> bytes:
    """Read so many bytes.

    Raises
    ------
    CheckpointError
        If the file ends before.
    """
    data = file.read(count)
    if len(data) != count:
        raise CheckpointError("it is cut short")
    return data
