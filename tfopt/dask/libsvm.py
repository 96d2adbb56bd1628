"""Folders of LIBSVM files, a block each."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import dask
import fsspec
from sklearn.datasets import load_svmlight_file

__all__ = ["read_libsvm"]


def read_libsvm(
    paths: str | Sequence[str], *, n_features: int, zero_based: bool = False
) -> tuple[list[Any], list[Any]]:
    """Name LIBSVM files as blocks, each to be read by the worker that is to hold it.

    Parameters
    ----------
    paths : str or sequence of str
        A folder, whose files are taken in the order of their names, or files; or their URLs as
        fsspec has them. Names that end in .gz, .bz2 or .xz are decompressed.
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
        If there is no file.

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
        names = sorted(fs.find(folder)) if fs.isdir(folder) else [folder]
        paths = [fs.unstrip_protocol(name) for name in names]
    if not paths:
        raise FileNotFoundError("there are no files to read")
    pairs = [dask.delayed(_read, nout=2)(path, n_features, zero_based) for path in paths]
    return [X for X, _ in pairs], [y for _, y in pairs]


def _read(path: str, n_features: int, zero_based: bool) -> tuple[Any, Any]:
    with fsspec.open(path, "rb", compression="infer") as file:
        text = BytesIO(file.read())
    try:
        X, y = load_svmlight_file(text, n_features=n_features, zero_based=zero_based)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return X, y
