"""Archives of linear models, ``.npz``: the document of a model, with its numbers as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt.core.documents import encode_arrays, read_archive
from tfopt.errors import InvalidArgumentError
from tfopt.io.hashed_model import ARRAYS as HASHED_ARRAYS
from tfopt.io.hashed_model import SCHEMA as HASHED_SCHEMA
from tfopt.io.hashed_model import HashedModel, hashed_model
from tfopt.linear_model.model_json import (
    ARRAYS,
    SCHEMA,
    arrays_of,
    check_document,
    document_of,
    stored_model,
)
from tfopt.linear_model.stored_model import LINKS, StoredModel

__all__ = ["encode_npz", "parse_npz"]

#: The format and versions in headers of old files, which had no document, and their arrays' names.
OLD_FORMAT, OLD_VERSIONS = "tfopt linear model", (1, 2, 3)
OLD_ARRAYS = ("weights", "bias")


def encode_npz(model: StoredModel | HashedModel) -> bytes:
    """Return the content of an ``.npz`` model file."""
    if isinstance(model, HashedModel):
        return encode_arrays(model.document(), model.arrays())
    return encode_arrays(document_of(model), arrays_of(model))


def parse_npz(file: Any) -> StoredModel | HashedModel:
    """Return the model of an open file; raise InvalidArgumentError if it is not valid."""
    document, arrays = read_archive(file, ARRAYS, OLD_ARRAYS, HASHED_ARRAYS, schema=SCHEMA)
    if document.get("schema") == HASHED_SCHEMA or [*arrays] == sorted(HASHED_ARRAYS):
        return hashed_model(document, arrays)
    if [*arrays] == sorted(OLD_ARRAYS):
        document, arrays = _renewed(document, *(arrays[name] for name in OLD_ARRAYS))
    check_document(document)
    return stored_model(document, arrays)


def _renewed(
    header: dict[str, Any], weights: np.ndarray, bias: np.ndarray
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Convert the header and the numbers of an old version to a document and arrays."""
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
