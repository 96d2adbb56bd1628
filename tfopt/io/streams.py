"""Files opened for reading: local ones, URLs, standard input; decompressed by their content."""

from __future__ import annotations

import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from tfopt.errors import FileFormatError, InvalidTypeError
from tfopt.imports import imported

__all__ = ["Source", "filled", "is_damage", "name_of", "open_binary"]

Source = str | os.PathLike[str] | BinaryIO


def filled(stream: Any, name: str, line: int, buffer: bytearray, n: int) -> int:
    """Read until a buffer, which has n bytes, is full or the stream ends; return how many it has.

    Raises
    ------
    FileFormatError
        If compressed data are damaged: at a line of this file, given that of the buffer's first.
    """
    view = memoryview(buffer)
    try:
        while n < len(buffer) and (count := stream.readinto(view[n:])):
            n += count
    except Exception as error:
        if not is_damage(error):
            raise
        early = isinstance(error, EOFError)
        message = f"the compressed data {'end too early' if early else 'are damaged'}"
        raise FileFormatError(name, message, line + buffer.count(b"\n", 0, n)) from error
    return n


def is_damage(error: Exception) -> bool:
    """Whether an error says that compressed data are damaged, or end too early."""
    if isinstance(error, OSError):  # gzip's and bzip2's errors have no number
        return error.errno is None
    return isinstance(error, (EOFError, zlib.error)) or (
        # of modules that may be missing
        type(error).__name__ in ("LZMAError", "ZstdError")
    )


def name_of(source: Source) -> str:
    """Return what messages call a source."""
    if isinstance(source, (str, os.PathLike)):
        return "<stdin>" if source == "-" else os.fspath(source)
    return str(getattr(source, "name", f"<{type(source).__name__}>"))


@contextmanager
def open_binary(source: Source) -> Iterator[BinaryIO]:
    """Open a file for reading, and decompress it if its first bytes say how.

    Parameters
    ----------
    source : str, path or binary file object
        ``-`` is standard input; URLs, such as ``s3://bucket/key``, need fsspec. A file object is
        left open.

    Yields
    ------
    file object
        Of bytes.

    Raises
    ------
    OSError
        If the file cannot be opened.
    ImportError
        If a package is missing: fsspec for a URL, backports.zstd for Zstandard before
        Python 3.14; or if Python was built without bzip2 or xz, and a file needs it.
    InvalidTypeError
        If `source` is something else, or a file object of text.
    """
    with _opened(source) as raw:
        buffered = raw if hasattr(raw, "peek") else io.BufferedReader(_Readable(raw))
        head = buffered.peek(6)
        if head.startswith(b"\x1f\x8b"):
            with gzip.open(buffered, "rb") as stream:
                yield stream
        elif head.startswith(b"BZh"):
            bz2 = imported("bz2")  # here, because not every Python was built with it

            with bz2.open(buffered, "rb") as stream:
                yield stream
        elif head.startswith(b"\xfd7zXZ\x00"):
            lzma = imported("lzma")

            with lzma.open(buffered, "rb") as stream:
                yield stream
        elif head.startswith(b"\x28\xb5\x2f\xfd"):
            with _zstandard(buffered) as stream:
                yield stream
        else:
            yield buffered


@contextmanager
def _opened(source: Source) -> Iterator[Any]:
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        if path == "-":
            # by its number: sys.stdin may have been replaced
            if sys.stdin is None:
                raise OSError("is closed")
            with open(0, "rb", closefd=False) as stream:
                yield stream
        elif "://" in path:
            fsspec = imported("fsspec")

            with fsspec.open(path, "rb") as stream:
                yield stream
        else:
            with open(path, "rb") as stream:
                yield stream
        return
    if not hasattr(source, "read") or isinstance(source, io.TextIOBase):
        raise InvalidTypeError(
            f"a path or a file object opened in binary mode was expected, not "
            f"{type(source).__name__}"
        )
    yield source


class _Readable(io.RawIOBase):
    """A file object that can only `read`, as the raw stream that BufferedReader needs."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._source.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)


def _zstandard(raw: Any) -> Any:
    try:
        zstd = imported("compression.zstd")  # of Python 3.14
    except ImportError:
        try:
            zstd = imported("backports.zstd")
        except ImportError:
            raise ImportError(
                "Zstandard files need Python 3.14 or the package backports.zstd: "
                "pip install backports.zstd"
            ) from None
    return zstd.open(raw, "rb")
