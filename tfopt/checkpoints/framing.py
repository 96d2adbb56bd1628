"""The bytes around the arrays in a file, which are determined by the text and the entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO, Protocol

from tfopt.checkpoints.entries import Entry
from tfopt.core.documents import MOST_THINGS
from tfopt.errors import CheckpointError

__all__ = ["MOST_TEXT", "MOST_THINGS", "Framing", "Reader", "exactly", "has_too_many"]

MOST_TEXT = 100_000_000  # bytes; the limit of safetensors


class Framing(Protocol):
    """The bytes between arrays. Files with other bytes, or another length, are rejected."""

    def __init__(self, text: bytes, entries: Sequence[Entry]) -> None: ...

    def opening(self) -> bytes:
        """Return the bytes at the beginning of the file."""
        ...

    def before(self, k: int) -> bytes:
        """Return the bytes before an array."""
        ...

    def seed(self, k: int) -> int:
        """Return the initial value of an array's checksum."""
        ...

    def after(self, k: int, crc: int) -> bytes:
        """Return the bytes after an array with this checksum."""
        ...

    def closing(self, crcs: Sequence[int]) -> bytes:
        """Return the bytes at the end of the file."""
        ...


class Reader(Protocol):
    """Reads the text of a file of `size` bytes."""

    def __call__(self, file: BinaryIO, size: int) -> bytes: ...


def has_too_many(text: bytes, size: int) -> bool:
    """Return whether a JSON text, not yet parsed, exceeds the limit for a file of `size` bytes."""
    things = sum(text.count(mark) for mark in (b"[", b"{", b",", b":"))
    return things > MOST_THINGS + size // 32


def exactly(file: BinaryIO, count: int) -> bytes:
    """Read exactly `count` bytes.

    Raises
    ------
    CheckpointError
        If the file ends early.
    """
    data = file.read(count)
    if len(data) != count:
        raise CheckpointError("the file is truncated")
    return data
