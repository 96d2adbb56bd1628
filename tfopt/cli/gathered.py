"""The rows of a table, converted and checked piece by piece as they are read."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tfopt.cli.columns import Converted, convert, days_in, numbers_in
from tfopt.cli.csv_pieces import Piece
from tfopt.cli.files import CommandError, File
from tfopt.linear_model.table_facts import Facts, Kind, Table

__all__ = ["Faults", "Gathered", "Wanted"]

#: Rows whose values are put in place together, so that they stay in the cache.
TOGETHER = 2**10
#: What a value is not.
_WHAT: dict[Kind, str] = {
    "number": "not a number",
    "time": "not a date",
}
#: What the text of a column can be instead, and what turns it into that.
_PARSERS: dict[Kind, Callable[[Sequence[str]], np.ndarray]] = {
    "number": numbers_in,
    "time": days_in,
}


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What is wanted of a column.

    Attributes
    ----------
    name : str
    place : int
        The number of the column in the table, from 0.
    kind : str or None
        None: any kind.
    may_miss : bool
        Whether values may be missing.
    role : str
        "feature", "label", "weight" or "offset".
    least : float
    is_checked : bool
        Whether a value of another kind is a fault; otherwise it counts as missing.
    may_be_numbers : bool
        Whether a column of text becomes numbers if each of its texts is one.
    """

    name: str
    place: int
    kind: Kind | None
    may_miss: bool = True
    role: str = "feature"
    least: float = -math.inf
    is_checked: bool = True
    may_be_numbers: bool = False


class Faults:
    """The first fault of each row."""

    def __init__(self) -> None:
        self._of_row: dict[int, tuple[str, str | None, int]] = {}

    def note(
        self, rows: np.ndarray, wanted: Wanted, what: str, show: Callable[[int], str] | None = None
    ) -> None:
        """Record a fault in the values of some rows; `show` returns the text of a value."""
        for row in rows.tolist():
            token = None if show is None else show(row)[:40]
            message = f"the value of {wanted.name!r} {what}"
            self._of_row.setdefault(row, (message, token, wanted.place + 1))

    def good(self, file: File, numbers: np.ndarray, on_bad_line: str) -> np.ndarray:
        """Return a mask of the rows without faults; raise the first unless faults are skipped."""
        if self._of_row and on_bad_line == "error":
            row = min(self._of_row)
            raise file.error(int(numbers[row]), *self._of_row[row])
        good = np.ones(len(numbers), bool)
        good[[*self._of_row]] = False
        return good


class Gathered:
    """The rows of a table, as numbers.

    Parameters
    ----------
    wanted : list of Wanted
        Features first.
    kinds : dict of int to str
        The kinds of the columns that are known before the rows are read, by their numbers.
    n_rows : int
        The number of rows, if it is known; otherwise 0.

    Attributes
    ----------
    mixed : dict of int to str
        The names of columns with numbers in one piece and text in another, by their numbers.
    n_skipped : int
    """

    def __init__(self, wanted: list[Wanted], kinds: Mapping[int, Kind], n_rows: int = 0) -> None:
        self._wanted = [
            dataclasses.replace(each, kind=each.kind or kinds.get(each.place)) for each in wanted
        ]
        self._is_open = [each.kind is None and each.role == "feature" for each in wanted]
        self._n_features = sum(each.role == "feature" for each in wanted)
        self._kinds: list[Kind | None] = [each.kind for each in self._wanted]
        self._levels: list[dict[str, int]] = [{} for _ in wanted]
        self._features = np.empty((n_rows, self._n_features))
        self._others = np.empty((n_rows, len(wanted) - self._n_features))
        self._numbers: list[np.ndarray] = []
        self._n = 0
        self.mixed: dict[int, str] = {}
        self.n_skipped = 0

    @property
    def places(self) -> tuple[list[int], list[int]]:
        """The columns to read, and those of them that are to be read as text."""
        text = [each.place for each in self._wanted if each.kind == "text"]
        return [each.place for each in self._wanted], text

    @property
    def labels_may_be_numbers(self) -> bool:
        """Whether labels of text become numbers if each of them is one."""
        return any(each.may_be_numbers for each in self._wanted)

    @property
    def numbers(self) -> np.ndarray:
        """The number of each row in its file."""
        return np.concatenate([np.empty(0, np.int64), *self._numbers])

    def add(self, file: File, piece: Piece, on_bad_line: str) -> None:
        """Add the rows of a piece; raise the first fault, or leave out the faulty rows."""
        faults, columns = Faults(), []
        for k, (wanted, array) in enumerate(zip(self._wanted, piece.columns, strict=True)):
            column = convert(array, wanted.kind)
            if column is None:
                raise CommandError(
                    f"{file.name}: the column {wanted.name!r} has the type {array.type}: leave it "
                    "out with --drop"
                )
            self._check(faults, wanted, column, array)
            columns.append(self._known(k, column))
        if piece.malformed and on_bad_line == "error":
            number, n_fields, expected = piece.malformed[0]
            before = piece.numbers < number
            faults.good(file, piece.numbers[before], on_bad_line)
            message = f"the line has {n_fields} field{'s'[: n_fields > 1]} instead of {expected}"
            raise file.error(number, message)
        good = faults.good(file, piece.numbers, on_bad_line)
        self.n_skipped += len(piece.malformed) + int(len(good) - good.sum())
        if not good.all():
            columns = [column[good] for column in columns]
        self._numbers.append(piece.numbers[good])
        self._put(columns, int(good.sum()))

    @staticmethod
    def _check(faults: Faults, wanted: Wanted, column: Converted, array: Any) -> None:
        def show(row: int) -> str:
            return str(array[row : row + 1].cast(pa.string())[0])

        absent = np.isnan(column.values)
        if column.faulty is not None and wanted.is_checked:
            assert wanted.kind is not None
            faults.note(np.flatnonzero(column.faulty), wanted, f"is {_WHAT[wanted.kind]}", show)
        if not wanted.may_miss:
            missing = absent if column.faulty is None else absent & ~column.faulty
            faults.note(np.flatnonzero(missing), wanted, "is missing")
        if wanted.is_checked and column.kind != "text":
            faults.note(np.flatnonzero(np.isinf(column.values)), wanted, "is not finite", show)
        if wanted.least > -math.inf:
            low = np.flatnonzero(column.values < wanted.least)
            faults.note(low, wanted, f"is below {wanted.least:g}", show)

    def _known(self, k: int, column: Converted) -> np.ndarray:
        """Return the values of a column, with the numbers that texts have in all pieces."""
        if column.kind is None:
            return column.values
        if self._kinds[k] is None:
            self._kinds[k] = column.kind
        elif self._kinds[k] != column.kind:
            self.mixed[self._wanted[k].place] = self._wanted[k].name
            return np.full(len(column.values), np.nan)
        if column.kind != "text":
            return column.values
        known = self._levels[k]
        of_level = [float(known.setdefault(text, len(known))) for text in column.levels]
        numbers = np.where(np.isnan(column.values), len(of_level), column.values)
        return np.array([*of_level, np.nan])[numbers.astype(np.intp)]

    def _put(self, columns: list[np.ndarray], n: int) -> None:
        end = self._n + n
        for block, first in ((self._features, 0), (self._others, self._n_features)):
            if end > len(block):  # memory is moved, and not copied
                block.resize((max(end, 9 * end // 8), block.shape[1]), refcheck=False)
            for start in range(0, n, TOGETHER):
                stop = min(start + TOGETHER, n)
                rows = slice(self._n + start, self._n + stop)
                for k in range(block.shape[1]):
                    block[rows, k] = columns[first + k][start:stop]
        self._n = end

    # ---- when all are read

    def settle(self, file: File, on_bad_line: str) -> None:
        """Give each column of text the kind of most of its texts; the others are faults."""
        faults = Faults()
        for k, wanted in enumerate(self._wanted):
            texts = [*self._levels[k]]
            values = self._column(k)
            present = np.flatnonzero(~np.isnan(values)) if texts else np.empty(0, np.intp)
            codes = values[present].astype(np.intp)
            judged = self.judged(k, np.bincount(codes, minlength=len(texts)))
            if judged is None:
                continue
            kind, parsed = judged
            shown = values.copy()

            def show(row: int, texts: list[str] = texts, codes: np.ndarray = shown) -> str:
                return texts[int(codes[row])]

            values[present] = parsed[codes]
            other, infinite = (present[f(values[present])] for f in (np.isnan, np.isinf))
            faults.note(
                other,
                wanted,
                f"is, unlike most others, {_WHAT[kind]} (see --missing, --categorical, --drop)",
                show,
            )
            faults.note(infinite, wanted, "is not finite", show)
            self._kinds[k] = kind
        good = faults.good(file, self.numbers, on_bad_line)
        if not good.all():
            self.n_skipped += int(len(good) - good.sum())
            self._numbers = [self.numbers[good]]
            self._features, self._others = (
                block[: self._n][good] for block in (self._features, self._others)
            )
            self._n = len(self._features)

    def judged(self, k: int, counts: np.ndarray) -> tuple[Kind, np.ndarray] | None:
        """Return the kind of a column of text, given the count of each text and the parsed texts.

        Numbers or dates, if most of its texts are; labels are numbers only if all of them are.
        None: the column stays text, or is not text, or its kind was known before.
        """
        is_label = self._wanted[k].role == "label"
        if self._kinds[k] != "text" or not (self._is_open[k] or self._wanted[k].may_be_numbers):
            return None
        for kind, parse in _PARSERS.items():
            parsed = parse([*self._levels[k]])
            n, all_of_them = counts[~np.isnan(parsed)].sum(), counts.sum()
            if all_of_them and (n == all_of_them or (n > all_of_them / 2 and not is_label)):
                return kind, parsed
            if is_label:
                break
        return None

    def changed(self, facts: Sequence[Facts]) -> dict[int, Kind]:
        """Return the kinds of the features whose first rows misled, by their numbers."""
        kinds: dict[int, Kind] = {}
        for k, each in enumerate(facts):
            counts = np.array([each.texts.get(text, 0) for text in self._levels[k]], np.int64)
            judged = self.judged(k, counts)
            if judged is not None:
                kinds[self._wanted[k].place] = judged[0]
        return kinds

    def clear(self) -> None:
        """Forget the rows, and keep the kinds of the columns."""
        self._n, self._numbers = 0, []

    def _column(self, k: int) -> np.ndarray:
        """Return the values of a column, which may be written to."""
        if k < self._n_features:
            return self._features[: self._n, k]
        return self._others[: self._n, k - self._n_features]

    def table(self) -> Table:
        """Return the features."""
        self._features.resize((self._n, self._n_features), refcheck=False)
        n = self._n_features
        return Table(
            self._features,
            tuple(wanted.name for wanted in self._wanted[:n]),
            tuple(kind or "number" for kind in self._kinds[:n]),
            tuple(tuple(levels) for levels in self._levels[:n]),
        )

    def other(self, role: str) -> tuple[np.ndarray | None, list[str] | None]:
        """Return the values of the labels or weights, and the texts that they number.

        None if there are none.
        """
        for k, wanted in enumerate(self._wanted):
            if wanted.role == role:
                texts = [*self._levels[k]] if self._kinds[k] == "text" else None
                return self._column(k).copy(), texts
        return None, None
