"""Facts about a table's columns, from its rows in any order and any blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

import numpy as np

from tfopt.errors import InvalidArgumentError

__all__ = ["Facts", "Kind", "Table", "distinct_values", "facts_of", "median_of", "pieces_of"]

Kind: TypeAlias = Literal["number", "time", "text"]

#: The largest number of different texts of a column that are counted.
MOST_TEXTS = 2**20
#: The largest number of values with an exact median; of more values it is rounded as necessary.
MOST_VALUES = 2**16
#: The number of rows that are processed at a time, to stay in the cache.
PIECE = 2**12


def pieces_of(rows: int) -> Iterator[slice]:
    """Yield the slices of PIECE rows that cover a number of rows."""
    return (slice(start, min(start + PIECE, rows)) for start in range(0, rows, PIECE))


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of a table as numbers.

    Attributes
    ----------
    values : ndarray of float64, shape (rows, columns)
        Numbers, times as days since 1970, and texts as their indices in `levels`; NaN for a missing
        value.
    names : tuple of str
    kinds : tuple of str
        "number", "time" or "text".
    levels : tuple of tuple of str
        The texts of each column, in any order; empty for other kinds than "text".
    """

    values: np.ndarray
    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    levels: tuple[tuple[str, ...], ...]

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return len(self.values), len(self.names)


@dataclasses.dataclass(frozen=True)
class Facts:
    """Facts about a column from the rows of a block.

    Attributes
    ----------
    name : str
    kind : str
    rows, missing : int
        The number of rows, and of rows without a value.
    mean, squares : float
        The mean of the values, and the sum of their squared distances from it; 0 if not needed.
    texts : dict
        The count of each text.
    """

    name: str
    kind: Kind
    rows: int
    missing: int
    mean: float
    squares: float
    texts: dict[str, int]

    def __add__(self, other: Facts) -> Facts:
        """Merge the facts from two blocks."""
        one, two = self.missing < self.rows, other.missing < other.rows
        if one and two and self.kind != other.kind:
            raise InvalidArgumentError(
                f"the column {self.name!r} is {_WORDS[self.kind]} in one part of the table and "
                f"{_WORDS[other.kind]} in another"
            )
        n, m = self.rows - self.missing, other.rows - other.missing
        distance, share = other.mean - self.mean, m / max(n + m, 1)
        texts = dict(self.texts)
        for text, count in other.texts.items():
            texts[text] = texts.get(text, 0) + count
        return dataclasses.replace(
            self if one else other,
            rows=self.rows + other.rows,
            missing=self.missing + other.missing,
            mean=self.mean + distance * share,
            squares=self.squares + other.squares + distance * distance * n * share,
            texts=_few(self.name, texts),
        )


_WORDS = {"number": "numbers", "time": "dates", "text": "text"}


def facts_of(table: Table, scale: bool) -> tuple[Facts, ...]:
    """Return facts about each column of a table; numbers have a mean only if `scale` is True."""
    rows = len(table.values)
    missing = np.zeros(len(table.names), np.int64)
    for piece in pieces_of(rows):
        missing += np.isnan(table.values[piece]).sum(axis=0)
    facts = []
    for k, (name, kind, levels) in enumerate(
        zip(table.names, table.kinds, table.levels, strict=True)
    ):
        mean = squares = 0.0
        texts: dict[str, int] = {}
        if kind == "text":
            column = table.values[:, k]
            counts = np.bincount(column[~np.isnan(column)].astype(np.intp), minlength=len(levels))
            texts = {level: n for level, n in zip(levels, counts.tolist(), strict=True) if n}
        elif rows > missing[k] and (scale or kind == "time"):
            column = table.values[:, k]
            column = column[~np.isnan(column)] if missing[k] else column
            mean = float(column.mean())
            squares = float(np.square(column - mean).sum())
        facts.append(Facts(name, kind, rows, int(missing[k]), mean, squares, _few(name, texts)))
    return tuple(facts)


def _few(name: str, texts: dict[str, int]) -> dict[str, int]:
    """Return the counts of texts; refuse a column with so many that it must be free text."""
    if len(texts) > MOST_TEXTS:
        raise InvalidArgumentError(
            f"the column {name!r} has more than {MOST_TEXTS} different texts: leave it out"
        )
    return texts


def distinct_values(table: Table, columns: Sequence[int]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the distinct values of columns in ascending order, with their counts.

    If there are more than `MOST_VALUES`, all are rounded towards 0 to the largest number of bits
    that leaves no more. The result depends neither on the order of rows nor on their blocks.
    """
    found = []
    for k in columns:
        column = table.values[:, k]
        found.append(_rounded(*np.unique(column[~np.isnan(column)] + 0.0, return_counts=True)))
    return found


def _rounded(values: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    bits = 0
    while len(values) > MOST_VALUES:
        bits += 1
        kept = (np.ascontiguousarray(values).view(np.int64) >> bits << bits).view(np.float64)
        first = np.flatnonzero(np.append(True, kept[1:] != kept[:-1]))
        values, counts = kept[first] + 0.0, np.add.reduceat(counts, first)
    return values, counts


def median_of(parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> float:
    """Return the median of the values of all blocks."""
    together = [np.concatenate(column) for column in zip(*parts, strict=True)]
    values, place = np.unique(together[0], return_inverse=True)
    counts = np.zeros(len(values), np.int64)
    np.add.at(counts, place, together[1])
    values, counts = _rounded(values, counts)
    if not len(values):
        return 0.0
    ends = np.cumsum(counts)
    middle = [
        values[np.searchsorted(ends, k, "right")] for k in ((ends[-1] - 1) // 2, ends[-1] // 2)
    ]
    return float(middle[0] / 2 + middle[1] / 2)
