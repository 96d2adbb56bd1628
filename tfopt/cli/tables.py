"""Tables with named columns: CSV by pandas, Parquet by pyarrow."""

from __future__ import annotations

import collections
import contextlib
import csv
import dataclasses
import io
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from decimal import Decimal
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd

from tfopt.cli.columns import filled_rows, matrix_of
from tfopt.cli.data import Data
from tfopt.cli.files import CommandError, File
from tfopt.cli.read_options import ReadOptions
from tfopt.io.streams import is_damage, open_binary
from tfopt.linear_model.stored_model import Columns

__all__ = ["iter_table", "read_table"]

#: Rows of a block.
BLOCK = 2**16
#: What may be a number in a column of several types.
_NUMERIC = (str, bool, Number, Decimal, np.bool_)


def read_table(file: File, options: ReadOptions, like: Columns | None) -> Data:
    """Read a table; see `tfopt.cli.readers.read_data`."""
    (data,) = _blocks(file, options, like, None, like is None or like.label is not None)
    return data


def iter_table(file: File, options: ReadOptions, columns: Columns) -> Iterator[Data]:
    """Read a table block by block; the column of labels may be absent."""
    return _blocks(file, options, columns, BLOCK, False)


def _blocks(
    file: File, options: ReadOptions, like: Columns | None, block: int | None, needs_label: bool
) -> Iterator[Data]:
    """Yield the rows of a table in blocks of so many, or, without a number, in one."""
    frames = _csv if options.format_of(file.path) == "csv" else _parquet
    with _errors_of(file, options.separator_of(file.path)):
        for frame, lines, n_skipped in frames(file, options, block):
            data = _data_of(frame, lines, file, options, like, needs_label)
            yield dataclasses.replace(data, n_skipped=data.n_skipped + n_skipped)


def _csv(
    file: File, options: ReadOptions, block: int | None
) -> Iterator[tuple[Any, np.ndarray, int]]:
    """Yield data frames, the line of each row, and how many lines had too many fields."""
    separator = options.separator_of(file.path)
    record = 1  # the number of the next line, if fields had no line breaks
    n_breaks = 0  # in the fields of the lines so far
    with (
        file.opened() as source,
        open_binary(source) as stream,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        header = _record(stream)
        _refuse_twice(file, _fields(header, separator))  # pandas would rename them
        frames = pd.read_csv(
            io.BufferedReader(_After(header, stream)),
            sep=separator,
            float_precision="round_trip",
            low_memory=False,
            skip_blank_lines=False,  # so that rows are lines
            index_col=False,
            on_bad_lines="warn" if options.on_bad_line == "skip" else "error",
            chunksize=block or sys.maxsize,
        )
        for frame in frames:
            if record == 1:
                record, n_breaks = 2, sum(_breaks(frame.columns))
            skipped = [
                int(number)
                for warning in caught
                for number in re.findall(r"Skipping line (\d+)", str(warning.message))
            ]
            caught.clear()
            records = record + np.arange(len(frame) + len(skipped))
            record += records.size
            records = np.setdiff1d(records, skipped, assume_unique=True)[: len(frame)]
            breaks = np.zeros(len(frame), np.int64)
            for _, column in frame.select_dtypes(exclude="number").items():
                breaks += np.array(_breaks(column), np.int64)
            ends = n_breaks + np.cumsum(breaks)
            yield frame, records + ends - breaks, len(skipped)
            n_breaks = int(ends[-1]) if ends.size else n_breaks


def _breaks(fields: Any) -> list[int]:
    """Count the line breaks in each field."""
    return [field.count("\n") if isinstance(field, str) else 0 for field in fields]


def _record(stream: Any) -> bytes:
    """Read the next lines up to one that ends outside of quotes."""
    record = line = stream.readline()
    while line and record.count(b'"') % 2:
        line = stream.readline()
        record += line
    return bytes(record)


def _fields(record: bytes, separator: str) -> list[str]:
    text = record.decode("utf-8-sig", "replace")
    return next(csv.reader(io.StringIO(text, newline=""), delimiter=separator), [])


class _After(io.RawIOBase):
    """Bytes that were read from a stream, and then its rest."""

    def __init__(self, first: bytes, stream: Any) -> None:
        self._first, self._stream = io.BytesIO(first), stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._first.read(len(buffer)) or self._stream.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)


def _refuse_twice(file: File, names: Sequence[str]) -> None:
    """Refuse columns of one name, of which it does not say which is meant; empty ones have none."""
    for name, n in collections.Counter(names).items():
        if n > 1 and name:
            raise CommandError(f"{file.name}: has {n} columns {name!r}: rename or remove them")


def _parquet(
    file: File, options: ReadOptions, block: int | None
) -> Iterator[tuple[Any, np.ndarray, int]]:
    """Yield data frames and the number of each row; nothing is skipped."""
    from pyarrow import parquet

    with file.opened() as source, open_binary(source) as stream:
        seekable = stream if stream.seekable() else io.BytesIO(stream.read())
        table = parquet.ParquetFile(seekable)
        _refuse_twice(file, table.schema_arrow.names)
        first = 1
        rows = table.iter_batches(block) if block else [table.read()]
        for part_of_rows in rows:
            frame = _pandas(part_of_rows, file)
            yield frame, first + np.arange(len(frame)), 0
            first += len(frame)


def _pandas(rows: Any, file: File) -> Any:
    """Return rows of Arrow as a data frame; their memory is freed meanwhile."""
    try:
        return rows.to_pandas(split_blocks=True, self_destruct=True)
    except MemoryError:
        raise
    except Exception as error:  # any, if what pandas has noted in the file is damaged
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise CommandError(f"{file.name}: cannot be read as a table: {reason}") from error


def _data_of(
    frame: Any,
    lines: np.ndarray,
    file: File,
    options: ReadOptions,
    like: Columns | None,
    needs_label: bool,
) -> Data:
    """Return the rows of a frame."""
    label, weight = options.label, options.weight
    if label is None and like is not None:
        label = like.label
    frame.columns = frame.columns.map(str)
    _refuse_twice(file, [*frame.columns])
    if label is None and needs_label:
        raise CommandError(f"{file.name}: is a table: name the column of the labels with --label")
    named = label if needs_label or options.label is not None else None
    for needed, flag in ((named, "--label"), (weight, "--weight")):
        if needed is not None and needed not in frame.columns:
            raise CommandError(
                f"{file.name}: has no column {needed!r}, which {flag} names; it has "
                f"{', '.join(frame.columns[:20])}"
            )
    features = [c for c in frame.columns if c not in (label, weight)]
    if like is not None:
        assert like.features is not None
        missing = [c for c in like.features if c not in frame.columns]
        if missing:
            raise CommandError(
                f"{file.name}: has no column {missing[0]!r}, which the model was trained on"
            )
        features = [*like.features]
    if not features:
        raise CommandError(f"{file.name}: has no columns but that of the labels")
    if not (filled := filled_rows(frame)).all():
        frame, lines = frame[filled], lines[filled]
    checker = _Checker(frame, file, lines)
    columns = [checker.finite(column) for column in features]
    weights = None if weight is None else checker.numbers(weight, least=0.0)
    labels, classes = np.full(len(frame), np.nan), None if like is None else like.classes
    if label is not None and label in frame.columns:
        labels, classes = checker.labels(label, options.has_classes, like, needs_label)
    good = checker.good(options.on_bad_line)
    return Data(
        matrix_of(columns, good),
        labels[good],
        True,
        lines[good],
        file,
        int(len(good) - good.sum()),
        None if weights is None else weights[good],
        Columns(tuple(features), label, classes),
    )


class _Checker:
    """Converts columns to numbers, and notes the first fault of each row."""

    def __init__(self, frame: Any, file: File, lines: np.ndarray) -> None:
        self._frame, self._file, self._lines = frame, file, lines
        self._faults: dict[int, tuple[str, str | None, int]] = {}

    def numbers(self, column: str, least: float = -np.inf) -> np.ndarray:
        """Return a column as finite numbers, of float64."""
        return self.finite(column, least).astype(np.float64, copy=False)

    def finite(self, column: str, least: float = -np.inf) -> np.ndarray:
        """Return a column as finite numbers, of float64 or, if it is that, of float32."""
        values = self._converted(column)
        bad = ~np.isfinite(values) | (values < least if least > -np.inf else False)
        for row in np.flatnonzero(bad).tolist():
            what = "is not a number"
            if values[row] < least:
                what = f"is below {least:g}"
            elif np.isinf(values[row]):
                what = "is not finite"
            self._note(row, column, "value", what)
        return values

    def labels(
        self, column: str, may_be_text: bool, like: Columns | None, needed: bool
    ) -> tuple[np.ndarray, tuple[str, ...] | None]:
        """Return labels as numbers, and the names of classes if they are text."""
        values = self._frame[column]
        is_text = not pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values)
        classes = like.classes if like is not None else None
        if like is None and (not is_text or not may_be_text):
            return self.numbers(column), None
        absent = values.isna().to_numpy()
        if needed:
            for row in np.flatnonzero(absent).tolist():
                self._note(row, column, "label", "is missing")
        if like is not None and classes is None:
            return self._converted(column).astype(np.float64, copy=False), None
        text = values.astype(str).to_numpy(dtype=object)
        if classes is None:
            classes = tuple(sorted({*text[~absent].tolist()}))
        number = {name: float(k) for k, name in enumerate(classes)}
        codes = np.array([number.get(each, np.nan) for each in text.tolist()], np.float64)
        codes[absent] = np.nan
        return codes, classes

    def good(self, on_bad_line: str) -> np.ndarray:
        """Return which rows are without fault; raise the first fault unless they are skipped."""
        if self._faults and on_bad_line == "error":
            row = min(self._faults)
            raise self._file.error(int(self._lines[row]), *self._faults[row])
        good = np.ones(len(self._frame), bool)
        good[[*self._faults]] = False
        return good

    def _converted(self, column: str) -> np.ndarray:
        values = self._frame[column]
        if not pd.api.types.is_numeric_dtype(values):
            kept = [each if isinstance(each, _NUMERIC) else None for each in values]
            values = pd.to_numeric(pd.Series(kept, dtype=object), errors="coerce")
        kind = np.float32 if values.dtype == np.float32 else np.float64
        array: np.ndarray = values.to_numpy(kind, na_value=np.nan)
        return array

    def _note(self, row: int, column: str, kind: str, what: str) -> None:
        if row in self._faults:
            return
        value = self._frame[column].iloc[row]
        is_absent = pd.api.types.is_scalar(value) and pd.isna(value)
        token = None if is_absent else str(value)[:40]
        if token is None:
            what = "is missing"
        place = self._frame.columns.get_loc(column) + 1
        self._faults[row] = f"the {kind} of {column!r} {what}", token, place


@contextlib.contextmanager
def _errors_of(file: File, separator: str = ",") -> Iterator[None]:
    """Convert errors of pandas, pyarrow and files to one line."""
    try:
        yield
    except pd.errors.EmptyDataError as error:
        raise CommandError(f"{file.name}: no data rows") from error
    except pd.errors.ParserError as error:
        place = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
        if place is None:
            raise CommandError(f"{file.name}: {error}") from error
        expected, record, found = place.groups()
        message = f"the line has {found} fields instead of {expected}"
        raise file.error(_line_of(file, int(record), separator), message) from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{file.name}: is not UTF-8 text") from error
    except (BrokenPipeError, CommandError):
        raise
    except Exception as error:
        if type(error).__module__.startswith("pyarrow"):
            text = str(error).partition("\n")[0]
            raise CommandError(f"{file.name}: is not a Parquet file: {text}") from error
        if isinstance(error, OSError) or is_damage(error):
            reason = getattr(error, "strerror", None) or str(error)
            raise CommandError(f"{file.name}: {reason}") from error
        raise


def _line_of(file: File, record: int, separator: str) -> int:
    """Return the line at which a record of a CSV file begins, which pandas does not tell."""
    if file.path == "-":  # it cannot be read again
        return record
    with file.opened() as source, open_binary(source) as stream:
        text = io.TextIOWrapper(stream, "utf-8", newline="")
        reader = csv.reader(text, delimiter=separator)
        for _ in range(record - 1):
            next(reader)
        line = reader.line_num + 1
        text.detach()
    return line
