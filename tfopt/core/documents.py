"""Documents of models, JSON and archives of arrays: to read them runs no code.

Equal models give equal bytes: times in an archive are fixed (NumPy writes 1980-01-01), and nothing
about the environment is stored. To read a file takes memory in proportion to its size, whatever is
in it.
"""

from __future__ import annotations

import io
import json
import math
import re
import zipfile
from collections.abc import Mapping, Sequence
from typing import IO, Any

import numpy as np

from tfopt.errors import InvalidArgumentError

__all__ = [
    "LABELS",
    "MOST_THINGS",
    "are_labels",
    "encode_arrays",
    "parse_document",
    "read_archive",
]

#: The limit for lists, dictionaries and their members, which take more memory than bytes in the
#: file; one more is allowed for every 32 bytes of the file.
MOST_THINGS = 1_000_000
#: The NumPy types of labels, by the names of their Python types.
LABELS: dict[str, type] = {"bool": bool, "int": np.int64, "float": np.float64, "str": str}
_DAMAGED = "its arrays are damaged"
#: How an array begins: version 1.0 of NumPy's format, then two bytes of the description's length.
_PREAMBLE = b"\x93NUMPY\x01\x00"
_DESCRIPTION = re.compile(
    rb"\{(?:(?:'descr': '[<>|=]?[bcfiSuUV]\d+'|'fortran_order': (?:True|False)"
    rb"|'shape': \((?:\d+, ?)*\d*\)),? ?)*\}\s*"
)


def are_labels(values: Any) -> bool:
    """Return whether values are distinct labels, two or more, that files of models can have.

    A model has labels of one type.
    """
    return (
        isinstance(values, (list, tuple))
        and all(_is_label(each) for each in values)
        and len(values) == len({*values}) >= 2
    )


def _is_label(value: Any) -> bool:
    if type(value) is int:
        return -(2**63) <= value < 2**63
    return type(value).__name__ in LABELS and (type(value) is not float or math.isfinite(value))


def parse_document(text: str | bytes, schema: str) -> dict[str, Any]:
    """Return the object of a JSON text; raise InvalidArgumentError if there is none."""
    if _has_too_many(text):
        raise InvalidArgumentError("the text has too many objects and arrays")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"the text is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise InvalidArgumentError(f'the document must be an object with "schema": "{schema}"')
    return document


def _has_too_many(text: str | bytes) -> bool:
    """Return whether a text, not yet parsed, has more objects and arrays than a model needs.

    They take up to thirty times as much memory as text, and numbers and strings less than half.
    """
    marks: Any = "[{:" if isinstance(text, str) else (b"[", b"{", b":")
    return sum(text.count(mark) for mark in marks) > MOST_THINGS + len(text) // 32


def encode_arrays(document: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return the content of an archive, ``.npz``, of a document and arrays."""
    header = np.array(json.dumps(document, allow_nan=False))
    archive = io.BytesIO()
    plain: dict[str, Any] = {name: np.ascontiguousarray(each) for name, each in arrays.items()}
    try:
        np.savez(archive, header=header, **plain)
    except ValueError as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # of which zipfile makes one
            raise error.__context__ from None
        raise
    return archive.getvalue()


def read_archive(
    file: Any, *names_of: Sequence[str], schema: str
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the document and the arrays of an open file.

    Parameters
    ----------
    file : binary file
    *names_of : sequence of str
        The names of the arrays that it may have, one set or another.
    schema : str
        For the message.

    Raises
    ------
    InvalidArgumentError
        If it is no such file.
    """
    if not zipfile.is_zipfile(file):
        raise InvalidArgumentError("not an .npz file, or cut short")
    file.seek(0)
    try:
        with np.load(file, allow_pickle=False) as archive:
            entries = archive.zip.infolist()
            # uncompressed, as written: reading then needs no more memory than the file's size
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
                raise InvalidArgumentError("its arrays are compressed")
            names = sorted(archive.files)
            if names not in (sorted(("header", *each)) for each in names_of):
                raise InvalidArgumentError(
                    f"it must hold the arrays header, {' and '.join(names_of[0])}"
                )
            for entry in entries:
                with archive.zip.open(entry) as content:
                    _check_start(content)
            arrays = {key: archive[key] for key in names}
    except (OSError, InvalidArgumentError):
        raise
    except Exception as error:  # any error of NumPy's parsers, or of zipfile
        raise InvalidArgumentError(_DAMAGED) from error
    header = arrays.pop("header")
    if header.shape != () or header.dtype.kind != "U":
        raise InvalidArgumentError("its header is not a string")
    return parse_document(str(header), schema), arrays


def _check_start(content: IO[bytes]) -> None:
    """Refuse an array whose start NumPy would guess at, with a warning or without."""
    preamble = content.read(len(_PREAMBLE) + 2)
    length = int.from_bytes(preamble[len(_PREAMBLE) :], "little")
    if not preamble.startswith(_PREAMBLE) or not _DESCRIPTION.fullmatch(content.read(length)):
        raise InvalidArgumentError(_DAMAGED)
