"""How files are read: their formats, and the roles of columns."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Base", "ReadOptions"]

#: Whether features count from 0; "auto": if index 0 occurs.
Base: TypeAlias = bool | Literal["auto"]
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_FORMATS = {".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".pq": "parquet", ".vw": "vw"}


def _suffix(path: str) -> str:
    """Return the suffix of a path, before that of a compression."""
    stem, suffix = os.path.splitext(path.lower())
    return os.path.splitext(stem)[1] if suffix in _COMPRESSED else suffix


@dataclass(frozen=True)
class ReadOptions:
    """How files are read.

    Attributes
    ----------
    format : str
        "libsvm", "csv", "parquet", "vw", or "auto": by the suffix of each file.
    zero_based : bool or "auto"
        Whether LIBSVM files count features from 0. "auto": unless index 0 occurs, from 1.
    label : str or None
        The column of a table with the labels.
    weight, offset : str or None
        The columns of a table, or the files beside a LIBSVM file, that hold the weights of rows and
        the offsets of their margins.
    separator : str or None
        The separator of a CSV file's fields; None: a tab if its name ends in .tsv, else a comma.
    drop, categorical : tuple of str
        Columns of a table that are not features, and columns that are read as text.
    missing : tuple of str
        The texts of missing values in a CSV file, besides the usual ones.
    scale : bool
        Whether numeric columns of a table are scaled to mean 0 and standard deviation 1.
    on_bad_line : {"error", "skip"}
    has_classes : bool
        Whether labels are classes; a table's labels may then be text.
    hashes : int or None
        The number of hashed features of each row; None: they are not hashed.
    numeric : tuple of str
    crosses : tuple of (str, str)
    has_header : bool
        Of text that is hashed: columns of numbers, pairs of columns or namespaces, and whether the
        first row names the columns.
    """

    format: str = "auto"
    zero_based: Base = "auto"
    label: str | None = None
    weight: str | None = None
    offset: str | None = None
    separator: str | None = None
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    scale: bool = False
    on_bad_line: Literal["error", "skip"] = "error"
    has_classes: bool = True
    hashes: int | None = None
    numeric: tuple[str, ...] = ()
    crosses: tuple[tuple[str, str], ...] = ()
    has_header: bool = True

    def is_hashed(self, path: str) -> bool:
        """Return whether the rows of a file become hashed features as they are read."""
        return self.hashes is not None and self.format_of(path) in ("csv", "vw")

    def format_of(self, path: str) -> str:
        """Return the format of a file."""
        return _FORMATS.get(_suffix(path), "libsvm") if self.format == "auto" else self.format

    def beside(self, path: str) -> list[str]:
        """Return the files with the numbers of a LIBSVM file's rows."""
        named = [self.weight, self.offset] if self.format_of(path) == "libsvm" else []
        return [each for each in named if each is not None]

    def separator_of(self, path: str) -> str:
        """Return the separator of the fields in a file of lines."""
        return self.separator or ("\t" if _suffix(path) == ".tsv" else ",")
