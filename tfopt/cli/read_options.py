"""How files are read: their format, by their names or as told, and what their columns are."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Base", "ReadOptions"]

#: Whether features count from 0; "auto": if index 0 occurs.
Base: TypeAlias = bool | Literal["auto"]
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_FORMATS = {".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".pq": "parquet"}


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
        "libsvm", "csv", "parquet", or "auto": by the suffix of each file.
    zero_based : bool or "auto"
        Whether LIBSVM files count features from 0. "auto": unless index 0 occurs, from 1.
    label, weight : str or None
        The columns of a table with the labels and the weights of rows.
    on_bad_line : {"error", "skip"}
    has_classes : bool
        Whether labels are classes; those of a table may then be text.
    """

    format: str = "auto"
    zero_based: Base = "auto"
    label: str | None = None
    weight: str | None = None
    on_bad_line: Literal["error", "skip"] = "error"
    has_classes: bool = True

    def format_of(self, path: str) -> str:
        """Return the format of a file."""
        return _FORMATS.get(_suffix(path), "libsvm") if self.format == "auto" else self.format

    def separator_of(self, path: str) -> str:
        """Return what separates the fields of a file of lines."""
        return "\t" if _suffix(path) == ".tsv" else ","
