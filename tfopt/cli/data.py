"""Labelled rows in memory, their classes and targets."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from tfopt.cli.converters import factors_of
from tfopt.cli.files import CommandError, File, show_label
from tfopt.io import hash_features
from tfopt.io.hashed_rows import HashedRows
from tfopt.linear_model.encoding import Encoding
from tfopt.linear_model.stored_model import Columns
from tfopt.linear_model.table_facts import Table

__all__ = ["Data", "Layout", "class_weights", "find_classes", "labels_of", "targets"]


#: Up to which integers, and to which numbers, one float64 is one label.
MAX_LABEL = 2.0**53 - 1


class Layout(NamedTuple):
    """How training data number or name their features; other data must do the same."""

    zero_based: bool
    columns: Columns | None


@dataclasses.dataclass(frozen=True)
class Data:
    """Labelled rows in memory.

    Attributes
    ----------
    features : scipy CSR matrix or ndarray, shape (rows, features), or Table
        A `Table` until it is encoded, then an array, or a CSR matrix if most columns are text.
    labels : ndarray, shape (rows,)
        NaN where a label is absent or, in a table, not one of the model's.
    zero_based : bool
        Whether the file counts features from 0.
    lines : ndarray of int64, shape (rows,)
        The line number of each row, in the part of the file that was read; -1: it is not known.
    file : File
    n_skipped : int
        Malformed lines that were left out.
    weights : ndarray, shape (rows,), or None
    columns : Columns or None
        Of a table.
    offset : ndarray, shape (rows,), or None
        Added to the margin of each row.
    """

    features: Any
    labels: np.ndarray
    zero_based: bool
    lines: np.ndarray
    file: File
    n_skipped: int = 0
    weights: np.ndarray | None = None
    columns: Columns | None = None
    offset: np.ndarray | None = None

    @property
    def name(self) -> str:
        """The file's name in messages."""
        return self.file.name

    @property
    def total_weight(self) -> float:
        """The number of rows, unless they have weights."""
        if self.weights is None:
            return float(self.labels.size)
        total = float(self.weights.sum())
        if not 0 < total < np.inf:
            raise CommandError(f"{self.name}: the weights have the sum {total:g}")
        return total

    def with_width(self, n_features: int) -> Data:
        """Return the same rows with `n_features` columns; cut off or append empty columns.

        Features that did not occur in training have no weight, so nothing is lost by the cut.
        """
        n_rows, width = self.features.shape
        if width == n_features:
            return self
        if width > n_features:
            return dataclasses.replace(self, features=self.features[:, :n_features])
        X = self.features
        parts = X.data, X.indices, X.indptr
        return dataclasses.replace(self, features=sparse.csr_matrix(parts, (n_rows, n_features)))

    def with_base(self, zero_based: bool) -> Data:
        """Return the same rows with features counted from 0 or 1; the values are shared.

        Counting from 1 requires that index 0 does not occur.
        """
        if zero_based == self.zero_based:
            return self
        X, offset = self.features, 1 if zero_based else -1
        parts = X.data, X.indices + X.indices.dtype.type(offset), X.indptr
        features = sparse.csr_matrix(parts, (X.shape[0], X.shape[1] + offset))
        return dataclasses.replace(self, features=features, zero_based=zero_based)

    def with_encoding(self, encoding: Encoding) -> Data:
        """Return the rows of a `Table` with the features of an encoding."""
        assert self.columns is not None
        columns, features = self.columns.with_encoding(encoding), encoding.encode(self.features)
        return dataclasses.replace(self, features=features, columns=columns)

    def with_classes(self, classes: tuple[str, ...] | None) -> Data:
        """Return the same rows with labels that are the indices of names in other classes."""
        if self.columns is None or classes is None or self.columns.classes == classes:
            return self
        assert self.columns.classes is not None
        index = {name: float(k) for k, name in enumerate(classes)}
        new = np.array([index[name] for name in self.columns.classes])
        columns = dataclasses.replace(self.columns, classes=classes)
        return dataclasses.replace(self, labels=new[self.labels.astype(np.intp)], columns=columns)

    def features_for(self, n_features: int, is_hashed: bool) -> Any:
        """Return the features as a model of so many has them: hashed, or cut as `with_width`."""
        if isinstance(self.features, HashedRows):
            return self.features.as_plain()
        if is_hashed:
            return hash_features(self.features, n_features)
        return self.with_width(n_features).features

    def fingerprint(self) -> str:
        """Return a hash of the data, without the file's name and line numbers."""
        features = self.features
        arrays = [features, self.labels]
        if isinstance(features, Table):
            shape: Any = features.names, features.kinds, features.levels
            arrays[:1] = [features.values]
        else:
            shape = features.shape
            if sparse.issparse(features):
                arrays[:1] = [features.indptr, features.indices, features.data]
        digest = hashlib.sha256(repr((shape, self.zero_based)).encode())
        for array in arrays:
            digest.update(np.ascontiguousarray(array).data)
        if self.columns is not None:
            digest.update(repr(self.columns).encode())
        for numbers in (self.weights, self.offset):
            if numbers is not None:
                digest.update(np.ascontiguousarray(numbers).data)
        return digest.hexdigest()

    def row_error(self, row: int, message: str, token: str = "") -> CommandError:
        """Return an error about a row."""
        line = int(self.lines[row])
        return self.file.error(line if line >= 0 else None, message, token or None)


def find_classes(name: str, labels: np.ndarray, loss: str) -> tuple[float, ...]:
    """Return the classes of training data: the distinct labels, sorted, two or more.

    The first of two is the negative class. `name` and `loss` are for the message.
    """
    labels = np.unique(labels)
    if labels.size and np.abs(labels).max() > MAX_LABEL:
        label = labels[np.abs(labels).argmax()]
        raise CommandError(
            f"{name}: the label {label:.17g} is beyond 2^53, where float64 merges integers: number "
            "the classes from 0, or name them in a table"
        )
    if labels.size < 2:
        raise CommandError(
            f"{name}: {loss} loss needs two classes or more, the labels have {labels.size}: "
            + ", ".join(f"{label:g}" for label in labels)
        )
    return tuple(labels.tolist())


def class_weights(
    name: str, text: str | None, labels: tuple[Any, ...]
) -> dict[float, float] | str | None:
    """Return the weights of --class-weight by the index of each label; None and "balanced" stay."""
    if text is None or text == "balanced":
        return text
    index = {show_label(label): float(k) for k, label in enumerate(labels)}
    factors = factors_of(text)
    for label in factors.keys() - index.keys():
        raise CommandError(
            f"{name}: no label {label} (from --class-weight); labels: {', '.join([*index][:20])}"
        )
    return {index[label]: factor for label, factor in factors.items()}


def labels_of(classes: tuple[float, ...] | None, columns: Columns | None) -> tuple[Any, ...]:
    """Return the labels as the user wrote them; regression has none."""
    names = None if columns is None else columns.classes
    return names or classes or ()


def targets(data: Data, classes: tuple[float, ...] | None) -> np.ndarray:
    """Return the targets: the index of each label in the classes, or the label itself."""
    if classes is None:
        return data.labels
    unseen = np.flatnonzero(~np.isin(data.labels, classes))
    if unseen.size:
        label = data.labels[unseen[0]]
        token = "" if np.isnan(label) else f"{label:g}"
        raise data.row_error(unseen[0], "the label does not occur in the training data", token)
    return np.searchsorted(classes, data.labels).astype(np.float64)
