"""Linear models of hashed features: their files, and their predictions without scikit-learn."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfopt.core.documents import LABELS, are_labels, parse_document, read_archive
from tfopt.core.versions import __version__
from tfopt.errors import InvalidArgumentError
from tfopt.imports import imported
from tfopt.io.text_options import MAX_HASHES, HashedText

__all__ = [
    "ARRAYS",
    "SCHEMA",
    "HashedModel",
    "arrays_in",
    "hashed_model",
    "products",
    "read_hashed_model",
]

#: What the document says of itself.
SCHEMA, VERSION = "tfopt.hashed_model", 1
#: The entries that are numbers, and arrays of an archive.
ARRAYS = ("indices", "coefficients", "intercepts")
LINKS = (None, "identity", "log", "logit")
_TYPES = (np.float32, np.float64)


@dataclasses.dataclass(frozen=True)
class HashedModel:
    """A linear model of hashed features, of which few have weights.

    Attributes
    ----------
    n_hashes : int
    indices : ndarray of int32, shape (n_weights,)
        The columns that have weights, ascending; those of all others are 0.
    weights : ndarray of float64 or float32, shape (n_problems, n_weights)
    bias : ndarray of float64, shape (n_problems,)
        A problem for each class, and one of two classes.
    loss : str
    link : str or None
        Of the loss: "logit", "log", "identity", or None: it has no probabilities.
    loss_parameters : dict
    labels : tuple, or None
        Of the classes in order; None for the losses of regression.
    reading : HashedText or None
        How rows of text become features; None if that is not known.
    optimizer, settings : dict
        How the model was trained.
    tfopt_version : str
    """

    n_hashes: int
    indices: np.ndarray
    weights: np.ndarray
    bias: np.ndarray
    loss: str
    link: str | None
    loss_parameters: dict[str, Any]
    labels: tuple[Any, ...] | None
    reading: HashedText | None
    optimizer: dict[str, Any]
    settings: dict[str, Any]
    tfopt_version: str = __version__

    @property
    def n_features(self) -> int:
        return self.n_hashes

    def margins(self, X: Any) -> np.ndarray:
        """Return x . w + b of rows of hashed features, in shape (n_rows,) or (n_rows, n_classes).

        Parameters
        ----------
        X : scipy.sparse.csr_matrix, shape (n_rows, n_hashes)
        """
        margins: np.ndarray = products(X, self.indices, self.weights.T) + self.bias
        return margins[:, 0] if len(self.bias) == 1 else margins

    def document(self) -> dict[str, Any]:
        """Return what is stored but the numbers."""
        return {
            "schema": SCHEMA,
            "version": VERSION,
            "tfopt": self.tfopt_version,
            "n_hashes": self.n_hashes,
            "dtype": self.weights.dtype.name,
            "loss": self.loss,
            "link": self.link,
            "loss_parameters": self.loss_parameters,
            "classes": self.labels,
            "label_type": None if self.labels is None else type(self.labels[0]).__name__,
            "reading": None if self.reading is None else dataclasses.asdict(self.reading),
            "optimizer": self.optimizer,
            "settings": self.settings,
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the numbers by their names in `ARRAYS`."""
        return dict(zip(ARRAYS, (self.indices, self.weights, self.bias), strict=True))

    def whole_document(self) -> dict[str, Any]:
        """Return all that is stored, with the numbers as lists."""
        return self.document() | {name: each.tolist() for name, each in self.arrays().items()}


def products(X: Any, columns: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the products of a CSR matrix and weights of some of its columns; others have 0.

    Memory is in proportion to the entries and the weights, however many columns there are.

    Parameters
    ----------
    X : scipy.sparse.csr_matrix, shape (n_rows, n_columns)
    columns : ndarray of int, shape (n_weights,)
        Ascending.
    weights : ndarray, shape (n_weights, n_problems)
    """
    n = columns.size
    places = np.searchsorted(columns, X.indices)
    places[np.append(columns, -1)[places] != X.indices] = n  # a weight that is 0
    known = np.zeros((n + 1, weights.shape[1]))
    known[:n] = weights
    rows = imported("scipy.sparse").csr_matrix((X.data, places, X.indptr), (X.shape[0], n + 1))
    found: np.ndarray = rows @ known
    return found


def arrays_in(document: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the numbers that a document has as lists."""
    arrays = {}
    dtypes = (np.int64, document.get("dtype"), np.float64)
    for name, dtype in zip(ARRAYS, dtypes, strict=True):
        try:
            if dtype not in ("float32", "float64", np.int64, np.float64):
                raise ValueError
            exact = np.array(document[name], np.int64 if dtype is np.int64 else np.float64)
            if name == "indices" and {*map(type, document[name])} - {int}:
                raise ValueError
            arrays[name] = exact.astype(np.int32 if dtype is np.int64 else dtype)
            if not np.array_equal(arrays[name], exact):
                raise ValueError
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InvalidArgumentError(f'the document has no valid "{name}"') from error
    return arrays


def hashed_model(document: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> HashedModel:
    """Return the model of a document and its numbers, all of which are checked.

    Raises
    ------
    InvalidArgumentError
        The message says which entry is wrong.
    """
    if document.get("schema") != SCHEMA or document.get("version") != VERSION:
        raise InvalidArgumentError(
            f'the document must be an object with "schema": "{SCHEMA}" and "version": {VERSION}'
        )
    for name, is_valid in _ENTRIES.items():
        if name not in document or not is_valid(document[name]):
            raise InvalidArgumentError(f'the document has no valid "{name}"')
    labels, kind = document["classes"], document["label_type"]
    kinds = {type(each).__name__ for each in labels or ()}
    if kinds != (set() if kind is None else {kind}):
        raise InvalidArgumentError('"classes" and "label_type" do not fit each other')
    if (document["link"] in ("identity", "log")) != (labels is None):
        raise InvalidArgumentError('"link" does not fit "classes"')
    n_hashes, reading = document["n_hashes"], document["reading"]
    if reading is not None:
        reading = HashedText.from_json(reading)
        if reading.n_hashes != n_hashes:
            raise InvalidArgumentError('"reading" does not fit "n_hashes"')
    n_problems = 1 if labels is None or len(labels) == 2 else len(labels)
    if sorted(arrays) != sorted(ARRAYS):
        raise InvalidArgumentError(f"it must hold the arrays header, {' and '.join(ARRAYS)}")
    indices, weights, bias = (arrays[name] for name in ARRAYS)
    n = indices.size
    shapes = dict(zip(ARRAYS, ((n,), (n_problems, n), (n_problems,)), strict=True))
    dtypes = dict(zip(ARRAYS, ("int32", document["dtype"], "float64"), strict=True))
    for name, array in arrays.items():
        if array.shape != shapes[name] or array.dtype != dtypes[name]:
            raise InvalidArgumentError(
                f'"{name}" must be of {dtypes[name]} and have the shape {shapes[name]}, not '
                f"{array.dtype} and {array.shape}"
            )
        if not np.isfinite(array).all():
            raise InvalidArgumentError(f'"{name}" has values that are not finite')
    if n and not (0 <= indices[0] <= indices[-1] < n_hashes and (np.diff(indices) > 0).all()):
        raise InvalidArgumentError('"indices" must ascend from 0 to below "n_hashes"')
    return HashedModel(
        n_hashes=n_hashes,
        indices=indices,
        weights=weights,
        bias=bias,
        labels=None if labels is None else tuple(labels),
        reading=reading,
        tfopt_version=document["tfopt"],
        **{name: document[name] for name in _KEPT},
    )


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_KEPT = ("loss", "link", "loss_parameters", "optimizer", "settings")
_ENTRIES: dict[str, Any] = {
    "tfopt": _is_text,
    "n_hashes": lambda value: type(value) is int and 1 <= value <= MAX_HASHES,
    "dtype": ("float32", "float64").__contains__,
    "loss": _is_text,
    "link": LINKS.__contains__,
    "loss_parameters": _is_object,
    "classes": lambda value: value is None or are_labels(value),
    "label_type": lambda value: value is None or value in LABELS,
    "reading": lambda value: value is None or _is_object(value),
    "optimizer": _is_object,
    "settings": _is_object,
}


def read_hashed_model(path: str | os.PathLike[str]) -> HashedModel | None:
    """Read a model file; None if it has another kind of model, or none.

    Raises
    ------
    OSError
        If it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            if file.read(1) == b"{":
                document = parse_document(b"{" + file.read(), SCHEMA)
                if document.get("schema") != SCHEMA:
                    return None
                return hashed_model(document, arrays_in(document))
            return hashed_model(*read_archive(file, ARRAYS, schema=SCHEMA))
    except InvalidArgumentError:  # whoever reads it as another one says why
        return None
