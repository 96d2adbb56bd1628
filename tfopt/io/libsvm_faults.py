"""The faults of malformed lines of LIBSVM files."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

__all__ = ["Fault", "find_fault"]

_TOKENS = re.compile(rb"[^ \t\r\v\f]+")
_SHOWN = 40  # bytes of a token that a message shows


class Fault(NamedTuple):
    """The first fault of a line.

    Attributes
    ----------
    message : str
    token : str
        The text that is wrong; of a long one its beginning.
    column : int
        Where the token begins, counted from 1 in bytes.
    """

    message: str
    token: str
    column: int


def find_fault(line: bytes, first_index: int, last_index: int) -> Fault:
    """Find the first token of a line that is malformed.

    Parameters
    ----------
    line : bytes
    first_index, last_index : int
        The smallest and the largest index that the file may have.
    """
    label, *entries = _TOKENS.finditer(line.partition(b"#")[0])
    if message := _number_fault(label[0]):
        missing = b":" in label[0]
        return _fault("the line has no label" if missing else f"the label is {message}", label)
    previous = first_index - 1
    for place, entry in enumerate(entries):
        text, colon, value = entry[0].partition(b":")
        if place == 0 and text == b"qid" and colon:
            if not (value.isdigit() and len(value.lstrip(b"0")) <= 17):
                return _fault("the query id is not a whole number of at most 17 digits", entry)
            continue
        if message := _entry_fault(text, colon, value, previous, first_index, last_index):
            return _fault(message, entry)
        previous = int(text)
    raise AssertionError(f"nothing is wrong with {line[:100]!r}")


def _entry_fault(
    text: bytes, colon: bytes, value: bytes, previous: int, first_index: int, last_index: int
) -> str | None:
    if not colon:
        return "not of the form index:value"
    if text[:1] == b"-" and text[1:].isdigit():
        return "the index is negative"
    digits = text[1:] if text[:1] == b"+" else text
    if not digits.isdigit():
        return "the index is not an integer"
    if len(digits.lstrip(b"0")) > 18 or int(digits) > last_index:
        return f"the index is above {last_index}"
    index = int(digits)
    if index < first_index:
        return "index 0 in a one-based file"
    if index == previous:
        return "the index is repeated"
    if index < previous:
        return "the indices are not in ascending order"
    message = _number_fault(value)
    return message and f"the value is {message}"


def _number_fault(text: bytes) -> str | None:
    try:
        number = float(text)
    except ValueError:
        return "not a number"
    if b"_" in text:  # Python's digit groups, which are no part of the format
        return "not a number"
    return None if math.isfinite(number) else "not finite"


def _fault(message: str, token: re.Match[bytes]) -> Fault:
    text = token[0][:_SHOWN].decode("utf-8", "surrogateescape")
    return Fault(message, text + "..." * (len(token[0]) > _SHOWN), token.start() + 1)
