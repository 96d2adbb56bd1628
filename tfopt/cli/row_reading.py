"""Reading labelled rows into blocks: of one file, of a folder, or of the parts of a large file."""

from __future__ import annotations

import dataclasses

import numpy as np

from tfopt.cli.data import Data, Layout
from tfopt.cli.files import CommandError, File, files_in, is_folder
from tfopt.cli.readers import cut, read_data
from tfopt.cli.rows import Executor, RereadingExecutor, Rows, Summary
from tfopt.cli.settings import ReadOptions
from tfopt.linear_model.stored_model import Columns


def read_rows(
    path: str,
    options: ReadOptions,
    executor: Executor,
    like: Layout | None = None,
    chunk_size: int | None = None,
) -> Rows:
    """Read a file in this process, or the files of a folder by an executor.

    Parameters
    ----------
    path, options, like
        See `tfopt.cli.readers.read_data`.
    executor : Executor
    chunk_size : int, optional
        Read a file in parts of about so many bytes, whenever they are used.

    Raises
    ------
    CommandError
        If there is no file, or one is refused.
    """
    if chunk_size is not None:
        return _rows_in_parts(
            path, cut(path, options, chunk_size), options, RereadingExecutor(), like
        )
    if is_folder(path):
        return _rows_in_parts(path, files_in(path), options, executor, like)
    return rows_of(read_data(path, options, like))


def rows_of(data: Data) -> Rows:
    """Return the rows of a file, as one block in this process."""
    summary = _summary_of(data)
    layout = summary.n_features, data.zero_based, data.columns
    more = data.labels, data.n_skipped
    return Rows(data.name, Executor(), [data], [summary], *layout, *more, in_parts=False)


def _rows_in_parts(
    path: str, files: list[File], options: ReadOptions, executor: Executor, like: Layout | None
) -> Rows:
    loaded = executor.persist(_read, files, (options, like))
    summaries = executor.gather(executor.map(_distinct, loaded, shared=(options.has_classes,)))
    full = [k for k, summary in enumerate(summaries) if summary.n_rows]  # others say nothing
    if not full:
        raise CommandError(f"{path}: no data rows")
    n_skipped = sum(summary.n_skipped for summary in summaries)
    files, loaded, summaries = ([column[k] for k in full] for column in (files, loaded, summaries))
    columns, labels = _common_columns(files, summaries)
    base = options.zero_based if like is None else like.zero_based
    if base == "auto":  # files without features do not matter
        saying = [summary.zero_based for summary in summaries if summary.n_values]
        base = any(saying) or not saying
    n_features = max(summary.n_features + base - summary.zero_based for summary in summaries)
    shared = base, n_features, columns and columns.classes
    blocks = executor.map(_align, loaded, summaries, shared=shared)
    layout = n_features, base, columns
    return Rows(path, executor, blocks, summaries, *layout, labels, n_skipped, in_parts=True)


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


# ---- functions of a block


def _read(file: File, how: tuple[ReadOptions, Layout | None]) -> tuple[Data, Summary]:
    data = read_data(file, *how)
    # parts are read too often for a hash of all that is in them
    return data, _summary_of(data, data.fingerprint() if file.is_whole else "")


def _summary_of(data: Data, fingerprint: str = "") -> Summary:
    n_rows, n_features = data.features.shape
    weights = 1.0 if data.weights is None else data.weights
    return Summary(
        n_rows=n_rows,
        n_features=n_features,
        n_values=data.features.nnz,
        zero_based=data.zero_based,
        total_weight=data.total_weight if n_rows else 0.0,
        is_weighted=data.weights is not None,
        label_sum=float((weights * data.labels).sum()),
        n_skipped=data.n_skipped,
        columns=data.columns,
        labels=data.labels,
        fingerprint=fingerprint,
    )


def _distinct(loaded: tuple[Data, Summary], has_classes: bool) -> Summary:
    """Return the summary of a file with its distinct labels, if they are of classes."""
    labels = np.unique(loaded[1].labels) if has_classes else np.empty(0)
    return dataclasses.replace(loaded[1], labels=labels)


def _align(
    loaded: tuple[Data, Summary],
    first_summary: Summary,
    zero_based: bool,
    n_features: int,
    classes: tuple[str, ...] | None,
) -> Data:
    """Return a block with the common width, base and classes.

    A file that has changed is refused: it is read again if a worker is lost, or in each epoch.
    """
    data, summary = loaded
    if summary != first_summary:
        raise CommandError(f"{data.name}: has changed since it was read first")
    return data.with_base(zero_based).with_width(n_features).with_classes(classes)
