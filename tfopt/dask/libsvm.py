"""Folders of LIBSVM files, a block each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dask
import fsspec
from scipy import sparse
from sklearn.datasets import load_svmlight_file

from tfopt.cli.errors import CommandError
from tfopt.cli.lines import Lines, display_name, open_data
from tfopt.core.hidden_files import is_hidden
from tfopt.errors import InvalidArgumentError

__all__ = ["read_libsvm"]


def read_libsvm(
    paths: str | Sequence[str], *, n_features: int, zero_based: bool = False
) -> tuple[list[Any], list[Any]]:
    """Name LIBSVM files as blocks, each to be read by the worker that is to hold it.

    Parameters
    ----------
    paths : str or sequence of str
        A folder, whose files are taken in the order of their names, with those of folders in it and
        without hidden ones, whose names begin with ``.`` or ``_``; or files; or their URLs as
        fsspec has them. What gzip, bzip2 or xz has compressed is decompressed, whatever its name.
    n_features : int
    zero_based : bool, default=False
        Whether features are counted from 0.

    Returns
    -------
    X, y : list of delayed
        CSR matrices and arrays of labels.

    Raises
    ------
    FileNotFoundError
        If there is no file. What a file has wrong is found when its block is read: an
        InvalidArgumentError names the file, the line and the token.

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
        names = [folder]
        if fs.isdir(folder):
            found = (name for name in fs.find(folder) if not name.endswith("/"))
            names = sorted(n for n in found if not is_hidden(n[len(folder) :].lstrip("/")))
        paths = [fs.unstrip_protocol(name) for name in names]
    if not paths:
        raise FileNotFoundError("there are no files to read")
    pairs = [dask.delayed(_read, nout=2)(path, n_features, zero_based) for path in paths]
    return [X for X, _ in pairs], [y for _, y in pairs]


def _read(path: str, n_features: int, zero_based: bool) -> tuple[Any, Any]:
    name = display_name(path)
    try:
        with open_data(path, name) as stream:
            lines = Lines(stream, name, first_index=int(not zero_based))
            try:
                X, y = load_svmlight_file(lines, zero_based=zero_based)
            except (ValueError, OverflowError) as error:
                raise lines.refusal(error) from error
    except CommandError as error:
        raise InvalidArgumentError(str(error)) from error
    if X.shape[1] > n_features:
        raise InvalidArgumentError(f"{name}: it has {X.shape[1]} features, not {n_features}")
    return sparse.csr_matrix((X.data, X.indices, X.indptr), (len(y), n_features)), y
