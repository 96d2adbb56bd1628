"""Data as blocks: chunks of a Dask array, partitions of a data frame, lists, LIBSVM files."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import dask
import fsspec

from tfopt import io
from tfopt.core.hidden_files import shown_files

__all__ = ["as_blocks", "as_list", "is_collection", "read_libsvm"]


def is_collection(X: Any) -> bool:
    """Return whether X is a Dask collection or a list of blocks."""
    return dask.is_dask_collection(X) or _is_list(X)


def _is_list(X: Any) -> bool:
    return isinstance(X, (list, tuple)) and all(
        hasattr(block, "shape") or hasattr(block, "key") for block in X
    )


def as_blocks(X: Any, **of_rows: Any) -> list[tuple[Any, ...]]:
    """Return the blocks of X and of the arrays that belong to its rows, mostly delayed.

    Parameters
    ----------
    X : dask array or DataFrame, shape (n_samples, n_features), or sequence
    **of_rows : dask array or Series, shape (n_samples,), or sequence
        Arrays by their names for messages; None, or one number for all rows, is allowed.

    Raises
    ------
    TypeError
        If X is not a collection or a list of blocks.
    ValueError
        If one of them has another number of blocks than X.
    """
    if not is_collection(X):
        raise TypeError(
            "X must be a dask array, a dask dataframe or a list of blocks, not "
            f"{type(X).__name__}: data in memory are for tfopt.linear_model"
        )
    features = as_list(X)
    columns = [features]
    for name, values in of_rows.items():
        if values is None or isinstance(values, numbers.Real):
            columns.append([values] * len(features))
            continue
        blocks = as_list(_rechunked_like(X, values), name)
        if len(blocks) != len(features):
            raise ValueError(f"X has {len(features)} blocks, but {name} has {len(blocks)}")
        columns.append(blocks)
    if not features:
        raise ValueError("there are no blocks")
    return list(zip(*columns, strict=True))


def _rechunked_like(X: Any, values: Any) -> Any:
    """Rechunk values as the rows of X, if both are arrays of known sizes."""
    both = hasattr(X, "chunks") and hasattr(values, "chunks")
    if both and X.shape[0] == values.shape[0] and X.chunks[0] != values.chunks[0]:
        return values.rechunk((X.chunks[0],))
    return values


def as_list(values: Any, name: str = "X") -> list[Any]:
    """Return the blocks of a collection."""
    if isinstance(values, (list, tuple)):
        return list(values)
    if hasattr(values, "chunks"):
        if values.ndim == 2 and len(values.chunks[1]) > 1:
            values = values.rechunk({1: -1})
        return list(values.to_delayed().ravel())
    if hasattr(values, "to_delayed"):
        return list(values.to_delayed())
    raise TypeError(f"{name} must be in blocks as X is, not {type(values).__name__}")


def read_libsvm(
    paths: str | Sequence[str], *, n_features: int, zero_based: bool = False
) -> tuple[list[Any], list[Any]]:
    """Return LIBSVM files as blocks, each to be read by the worker that will hold it.

    Parameters
    ----------
    paths : str or sequence of str
        A folder or files, or URLs that fsspec understands. The files of a folder are sorted by
        name; those of subfolders are included, hidden ones, whose names begin with ``.`` or ``_``,
        are not. Files that are compressed by gzip, bzip2, xz or Zstandard are decompressed,
        whatever their names.
    n_features : int
    zero_based : bool, default=False
        Whether features are numbered from 0.

    Returns
    -------
    X, y : list of delayed
        CSR matrices and arrays of labels.

    Raises
    ------
    FileNotFoundError
        If there is no file. Errors in a file are found when its block is read: a `FileFormatError`
        names the file, the line, the column and the text.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from tfopt.dask import read_libsvm
    >>> folder = Path(tempfile.mkdtemp())
    >>> for day in ("monday", "tuesday"):
    ...     _ = (folder / day).write_text("1 2:0.5\\n-1 1:1 3:2\\n")
    >>> X, y = read_libsvm(str(folder), n_features=3)
    >>> X[1].compute().toarray()
    array([[0. , 0.5, 0. ],
           [1. , 0. , 2. ]])
    """
    if isinstance(paths, str):
        fs, folder = fsspec.url_to_fs(paths)
        is_folder = fs.isdir(folder)
        found = shown_files(fs, folder).values() if is_folder else [fs.unstrip_protocol(folder)]
        paths = list(found)
    if not paths:
        raise FileNotFoundError("there are no files to read")
    pairs = [dask.delayed(_read, nout=2)(path, n_features, zero_based) for path in paths]
    return [X for X, _ in pairs], [y for _, y in pairs]


def _read(path: str, n_features: int, zero_based: bool) -> tuple[Any, Any]:
    read = io.read_libsvm(path, n_features=n_features, zero_based=zero_based)
    return read.X, read.y
