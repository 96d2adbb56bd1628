"""The lines of a LIBSVM file: decompressed, numbered, and looked at when they seem odd."""

from __future__ import annotations

import array
import bz2
import contextlib
import gzip
import io
import lzma
import math
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from tfopt.cli.console import printable
from tfopt.cli.errors import CommandError, at
from tfopt.cli.folders import is_url, open_url

#: Weights are kept for every index up to the largest, 8 bytes each: a typing error in one index
#: must not claim all memory. The widest set on the LIBSVM page has 54.7 million features.
MAX_INDEX = 2**27

#: Bytes of a line: to take it apart takes some fourteen times as many. A row of a million numbers
#: fits, and thirty times the longest of any set on the LIBSVM page.
MAX_LINE = 2**24

_DECOMPRESSORS: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}

# What lines of numbers are made of. Whatever else a line has (a comment, qid, nan, 1_000) is
# looked at token by token, since the reader behind accepts some of it silently.
_PLAIN = b"0123456789.:+-eE \t\r\n"

_BLOCK = 2**20  # bytes that are read at once
_BLANK = re.compile(rb"\n[ \t\r\f\v]*\n")
_SHOWN = re.compile(rb"\S[^\n]*")  # a line that is not blank, from its first character on


@contextlib.contextmanager
def open_data(path: str, name: str) -> Iterator[BinaryIO]:
    """Open a file for reading, decompressed if its first bytes say gzip, bzip2 or xz.

    Parameters
    ----------
    path : str
        The file, or its URL; ``-`` is standard input.
    name : str
        The file's name in messages.

    Yields
    ------
    file object
        Of bytes.
    """
    if path == "-" and sys.stdin is None:
        raise CommandError("<stdin>: is closed")
    try:
        raw = _opened(path)
    except OSError as error:
        raise CommandError(f"{name}: {error.strerror}") from error
    with raw:
        head = raw.peek(6)
        for magic, decompress in _DECOMPRESSORS.items():
            if head.startswith(magic):
                with decompress(raw, "rb") as stream:
                    yield stream
                return
        yield raw


def _opened(path: str) -> io.BufferedReader:
    if path == "-":
        # by its number: whoever calls `main` may have put another object at sys.stdin
        return open(0, "rb", closefd=False)
    return open_url(path) if is_url(path) else open(path, "rb")


def display_name(path: str) -> str:
    """Return the name of a data file in messages: ``-`` is ``<stdin>``."""
    return "<stdin>" if path == "-" else printable(path)


class Lines(io.BufferedIOBase):
    """The lines of a stream that hold data, one by one, in the shape of a binary file.

    Parameters
    ----------
    stream : file object
        Of bytes.
    name : str
        The file's name in messages.
    first_index : int
        1 if the file is known to be one-based, else 0.

    Attributes
    ----------
    numbers : array.array
        The line number of each data line so far.
    number : int
        Of the first line of those that are being read.
    """

    def __init__(self, stream: BinaryIO, name: str, first_index: int) -> None:
        self.stream = stream
        self.name = name
        self.first_index = first_index
        self.numbers = array.array("q")
        self.current = b""
        self.number = 1

    def __iter__(self) -> Iterator[bytes]:
        try:
            for block in self._blocks():
                some_blank = _BLANK.search(block)
                lines = _shown(block) if some_blank else enumerate(io.BytesIO(block))
                for place, line in lines:
                    odd = line.translate(None, _PLAIN)
                    if b"#" in odd:
                        line = line[: line.index(b"#")]
                    if not line or line.isspace():
                        continue
                    self.current = line
                    self.numbers.append(self.number + place)
                    if odd and (fault := find_fault(line, self.first_index)):
                        raise at(self.name, self.number + place, *fault)
                    yield line
                self.number += block.count(b"\n")
        except EOFError as error:
            raise at(self.name, self.number, "the compressed data end too early") from error
        except (OSError, zlib.error, lzma.LZMAError) as error:
            reason = getattr(error, "strerror", None) or "the compressed data are damaged"
            raise at(self.name, self.number, reason) from error

    def _blocks(self) -> Iterator[bytes]:
        """Yield whole lines, as many at a time as there are at hand."""
        held: list[bytes] = []  # of a line whose end is still to come
        length = 0
        while piece := self.stream.read1(_BLOCK):  # type: ignore[attr-defined]
            first, last = piece.find(b"\n"), piece.rfind(b"\n") + 1
            if length + (first if last else len(piece)) > MAX_LINE:
                raise at(self.name, self.number, f"the line is longer than {MAX_LINE} bytes")
            if last:
                yield b"".join([*held, piece[:last]])
                held, length = [], 0
            held.append(piece[last:])
            length += len(piece) - last
        yield b"".join(held)

    def refusal(self, error: Exception) -> CommandError:
        """Return what to say after the reader refused the current line with `error`."""
        message, token = find_fault(self.current, self.first_index) or (str(error), b"")
        return at(self.name, self.numbers[-1], message, token)


def _shown(block: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank and their places, however many blank ones there are."""
    place = start = 0
    for found in _SHOWN.finditer(block):
        place += block.count(b"\n", start, found.start())
        start = found.start()
        yield place, found[0]


def find_fault(line: bytes, first_index: int) -> tuple[str, bytes] | None:
    """Find the first token of a data line that is wrong.

    Parameters
    ----------
    line : bytes
        ``label [qid:n] index:value index:value ...``
    first_index : int
        The smallest index allowed, 0 or 1.

    Returns
    -------
    tuple or None
        What is wrong and the token.
    """
    label, *features = line.split()
    if fault := _number_fault(label):
        return ("the line has no label" if b":" in label else f"the label is {fault}", label)
    previous = -1
    for position, token in enumerate(features):
        text, colon, value = token.partition(b":")
        if position == 0 and text == b"qid" and value.isdigit():
            continue
        if not colon:
            return "not of the form index:value", token
        sign, digits = (text[:1], text[1:]) if text[:1] in (b"+", b"-") else (b"", text)
        if not digits.isdigit():
            return "the index is not an integer", token
        if sign == b"-":
            return "the index is negative", token
        digits = digits.lstrip(b"0") or b"0"
        if len(digits) > len(str(MAX_INDEX)) or int(digits) > MAX_INDEX:
            return f"the index is above {MAX_INDEX}", token
        index = int(digits)
        if index < first_index:
            return "index 0 in a one-based file", token
        if index == previous:
            return "the index is repeated", token
        if index < previous:
            return "the indices are not in ascending order", token
        if fault := _number_fault(value):
            return f"the value is {fault}", token
        previous = index
    return None


def _number_fault(text: bytes) -> str | None:
    try:
        number = float(text)
    except ValueError:
        return "not a number"
    if b"_" in text:  # Python's digit groups, which no other reader of the format knows
        return "not a number"
    return None if math.isfinite(number) else "not finite"
