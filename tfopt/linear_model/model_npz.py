"""Archives of linear models, ``.npz``: the document of a model, and its numbers as arrays.

Equal models give equal bytes: times in the archive are fixed (NumPy writes 1980-01-01), and nothing
about the environment is stored. To read a file runs no code, and takes memory in proportion to its
size, whatever is in it.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from typing import IO, Any

import numpy as np

from tfopt.errors import InvalidArgumentError
from tfopt.linear_model.model_json import (
    ARRAYS,
    SCHEMA,
    arrays_of,
    check_document,
    document_of,
    parse_document,
    stored_model,
)
from tfopt.linear_model.stored_model import LINKS, StoredModel

__all__ = ["encode_npz", "parse_npz"]

#: How the headers of three versions began that were not yet documents, and their arrays' names.
OLD_FORMAT, OLD_VERSIONS = "tfopt linear model", (1, 2, 3)
OLD_ARRAYS = ("weights", "bias")
_DAMAGED = "its arrays are damaged"
#: How an array begins: version 1.0 of NumPy's format, then two bytes of the description's length.
_PREAMBLE = b"\x93NUMPY\x01\x00"
_DESCRIPTION = re.compile(
    rb"\{(?:(?:'descr': '[<>|=]?[bcfiSuUV]\d+'|'fortran_order': (?:True|False)"
    rb"|'shape': \((?:\d+, ?)*\d*\)),? ?)*\}\s*"
)


def encode_npz(model: StoredModel) -> bytes:
    """Return the content of an ``.npz`` model file."""
    header = np.array(json.dumps(document_of(model), allow_nan=False))
    archive = io.BytesIO()
    arrays: dict[str, Any] = {
        name: np.ascontiguousarray(array) for name, array in arrays_of(model).items()
    }
    try:
        np.savez(archive, header=header, **arrays)
    except ValueError as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # of which zipfile makes one
            raise error.__context__ from None
        raise
    return archive.getvalue()


def parse_npz(file: Any) -> StoredModel:
    """Return the model of an open file; raise InvalidArgumentError if it is not valid."""
    arrays = _read_arrays(file)
    header = arrays.pop("header")
    if header.shape != () or header.dtype.kind != "U":
        raise InvalidArgumentError("its header is not a string")
    document = parse_document(str(header))
    if [*arrays] == sorted(OLD_ARRAYS):
        document, arrays = _renewed(document, *(arrays[name] for name in OLD_ARRAYS))
    check_document(document)
    return stored_model(document, arrays)


def _read_arrays(file: Any) -> dict[str, np.ndarray]:
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
            if names not in (sorted(("header", *each)) for each in (ARRAYS, OLD_ARRAYS)):
                raise InvalidArgumentError(
                    f"it must hold the arrays header, {' and '.join(ARRAYS)}"
                )
            for entry in entries:
                with archive.zip.open(entry) as content:
                    _check_start(content)
            arrays = {key: archive[key] for key in names}
    except (OSError, InvalidArgumentError):
        raise
    except Exception as error:  # any error of NumPy's parsers, or of zipfile
        raise InvalidArgumentError(_DAMAGED) from error
    return arrays


def _check_start(content: IO[bytes]) -> None:
    """Refuse an array whose start NumPy would guess at, with a warning or without."""
    preamble = content.read(len(_PREAMBLE) + 2)
    length = int.from_bytes(preamble[len(_PREAMBLE) :], "little")
    if not preamble.startswith(_PREAMBLE) or not _DESCRIPTION.fullmatch(content.read(length)):
        raise InvalidArgumentError(_DAMAGED)


def _renewed(
    header: dict[str, Any], weights: np.ndarray, bias: np.ndarray
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the document and the arrays of a file of an old version."""
    if header.get("format") != OLD_FORMAT or header.get("version") not in OLD_VERSIONS:
        raise InvalidArgumentError(
            f"its header does not say '{OLD_FORMAT}', of version {OLD_VERSIONS[0]} to "
            f"{OLD_VERSIONS[-1]}"
        )
    n_features = header.pop("n_features", None)
    if weights.ndim == 0 or weights.shape[-1] != n_features:
        raise InvalidArgumentError(f"weights has shape {weights.shape}, for {n_features} features")
    labels = header.pop("class_names", None) or header.get("classes")
    document = {"feature_names": None, "label_name": None} | header
    document |= {
        "schema": SCHEMA,
        "version": 1,
        "link": LINKS.get(str(header.get("loss"))),
        "classes": labels,
        "label_type": type(labels[0]).__name__ if isinstance(labels, list) and labels else None,
    }
    return document, dict(zip(ARRAYS, (np.atleast_2d(weights), bias), strict=True))
