"""Reading of tables, CSV and Parquet, in pieces that are encoded as features."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import functools
import io
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from tfopt.cli.csv_pieces import Piece, csv_header, csv_pieces, line_of
from tfopt.cli.data import Data
from tfopt.cli.files import CommandError, File
from tfopt.cli.gathered import Gathered, Wanted
from tfopt.cli.read_options import ReadOptions
from tfopt.errors import InvalidArgumentError
from tfopt.io.streams import is_damage, open_binary
from tfopt.linear_model.stored_model import Columns
from tfopt.linear_model.table_facts import Kind

__all__ = [
    "as_table",
    "errors_of",
    "iter_table",
    "label_names",
    "mixed_columns",
    "opened",
    "read_table",
    "wanted_columns",
]

#: Yields the rows of an open table, given the columns to read and those of them that are text.
Pieces: TypeAlias = Callable[[Sequence[int], Sequence[int]], Iterator[Piece]]
#: Rows of a Parquet file that are converted together.
BLOCK = 2**13
#: What text of truth values is called, whatever its case.
_TRUTH = {"true": "True", "false": "False"}


@dataclasses.dataclass(frozen=True)
class CsvFile(File):
    """A CSV file; its errors take the number of a row, and name the line."""

    separator: str = ","

    def error(
        self, line: int | None, message: str, token: str | None = None, column: int | None = None
    ) -> CommandError:
        if line is not None:
            line = line_of(self, line, self.separator)
        return super().error(line, message, token, column)


def read_table(file: File, options: ReadOptions, like: Columns | None) -> Data:
    """Read a table as `tfopt.cli.readers.read_data` does; features to train on are a `Table`."""
    label = options.label or (None if like is None else like.label)
    if like is None and label is None:
        raise CommandError(f"{file.name}: is a table: name the column of the labels with --label")
    (data,) = _blocks(file, options, like, label is not None, whole=True)
    return data


def iter_table(file: File, options: ReadOptions, columns: Columns) -> Iterator[Data]:
    """Read a table block by block; the column of labels may be absent."""
    return _blocks(file, options, columns, False, whole=False)


def _blocks(
    file: File, options: ReadOptions, like: Columns | None, needs_label: bool, *, whole: bool
) -> Iterator[Data]:
    """Yield the rows of a table: all together, or piece by piece."""
    file = as_table(file, options)
    kinds: dict[int, Kind] = {}
    with errors_of(file):
        while True:
            with opened(file, options, like) as (names, n_rows, pieces):
                wanted = wanted_columns(file, names, options, like, needs_label)
                gathered = Gathered(wanted, kinds, n_rows if whole else 0)
                for piece in pieces(*gathered.places):
                    gathered.add(file, piece, options.on_bad_line)
                    if not whole:
                        yield _data_of(gathered, file, options, like)
                        gathered = Gathered(wanted, kinds)
            if not whole:
                return
            if not (mixed := mixed_columns(file, gathered)):
                break
            kinds |= mixed
        yield _data_of(gathered, file, options, like)


def mixed_columns(file: File, gathered: Gathered) -> dict[int, Kind]:
    """Return the columns that begin with numbers or dates but must be read again as text."""
    if gathered.mixed and file.path == "-":
        name = gathered.mixed[min(gathered.mixed)]
        raise CommandError(
            f"{file.name}: {name!r} begins with numbers or dates, and has text later: name a file "
            "instead"
        )
    return dict.fromkeys(gathered.mixed, "text")


def as_table(file: File, options: ReadOptions) -> File:
    """Return a file whose errors name lines, if it is a CSV file."""
    if options.format_of(file.path) != "csv":
        return file
    return CsvFile(file.path, file.name, separator=options.separator_of(file.path))


# ---- formats


def _names_of(names: Sequence[str]) -> list[str]:
    """Return the names of columns without spaces around; those without one get one."""
    return [name.strip() or f"Unnamed: {k}" for k, name in enumerate(names)]


def opened(
    file: File, options: ReadOptions, like: Columns | None
) -> contextlib.AbstractContextManager[tuple[list[str], int, Pieces]]:
    """Yield the names of the columns, the number of rows (0: unknown), and a reader of the rows."""
    return _opened_csv(file, options, like) if isinstance(file, CsvFile) else _opened_parquet(file)


@contextlib.contextmanager
def _opened_csv(
    file: CsvFile, options: ReadOptions, like: Columns | None
) -> Iterator[tuple[list[str], int, Pieces]]:
    encoding = None if like is None else like.encoding
    missing = options.missing if encoding is None else encoding.missing
    with file.opened() as source, open_binary(source) as stream:
        header = csv_header(stream, file.separator)
        if not header:
            raise CommandError(f"{file.name}: no data rows")
        yield (
            _names_of(header),
            0,
            lambda chosen, as_text: csv_pieces(
                stream, file.separator, len(header), chosen, as_text, missing
            ),
        )


@contextlib.contextmanager
def _opened_parquet(file: File) -> Iterator[tuple[list[str], int, Pieces]]:
    with file.opened() as source, open_binary(source) as stream:
        seekable = stream if stream.seekable() else io.BytesIO(stream.read())
        opened = parquet.ParquetFile(seekable, buffer_size=2**16)  # by pages, not whole
        noted = opened.schema_arrow.pandas_metadata or {}
        index = [name for name in noted.get("index_columns", ()) if isinstance(name, str)]
        names = [name for name in opened.schema_arrow.names if name not in index]
        pieces = functools.partial(_parquet_pieces, opened, names)
        yield _names_of(names), opened.metadata.num_rows, pieces


def _parquet_pieces(
    opened: Any, names: Sequence[str], chosen: Sequence[int], as_text: Sequence[int]
) -> Iterator[Piece]:
    first = 1
    for batch in opened.iter_batches(BLOCK, columns=[names[k] for k in chosen]):
        numbers = np.arange(first, first + batch.num_rows)
        yield Piece([batch.column(names[k]) for k in chosen], numbers, [])
        first += batch.num_rows


# ---- which columns


def wanted_columns(
    file: File,
    names: list[str],
    options: ReadOptions,
    like: Columns | None,
    needs_label: bool,
) -> list[Wanted]:
    """Return the requirements for the columns of features, labels and weights."""
    label = options.label or (None if like is None else like.label)
    label, weight, offset = (
        None if name is None else name.strip() for name in (label, options.weight, options.offset)
    )
    named = label if needs_label or options.label is not None else None
    asked = [(named, "--label"), (weight, "--weight"), (offset, "--offset")]
    if like is None:
        _refuse_both(file, [(label, "--label"), *asked[1:]], options)
        asked += [(name, "--drop") for name in options.drop]
        asked += [(name, "--categorical") for name in options.categorical]
    for needed, flag in asked:
        if needed is not None and needed.strip() not in names:
            raise CommandError(
                f"{file.name}: no column {needed!r} (from {flag}); columns: "
                f"{', '.join(names[:20])}{_hint(names, options)}"
            )
    wanted = []
    if like is None:
        dropped, texts = ({*map(str.strip, each)} for each in (options.drop, options.categorical))
        for name in dict.fromkeys(names):
            if name not in (label, weight, offset) and name not in dropped:
                kind: Kind | None = "text" if name in texts else None
                wanted.append(Wanted(name, _place(file, names, name), kind))
    elif like.encoding is not None:
        for each in like.encoding.columns:
            place = _place(file, names, each.name)
            wanted.append(Wanted(each.name, place, each.kind, each.has_missing))
    else:
        for name in like.features or ():
            wanted.append(Wanted(name, _place(file, names, name), "number", False))
    if not wanted:
        raise CommandError(f"{file.name}: has no columns besides the labels")
    if label in names:
        has_names = like is not None and like.classes is not None
        is_csv = isinstance(file, CsvFile)
        is_open = options.has_classes and like is None
        kind = "number"
        if has_names or is_open:
            kind = "text" if has_names or is_csv else None
        more = {"is_checked": like is None, "may_be_numbers": is_open and is_csv}
        place = _place(file, names, label)
        wanted.append(Wanted(label, place, kind, not needs_label, "label", **more))
    for role, column, least in (("weight", weight, 0.0), ("offset", offset, -math.inf)):
        if column is not None:
            place = _place(file, names, column)
            wanted.append(Wanted(column, place, "number", False, role, least))
    return wanted


def _refuse_both(file: File, others: list[tuple[str | None, str]], options: ReadOptions) -> None:
    """Refuse a column that is named twice, and cannot be both."""
    dropped = [(name, "--drop") for name in options.drop]
    for name, flag in [*others, *((name, "--categorical") for name in options.categorical)]:
        for other, taken in [*dropped, *(others if flag == "--categorical" else ())]:
            if name is not None and other is not None and name.strip() == other.strip():
                raise CommandError(f"{file.name}: {taken} and {flag} both name the column {name!r}")


def _place(file: File, names: Sequence[str], name: str) -> int:
    """Return where a column is; refuse two of one name: it does not say which is meant."""
    at = [k for k, each in enumerate(names) if each == name.strip()]
    if not at:
        raise CommandError(f"{file.name}: has no column {name!r}, which the model was trained on")
    if len(at) > 1:
        shown = [str(k + 1) for k in at]
        raise CommandError(
            f"{file.name}: has {len(at)} columns {name!r}, at {', '.join(shown[:-1])} and "
            f"{shown[-1]}: rename them, or train without them (--drop)"
        )
    return at[0]


def _hint(names: Sequence[str], options: ReadOptions) -> str:
    """Return what may be wrong if a table has a single column."""
    found = [sep for sep in ";\t|," if len(names) == 1 and sep in names[0]]
    return f" (is {found[0]!r} between them? then --sep {found[0]!r})" if found else ""


# ---- rows


def label_names(texts: Sequence[str]) -> list[str]:
    """Return the names of labels of text; truth values have one spelling, whatever their case."""
    names = [_TRUTH.get(text.lower(), text) for text in texts]
    return [*texts] if {*names} - {*_TRUTH.values()} else names


def _data_of(gathered: Gathered, file: File, options: ReadOptions, like: Columns | None) -> Data:
    """Return the rows that were read."""
    if like is None:
        gathered.settle(file, options.on_bad_line)
    classes = None if like is None else like.classes
    labels, texts = gathered.other("label")
    if labels is None:
        labels = np.full(len(gathered.numbers), np.nan)
    elif texts is not None:
        names = label_names(texts)
        present = ~np.isnan(labels)
        codes = labels[present].astype(np.intp)
        if classes is None:
            classes = tuple(sorted({names[code] for code in np.unique(codes).tolist()}))
        index = {name: float(k) for k, name in enumerate(classes)}
        labels[present] = np.array([index.get(name, np.nan) for name in names])[codes]
    label = options.label or (None if like is None else like.label)
    features: Any = gathered.table()
    columns = Columns(features.names, label, classes) if like is None else like
    if like is not None:
        features = features.values if like.encoding is None else like.encoding.encode(features)
    weights, _ = gathered.other("weight")
    offset, _ = gathered.other("offset")
    of_rows = gathered.numbers, file, gathered.n_skipped, weights
    columns = dataclasses.replace(columns, label=label)
    return Data(features, labels, True, *of_rows, columns, offset)


@contextlib.contextmanager
def errors_of(file: File) -> Iterator[None]:
    """Convert errors of pyarrow and files to one line."""
    try:
        yield
    except UnicodeError as error:
        raise CommandError(f"{file.name}: is not UTF-8 text") from error
    except (BrokenPipeError, CommandError, MemoryError, ModuleNotFoundError):
        raise
    except InvalidArgumentError as error:
        raise CommandError(f"{file.name}: {error}") from error
    except Exception as error:
        if isinstance(error, (pa.ArrowException, csv.Error)):
            kind = "CSV" if isinstance(file, CsvFile) else "Parquet"
            reason = f"is not a {kind} file: {str(error).partition(chr(10))[0]}"
            if "UTF8" in reason:
                reason = "is not UTF-8 text"
            raise CommandError(f"{file.name}: {reason}") from error
        if isinstance(error, OSError) or is_damage(error):
            reason = getattr(error, "strerror", None) or str(error)
            raise CommandError(f"{file.name}: {reason}") from error
        raise
