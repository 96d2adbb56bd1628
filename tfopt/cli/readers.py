"""Reading of labelled rows from LIBSVM files and tables, whole or in blocks."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from tfopt import io
from tfopt.cli.data import Data, Layout
from tfopt.cli.files import CommandError, File, errors_of, file_of, is_folder, sources_of
from tfopt.cli.hashed_text import iter_text, read_text, totals_of
from tfopt.cli.read_options import Base, ReadOptions
from tfopt.cli.row_numbers import RowNumbers, read_numbers
from tfopt.cli.rows import Blocks, Place, Rows, Summary
from tfopt.errors import FileFormatError, InvalidArgumentError
from tfopt.io.libsvm import Survey, add_labels, survey_libsvm
from tfopt.linear_model.encoding import Encoding, make_encoding
from tfopt.linear_model.stored_model import Columns
from tfopt.linear_model.table_facts import Facts, Table, distinct_values, facts_of

__all__ = ["read_blocks", "read_data", "read_rows", "rows_of", "survey"]

#: Weights are kept for every index up to the largest, 8 bytes each: a typing error in one index
#: must not claim all memory. The widest set on the LIBSVM page has 54.7 million features.
MAX_INDEX = 2**27


def read_data(file: str | File, options: ReadOptions, like: Layout | None = None) -> Data:
    """Read a file, plain or compressed, into memory.

    Parameters
    ----------
    file : str or File
        ``-`` is standard input.
    options : ReadOptions
    like : Layout, optional
        The training data's layout: where features are counted from, the columns and the classes.

    Returns
    -------
    Data
        At least one row; all numbers finite; indices ascending within a row.

    Raises
    ------
    CommandError
        The message names the file, the line, the column and the text.
    """
    data = _read(file_of(file) if isinstance(file, str) else file, options, like)
    table = data.features
    if not isinstance(table, Table):
        return data
    facts = [facts_of(table, options.scale)]
    made = _encoding(data.name, facts, lambda columns: [distinct_values(table, columns)], options)
    return data.with_encoding(made)


def _read(file: File, options: ReadOptions, like: Layout | None) -> Data:
    """Do the same, but the features of a table to train on are a `Table`."""
    _check_text(file, options)
    if options.is_hashed(file.path):
        return read_text(file, options)
    if options.format_of(file.path) != "libsvm":
        from tfopt.cli.tables import read_table  # loaded if needed only

        if like is not None and like.columns is None:
            raise CommandError(f"{file.name}: is a table, and the training data are not")
        data = read_table(file, options, None if like is None else like.columns)
    else:
        if like is not None and like.columns is not None:
            raise CommandError(f"{file.name}: is not a table, as the training data are")
        with _errors_of(file, options), file.opened() as source:
            read = io.read_libsvm(
                source,
                zero_based=options.zero_based if like is None else like.zero_based,
                max_index=MAX_INDEX,
                on_bad_line=options.on_bad_line,
            )
        data = Data(read.X, read.y, read.zero_based, read.lines, file, read.n_skipped)
        beside = RowNumbers(options)
        data = beside.joined(data)
        beside.check_end()
    if not data.labels.size:
        raise CommandError(f"{file.name}: no data rows")
    return data


def _check_text(file: File, options: ReadOptions) -> None:
    if options.format_of(file.path) == "vw" and options.hashes is None:
        raise CommandError(
            f"{file.name}: is text of Vowpal Wabbit, which tfopt train --solver ftrl --hash N reads"
        )


def read_blocks(file: str | File, options: ReadOptions, like: Layout) -> Iterator[Data]:
    """Read a file block by block, at least one, so that it need not fit in memory."""
    file, empty = file_of(file) if isinstance(file, str) else file, True
    for data in _blocks(file, options, like):
        empty = False
        yield data
    if empty:
        raise CommandError(f"{file.name}: no data rows")


def _blocks(file: File, options: ReadOptions, like: Layout) -> Iterator[Data]:
    zero_based = like.zero_based
    _check_text(file, options)
    if options.is_hashed(file.path):
        yield from iter_text(file, options)
        return
    if options.format_of(file.path) != "libsvm":
        from tfopt.cli.tables import iter_table  # loaded if needed only

        if like.columns is None:
            raise CommandError(f"{file.name}: is a table, and the model has no column names")
        yield from iter_table(file, options, like.columns)
        return
    beside = RowNumbers(options)
    with _errors_of(file, options), file.opened() as source:
        for read in io.iter_libsvm(
            source,
            n_features=MAX_INDEX + zero_based,
            zero_based=zero_based,
            on_bad_line=options.on_bad_line,
        ):
            data = Data(read.X, read.y, zero_based, read.lines, file, read.n_skipped)
            yield beside.joined(data)
        beside.check_end()


@dataclasses.dataclass(frozen=True)
class Surveyed:
    """What a survey finds in files that are then read block by block.

    Attributes
    ----------
    n_rows, n_features : int
    total_weight : float
    labels : dict of float to float
        The sum of the rows' weights for each distinct label, if labels are classes.
    layout : Layout
    """

    n_rows: int
    n_features: int
    total_weight: float
    labels: dict[float, float]
    layout: Layout


def survey(files: list[File], options: ReadOptions) -> Surveyed:
    """Read files once, to learn what is needed before the first row is used.

    A malformed value in a LIBSVM file is found later, when its block is read.
    """
    _check_text(files[0], options)
    if options.is_hashed(files[0].path):
        n_rows, weight, labels = totals_of(files, options)
        return Surveyed(n_rows, options.hashes or 0, weight, labels, Layout(True, None))
    if options.format_of(files[0].path) != "libsvm":
        from tfopt.cli.table_survey import survey_table  # loaded if needed only

        columns, labels, n_rows, weight = survey_table(files, options)
        n_features = len(columns.features or ())
        return Surveyed(n_rows, n_features, weight, labels, Layout(True, columns))
    weights = None if options.weight is None else read_numbers(options.weight, 0.0)
    found, of_labels = [_surveyed(file, options, weights) for file in files], dict[float, float]()
    for each in found:
        add_labels(of_labels, np.array([*each.labels]), np.array([*each.labels.values()]))
    base, n_features = _common_base(found, options.zero_based)
    n_rows = sum(each.n_rows for each in found)
    total = float(n_rows if weights is None else weights.sum())
    if not 0 < total < np.inf:
        raise CommandError(f"{options.weight}: the weights have the sum {total:g}")
    return Surveyed(n_rows, n_features, total, of_labels, Layout(base, None))


def _surveyed(file: File, options: ReadOptions, weights: np.ndarray | None) -> Survey:
    """Return what the rows of a LIBSVM file have in common."""
    found = None
    if options.on_bad_line == "error":
        with _errors_of(file, options), file.opened() as source:
            found = survey_libsvm(
                source,
                zero_based=options.zero_based,
                max_index=MAX_INDEX,
                has_classes=options.has_classes,
                weights=weights,
            )
    if found is None:  # the reader tells what is malformed, or leaves it out
        found = _surveyed_by_reading(file, options)
    if not found.n_rows:
        raise CommandError(f"{file.name}: no data rows")
    return found


def _surveyed_by_reading(file: File, options: ReadOptions) -> Survey:
    labels: dict[float, float] = {}
    n_rows, n_values, least, largest = 0, 0, MAX_INDEX, -1
    may_be_zero = options.zero_based is not False
    for data in _blocks(file, options, Layout(may_be_zero, None)):
        if options.has_classes:
            add_labels(labels, data.labels, data.weights)
        n_rows, n_values = n_rows + data.labels.size, n_values + data.features.nnz
        if data.features.nnz:
            indices = data.features.indices + (not may_be_zero)
            least, largest = min(least, indices.min()), max(largest, indices.max())
    base = (least == 0 or not n_values) if options.zero_based == "auto" else options.zero_based
    return Survey(n_rows, labels, n_values, max(int(largest) + base, 1), bool(base))


def _common_base(found: Sequence[Survey | Summary], base: Base) -> tuple[bool, int]:
    """Return whether the features of all files count from 0, and how many there are then."""
    if base == "auto":  # files without features do not matter
        saying = [each.zero_based for each in found if each.n_values]
        base = any(saying) or not saying
    return base, max(each.n_features + base - each.zero_based for each in found)


@contextlib.contextmanager
def _errors_of(file: File, options: ReadOptions) -> Iterator[None]:
    """Convert errors of a LIBSVM file to one line."""
    with errors_of(file):
        try:
            yield
        except FileFormatError as error:
            is_label = "label" in error.message and error.line == 1
            if is_label and options.format == "auto":
                hint = " (a table needs --format csv, or a name that ends in .csv)"
                more = error.message + hint, error.line, error.column, error.token
                raise FileFormatError(error.name, *more) from error
            raise


# ---- rows in blocks


def read_rows(path: str, options: ReadOptions, place: Place, like: Layout | None = None) -> Rows:
    """Read a file in this process, or the files of a folder at a place.

    Parameters
    ----------
    path, options, like
        See `read_data`.
    place : Place

    Raises
    ------
    CommandError
        If there is no file, or a file is refused.
    """
    if is_folder(path):
        return _rows_of_files(path, sources_of(path), options, place, like)
    return rows_of(read_data(path, options, like))


def rows_of(data: Data) -> Rows:
    """Return the rows of a file."""
    summary = _summary_of(data)
    layout = summary.n_features, data.zero_based, data.columns
    more = data.labels, data.n_skipped
    return Rows(data.name, [data], [summary], *layout, *more)


def _rows_of_files(
    path: str, files: list[File], options: ReadOptions, place: Place, like: Layout | None
) -> Rows:
    loaded = Blocks(place, _load, [(file, options, like) for file in files])
    summaries = loaded.map(_distinct, options.has_classes)
    n_skipped = sum(summary.n_skipped for summary in summaries)
    columns, labels = _common_columns(files, summaries)
    base, n_features = _common_base(
        summaries, options.zero_based if like is None else like.zero_based
    )
    encoding = None
    if columns is not None and like is None:
        facts = [each.facts for each in summaries]
        encoding = _encoding(path, facts, partial(loaded.map, _distinct_values), options)
        n_features = len(encoding.features)
        columns = columns.with_encoding(encoding)
    loaded.view = partial(
        _align,
        summaries=summaries,
        zero_based=base,
        n_features=n_features,
        classes=None if columns is None else columns.classes,
        encoding=encoding,
    )
    blocks = loaded if place.is_elsewhere else loaded.map(lambda data: data)
    return Rows(path, blocks, summaries, n_features, base, columns, labels, n_skipped)


def _common_columns(
    files: list[File], summaries: list[Summary]
) -> tuple[Columns | None, np.ndarray]:
    """Return the columns of all files, with the classes of all, and the distinct labels."""
    first, columns = files[0].name, summaries[0].columns
    for file, summary in zip(files, summaries, strict=True):
        if _names(summary.columns) != _names(columns):
            raise CommandError(f"{file.name}: has other columns than {first}")
        of_file = summary.columns
        if of_file and columns and (of_file.classes is None) != (columns.classes is None):
            kinds = ("text", "numbers") if columns.classes is None else ("numbers", "text")
            raise CommandError(
                f"{file.name}: the labels in '{columns.label}' are {kinds[0]}, and before "
                f"{kinds[1]}"
            )
    if columns is None or columns.classes is None:
        return columns, np.unique(np.concatenate([summary.labels for summary in summaries]))
    names = {name for each in summaries if each.columns for name in each.columns.classes or ()}
    classes = tuple(sorted(names))
    return dataclasses.replace(columns, classes=classes), np.arange(len(classes), dtype=float)


def _names(columns: Columns | None) -> Columns | None:
    return columns and dataclasses.replace(columns, classes=None)


def _encoding(
    name: str,
    facts: list[tuple[Facts, ...]],
    values_of: Callable[[list[int]], list[Any]],
    options: ReadOptions,
) -> Encoding:
    """Return the encoding for a table, or for the tables of all files."""
    try:
        return make_encoding(facts, values_of, scale=options.scale, missing=options.missing)
    except InvalidArgumentError as error:
        raise CommandError(f"{name}: {error}") from error


# ---- functions of a block


#: What is held of a file: its number, its rows as they were read, and their summary.
_Loaded: TypeAlias = tuple[int, Data, Summary]


def _load(number: int, file: File, options: ReadOptions, like: Layout | None) -> _Loaded:
    data = _read(file, options, like)
    summary = _summary_of(data, data.fingerprint())
    if isinstance(data.features, Table):
        facts = facts_of(data.features, options.scale)
        summary = dataclasses.replace(summary, facts=facts)
    return number, data, summary


def _distinct_values(loaded: _Loaded, columns: list[int]) -> Any:
    return distinct_values(loaded[1].features, columns)


def _summary_of(data: Data, fingerprint: str = "") -> Summary:
    n_rows, n_features = data.features.shape
    weights = 1.0 if data.weights is None else data.weights
    return Summary(
        n_rows=n_rows,
        n_features=n_features,
        n_values=0 if data.columns is not None else data.features.nnz,
        zero_based=data.zero_based,
        total_weight=data.total_weight if n_rows else 0.0,
        is_weighted=data.weights is not None,
        label_sum=float((weights * data.labels).sum()),
        n_skipped=data.n_skipped,
        columns=data.columns,
        labels=data.labels,
        fingerprint=fingerprint,
    )


def _distinct(loaded: _Loaded, has_classes: bool) -> Summary:
    """Return the summary of a file with its distinct labels, if they are of classes."""
    summary = loaded[2]
    labels = np.unique(summary.labels) if has_classes else np.empty(0)
    return dataclasses.replace(summary, labels=labels)


def _align(
    loaded: _Loaded,
    summaries: list[Summary],
    zero_based: bool,
    n_features: int,
    classes: tuple[str, ...] | None,
    encoding: Encoding | None,
) -> Data:
    """Return a block with the common features, base and classes.

    A file that has changed is refused: it is read again if a worker is lost.
    """
    number, data, summary = loaded
    if summary != summaries[number]:
        raise CommandError(f"{data.name}: has changed since it was read first")
    if encoding is not None:
        data = data.with_encoding(encoding)
    return data.with_base(zero_based).with_width(n_features).with_classes(classes)
