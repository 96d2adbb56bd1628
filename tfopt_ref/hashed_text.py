"""Rows of text as hashed features: fields, their names, and the hash of a name.

A row becomes pairs of a name and a value; `hashed` adds the values of each hash of names.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

__all__ = ["crossed", "fields", "hashed", "murmur3", "named", "namespaces", "rows"]

#: A feature: its name, and its value.
Pair = tuple[bytes, float]


def rows(text: bytes, sep: bytes, quotes: bool = True) -> list[list[bytes]]:
    """Return the fields of each row of well-formed text, without blank lines."""
    found = []
    while text:
        if text.startswith((b"\n", b"\r\n")):
            text = text.removeprefix(b"\r").removeprefix(b"\n")
            continue
        row, text = fields(text, sep, quotes)
        found.append(row)
    return found


def fields(text: bytes, sep: bytes, quotes: bool = True) -> tuple[list[bytes], bytes]:
    """Return the fields of the first row, and the text after it.

    A field that begins with a quote ends at the next quote that is not doubled.
    """
    row = []
    while True:
        if quotes and text[:1] == b'"':
            parts = text[1:].split(b'"')
            stop = 0  # the part before the closing quote: after an empty one a quote was doubled
            while parts[stop + 1 : stop + 2] == [b""] and stop + 2 < len(parts):
                stop += 2
            row.append(b'"'.join(parts[: stop + 1 : 2]))
            text = b'"'.join(parts[stop + 1 :])
        else:
            ends = [at for at in (text.find(sep), text.find(b"\n")) if at >= 0]
            stop = min(ends, default=len(text))
            field = text[:stop]
            if text[stop : stop + 1] != sep:  # the last field of its row
                field = field.removesuffix(b"\r")
            row.append(field)
            text = text[stop:]
        if text[:1] != sep:
            return row, text.removeprefix(b"\r").removeprefix(b"\n")
        text = text[1:]


def named(row: Sequence[bytes], names: Sequence[bytes], numeric: Iterable[int]) -> list[list[Pair]]:
    """Return the features of each column: one, or none if the field is empty.

    Text v in a column c is the feature c=v with value 1; a number is the feature c with its value.
    """
    features: list[list[Pair]] = []
    for k, (name, field) in enumerate(zip(names, row, strict=True)):
        if not field:
            features.append([])
        elif k in numeric:
            features.append([(name, float(field))])
        else:
            features.append([(name + b"=" + field, 1.0)])
    return features


def namespaces(line: bytes) -> dict[bytes, list[Pair]]:
    """Return the features of each namespace of a line in Vowpal Wabbit's format."""
    spaces: dict[bytes, list[Pair]] = {}
    for part in line.split(b"|")[1:]:
        words = part.split()
        head = words.pop(0) if part[:1].strip() else b""
        space, _, scale = head.partition(b":")
        for word in words:
            name, _, value = word.partition(b":")
            name = space + b"=" + name if space else name
            spaces.setdefault(space, []).append((name, float(value or 1) * float(scale or 1)))
    return spaces


def crossed(one: Sequence[Pair], other: Sequence[Pair]) -> list[Pair]:
    """Return the pairs of features of two columns or namespaces: both names, and the product."""
    return [(a + b"*" + b, x * y) for (a, x), (b, y) in itertools.product(one, other)]


def hashed(pairs: Iterable[Pair], n_hashes: int) -> dict[int, float]:
    """Return the sum of the values for each hash of names, with the sign of the hash."""
    sums: dict[int, float] = {}
    for name, value in pairs:
        if value:
            h = murmur3(name)
            column = abs(h) % n_hashes
            sums[column] = sums.get(column, 0.0) + (value if h >= 0 else -value)
    return dict(sorted(sums.items()))


def murmur3(text: bytes) -> int:
    """Return MurmurHash3 (x86, 32 bits, seed 0) as a signed number."""

    def rotated(x: int, by: int) -> int:
        return (x << by | x >> (32 - by)) % 2**32

    def mixed(block: bytes) -> int:
        x = int.from_bytes(block, "little") * 0xCC9E2D51 % 2**32
        return rotated(x, 15) * 0x1B873593 % 2**32

    whole, h = len(text) // 4 * 4, 0
    for k in range(0, whole, 4):
        h = (rotated(h ^ mixed(text[k : k + 4]), 13) * 5 + 0xE6546B64) % 2**32
    h ^= mixed(text[whole:]) ^ len(text)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        h = (h ^ h >> shift) * factor % 2**32
    return h - 2**32 if h >= 2**31 else h
