"""The encoding of a table's columns: text one-hot, missing values marked, dates as numbers.

An encoding is made from facts about the rows of one block or several. It is plain data that a model
file contains, so new rows are encoded as the training rows were.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from tfopt.errors import InvalidArgumentError
from tfopt.linear_model.table_facts import Facts, Kind, Table, median_of, pieces_of

__all__ = ["Column", "Encoding", "make_encoding"]

#: A text has a feature if it is in at least this number of rows, or in this share if that is less.
FREQUENT_ROWS, FREQUENT_SHARE = 10, 0.01
#: The largest number of texts of a column with a feature each.
MOST_LEVELS = 1000
#: A matrix is sparse if its share of nonzero entries is below this.
SPARSE_BELOW = 0.25


@dataclasses.dataclass(frozen=True)
class Column:
    """The encoding of one column.

    Attributes
    ----------
    name : str
    kind : str
    center, spread : float
        A number or time x becomes the feature (x - center) / spread.
    median : float or None
        The substitute for a missing number or time; None if none was missing.
    levels : tuple of str
        The texts that have a feature.
    has_rare, has_missing : bool
        Whether all other texts have a common feature, and whether missing values have one.
    """

    name: str
    kind: Kind
    center: float = 0.0
    spread: float = 1.0
    median: float | None = None
    levels: tuple[str, ...] = ()
    has_rare: bool = False
    has_missing: bool = False

    @property
    def features(self) -> list[str]:
        """The names of the features."""
        own = [self.name] if self.kind != "text" else [f"{self.name}={x}" for x in self.levels]
        own += [f"{self.name}=(rare)"] * self.has_rare
        return own + [f"{self.name}=(missing)"] * self.has_missing

    @property
    def is_plain(self) -> bool:
        """Whether the feature is the unchanged column."""
        return self == Column(self.name, "number")

    def places(self, levels: Sequence[str]) -> np.ndarray:
        """Return the index of the feature for each text and for a missing one; -1 for none."""
        own = {level: k for k, level in enumerate(self.levels)}
        rare = len(own) if self.has_rare else -1
        missing = len(own) + self.has_rare if self.has_missing else -1
        return np.array([*(own.get(level, rare) for level in levels), missing])


@dataclasses.dataclass(frozen=True)
class Encoding:
    """The encoding of the columns of a table as features.

    Attributes
    ----------
    columns : tuple of Column
    left_out : tuple of str
        Columns without information: no values, or less than two frequent texts.
    missing : tuple of str
        The texts that mean a missing value in a CSV file, besides the usual ones.
    """

    columns: tuple[Column, ...]
    left_out: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features, without duplicates."""
        names: dict[str, None] = {}
        for column in self.columns:
            for name in column.features:
                while name in names:
                    name += "'"
                names[name] = None
        return tuple(names)

    @property
    def is_plain(self) -> bool:
        """Whether the features are the unchanged columns."""
        return not self.left_out and all(column.is_plain for column in self.columns)

    def encode(self, table: Table) -> Any:
        """Return the features of rows.

        Parameters
        ----------
        table : Table
            The rows, with the columns of this encoding, by name and kind.

        Returns
        -------
        ndarray of float64, shape (rows, features), or scipy CSR matrix
            Sparse if few entries are nonzero; this depends on the encoding, not on the rows.
        """
        index = {name: k for k, name in enumerate(table.names)}
        taken = [index[column.name] for column in self.columns]
        if self.is_plain:
            as_it_is = taken == [*range(len(table.names))]
            return table.values if as_it_is else table.values[:, taken]
        width = sum(len(column.features) for column in self.columns)
        rows = len(table.values)
        if len(self.columns) < SPARSE_BELOW * width:
            return _sparse(self._entries(table, taken), rows, width)
        X = np.zeros((rows, width))
        for piece, entries in zip(pieces_of(rows), self._entries(table, taken), strict=True):
            for feature, values in entries:
                if isinstance(feature, int):
                    X[piece, feature] = values
                else:
                    at = np.flatnonzero(feature >= 0)
                    X[piece][at, feature[at]] = values
        return X

    def _entries(
        self, table: Table, taken: list[int]
    ) -> Iterator[list[tuple[int | np.ndarray, np.ndarray | float]]]:
        """Yield a list of (feature, values) for each piece of rows.

        The feature is one index, or an array of an index for each row; -1 means no entry.
        """
        places = [c.places(table.levels[k]) for c, k in zip(self.columns, taken, strict=True)]
        for piece in pieces_of(len(table.values)):
            entries: list[tuple[int | np.ndarray, np.ndarray | float]] = []
            first = 0
            for column, k, of_text in zip(self.columns, taken, places, strict=True):
                x = table.values[piece, k]
                absent = np.isnan(x)
                if column.kind == "text":
                    place = of_text[np.where(absent, -1, x).astype(np.intp)]
                    entries.append((np.where(place < 0, -1, place + first), 1.0))
                else:
                    known = x if column.median is None else np.where(absent, column.median, x)
                    entries.append((first, (known - column.center) / column.spread))
                    if column.has_missing:
                        entries.append((np.where(absent, first + 1, -1), 1.0))
                first += len(column.features)
            yield entries

    # ---- plain data

    def to_json(self) -> dict[str, Any]:
        """Return this encoding as objects for JSON; `from_json` reads them."""
        columns = []
        for column in self.columns:
            names = ("levels", "has_rare", "has_missing")
            if column.kind != "text":
                names = ("center", "spread", "median")
            facts = {"name": column.name, "kind": column.kind}
            columns.append(facts | {name: getattr(column, name) for name in names})
            columns[-1] = {k: [*v] if k == "levels" else v for k, v in columns[-1].items()}
        return {
            "version": VERSION,
            "columns": columns,
            "left_out": [*self.left_out],
            "missing": [*self.missing],
        }

    @classmethod
    def from_json(cls, document: Any) -> Encoding:
        """Return the encoding of `to_json`.

        Raises
        ------
        InvalidArgumentError
            If the document is not a valid encoding of a known version; the message names the fault.
        """
        if not isinstance(document, dict) or document.get("version") != VERSION:
            raise InvalidArgumentError(f"an encoding of version {VERSION} was expected")
        if set(document) != {"version", "columns", "left_out", "missing"}:
            raise InvalidArgumentError("the encoding has other entries than it must have")
        for name in ("left_out", "missing"):
            if not _are_texts(document[name]):
                raise InvalidArgumentError(f"the encoding has no valid {name!r}")
        if not isinstance(document["columns"], list):
            raise InvalidArgumentError("the encoding has no valid 'columns'")
        columns = tuple(map(_column, document["columns"]))
        if len({column.name for column in columns}) < len(columns):
            raise InvalidArgumentError("two columns of the encoding have one name")
        return cls(columns, tuple(document["left_out"]), tuple(document["missing"]))


#: The version of an encoding's document; it is incremented when an entry changes its meaning.
VERSION = 1


def _column(facts: Any) -> Column:
    """Return the column of a document."""
    kind = facts.get("kind") if isinstance(facts, dict) else None
    valid = _ENTRIES.get(kind) if isinstance(kind, str) else None
    if valid is None or set(facts) != {"kind", *valid}:
        raise InvalidArgumentError("a column of the encoding has other entries than it must have")
    for name, is_valid in valid.items():
        if not is_valid(facts[name]):
            raise InvalidArgumentError(f"a column of the encoding has no valid {name!r}")
    if kind == "text":
        return Column(**facts | {"levels": tuple(facts["levels"])})
    return Column(**facts, has_missing=facts["median"] is not None)


def _are_texts(value: Any) -> bool:
    return (
        isinstance(value, list)
        and all(type(each) is str for each in value)
        and len({*value}) == len(value)
    )


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


_NAME: dict[str, Callable[[Any], bool]] = {"name": lambda value: type(value) is str}
_NUMBERS = _NAME | {
    "center": _is_number,
    "spread": lambda value: _is_number(value) and value > 0,
    "median": lambda value: value is None or _is_number(value),
}
_ENTRIES = {
    "number": _NUMBERS,
    "time": _NUMBERS,
    "text": _NAME
    | {
        "levels": _are_texts,
        "has_rare": lambda value: type(value) is bool,
        "has_missing": lambda value: type(value) is bool,
    },
}


def make_encoding(
    blocks: Sequence[tuple[Facts, ...]],
    values_of: Callable[[list[int]], Sequence[list[tuple[np.ndarray, np.ndarray]]]],
    *,
    scale: bool = False,
    missing: Sequence[str] = (),
) -> Encoding:
    """Return the encoding for the rows of all blocks.

    Parameters
    ----------
    blocks : sequence of tuple of Facts
        The `facts_of` of each block, with the same columns in the same order.
    values_of : callable
        Returns the `distinct_values` of each block, given the numbers of columns. It is called
        once, if numbers or times are missing.
    scale : bool
        Whether numbers get the mean 0 and the standard deviation 1. Times always do.
    missing : sequence of str
        See `Encoding`.

    Raises
    ------
    InvalidArgumentError
        If a column has another kind in another block or has too many texts, or if no column has
        information.
    """
    facts = [sum(of_column[1:], of_column[0]) for of_column in zip(*blocks, strict=True)]
    with_median = [
        k for k, each in enumerate(facts) if each.kind != "text" and 0 < each.missing < each.rows
    ]
    medians: dict[int, float] = {}
    if with_median:
        parts = zip(*values_of(with_median), strict=True)
        medians = {k: median_of(part) for k, part in zip(with_median, parts, strict=True)}
    columns, left_out = [], []
    for k, each in enumerate(facts):
        column = _text(each) if each.kind == "text" else _number(each, medians.get(k), scale)
        says_nothing = each.kind == "text" and len(column.features) < 2
        if says_nothing or each.missing == each.rows:
            left_out.append(each.name)
        else:
            columns.append(column)
    if not columns:
        raise InvalidArgumentError("no column has information about the labels")
    return Encoding(tuple(columns), tuple(left_out), tuple(missing))


def _number(facts: Facts, median: float | None, scale: bool) -> Column:
    column = Column(facts.name, facts.kind, median=median, has_missing=median is not None)
    if not scale and facts.kind == "number":
        return column
    spread = math.sqrt(facts.squares / max(facts.rows - facts.missing, 1))
    if not 0 < spread < math.inf:  # a constant, or squares that overflow
        return column
    return dataclasses.replace(column, center=facts.mean, spread=spread)


def _text(facts: Facts) -> Column:
    """Return the encoding of texts: each frequent one has a feature, all others share one."""
    least = min(FREQUENT_ROWS, math.ceil(FREQUENT_SHARE * facts.rows))
    frequent = [(-n, text) for text, n in facts.texts.items() if n >= least]
    levels = sorted(text for _, text in sorted(frequent)[:MOST_LEVELS])
    has_rare = len(levels) < len(facts.texts)
    return Column(
        facts.name,
        "text",
        levels=tuple(levels),
        has_rare=has_rare,
        has_missing=facts.missing > 0,
    )


def _sparse(pieces: Iterator[list[tuple[Any, Any]]], rows: int, width: int) -> Any:
    """Return a CSR matrix of the nonzero entries."""
    data, indices, counts = [np.empty(0)], [np.empty(0, np.int32)], [np.zeros(1, np.int64)]
    for piece, entries in zip(pieces_of(rows), pieces, strict=True):
        shape = piece.stop - piece.start, len(entries)
        features, values = np.empty(shape, np.int32), np.empty(shape)
        for k, (feature, value) in enumerate(entries):
            features[:, k], values[:, k] = feature, value
        stored = (features >= 0) & (values != 0)
        data.append(values[stored])
        indices.append(features[stored])
        counts.append(stored.sum(axis=1))
    ends = np.cumsum(np.concatenate(counts))
    kind = np.int32 if ends[-1] < 2**31 else np.int64
    parts = np.concatenate(data), np.concatenate(indices).astype(kind), ends.astype(kind)
    return sparse.csr_matrix(parts, (rows, width))
