"""The .npz format: an uncompressed zip archive of .npy files; the text is its first array.

``np.load`` reads it. Every byte, time stamps included, is determined by the text and the arrays,
and all lengths are in zip64 format, so a change to any byte is detected.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Sequence
from typing import BinaryIO, NamedTuple

from tfopt.checkpoints.entries import Entry
from tfopt.checkpoints.framing import MOST_TEXT, exactly
from tfopt.errors import CheckpointError

__all__ = ["Npz", "read_text"]

_LOCAL, _CENTRAL, _DESCRIPTOR = b"PK\3\4", b"PK\1\2", b"PK\7\x08"
_END64, _LOCATOR, _END = b"PK\6\6", b"PK\6\7", b"PK\5\6"
_VERSION = 45  # the first with zip64
_FLAGS = 1 << 3 | 1 << 11  # lengths and checksum follow the data; names are UTF-8
_NO_TIME = struct.pack("<HH", 0, 1 << 5 | 1)  # 1980-01-01, the earliest date
_BIG, _HUGE = 0xFFFF, 0xFFFFFFFF  # "see zip64"


class _Member(NamedTuple):
    name: bytes
    head: bytes  # NumPy's, before the data
    nbytes: int

    @property
    def length(self) -> int:
        return len(self.head) + self.nbytes

    def local(self) -> bytes:
        """Return the bytes before the data."""
        extra = struct.pack("<HHQQ", 1, 16, 0, 0)
        fixed = struct.pack("<HHH", _VERSION, _FLAGS, 0) + _NO_TIME + bytes(4)
        lengths = struct.pack("<IIHH", _HUGE, _HUGE, len(self.name), len(extra))
        return _LOCAL + fixed + lengths + self.name + extra + self.head

    def descriptor(self, crc: int) -> bytes:
        """Return the bytes after the data."""
        return _DESCRIPTOR + struct.pack("<IQQ", crc, self.length, self.length)

    def central(self, crc: int, offset: int) -> bytes:
        """Return the entry in the directory."""
        extra = struct.pack("<HHQQQ", 1, 24, self.length, self.length, offset)
        fixed = struct.pack("<HHHH", _VERSION, _VERSION, _FLAGS, 0) + _NO_TIME
        lengths = struct.pack("<IIIHH", crc, _HUGE, _HUGE, len(self.name), len(extra))
        rest = struct.pack("<HHHII", 0, 0, 0, 0, _HUGE)
        return _CENTRAL + fixed + lengths + rest + self.name + extra


class Npz:
    """The framing of an .npz file."""

    def __init__(self, text: bytes, entries: Sequence[Entry]) -> None:
        self._text = text
        self._header = _Member(b"header.npy", _head(f"|S{len(text)}", ()), len(text))
        self._crc = zlib.crc32(text, zlib.crc32(self._header.head))
        self._members = [
            _Member(f"{e.name}.npy".encode(), _head(e.stored.str, e.stored_shape), e.nbytes)
            for e in entries
        ]

    def opening(self) -> bytes:
        """Return the text as an array."""
        return self._header.local() + self._text + self._header.descriptor(self._crc)

    def before(self, k: int) -> bytes:
        """Return the headers of an array."""
        return self._members[k].local()

    def seed(self, k: int) -> int:
        """Return the checksum of the array's head, from which the array's continues."""
        return zlib.crc32(self._members[k].head)

    def after(self, k: int, crc: int) -> bytes:
        """Return the checksum and the lengths of an array."""
        return self._members[k].descriptor(crc)

    def closing(self, crcs: Sequence[int]) -> bytes:
        """Return the directory."""
        lines = [self._header.central(self._crc, 0)]
        offset = len(self.opening())
        for member, crc in zip(self._members, crcs, strict=True):
            lines.append(member.central(crc, offset))
            offset += len(member.local()) + member.nbytes + len(member.descriptor(0))
        directory = b"".join(lines)
        count, size = len(lines), len(directory)
        end64 = struct.pack("<QHHIIQQQQ", 44, _VERSION, _VERSION, 0, 0, count, count, size, offset)
        locator = struct.pack("<IQI", 0, offset + size, 1)
        end = struct.pack("<HHHHIIH", 0, 0, _BIG, _BIG, _HUGE, _HUGE, 0)
        return directory + _END64 + end64 + _LOCATOR + locator + _END + end


def read_text(file: BinaryIO, size: int) -> bytes:
    """Return the text of a file of `size` bytes."""
    start = len(_Member(b"header.npy", b"", 0).local())
    if exactly(file, start)[30:40] != b"header.npy":
        raise CheckpointError("not a tfopt checkpoint")
    (length,) = struct.unpack("<8xH", exactly(file, 10))
    description = exactly(file, length)
    match = re.match(rb"\{'descr': '\|S(\d{1,10})'", description)
    if match is None and b"'<U" in description:
        raise CheckpointError("a linear model, not a checkpoint: load it with load_model")
    if match is None:
        raise CheckpointError("the header is damaged")
    count = int(match[1])
    if count > min(size, MOST_TEXT):
        raise CheckpointError("the header is longer than the file")
    return exactly(file, count)


def _head(dtype: str, shape: tuple[int, ...]) -> bytes:
    """Return the header of the .npy format, version 1."""
    line = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape!r}, }}".encode()
    line += b" " * (-(10 + len(line) + 1) % 64) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(line)) + line
