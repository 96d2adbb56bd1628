"""Reading LIBSVM data: scikit-learn reads, this module names the place that is wrong."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy import sparse
from sklearn.datasets import load_svmlight_file

from tfopt.cli.errors import CommandError, at
from tfopt.cli.lines import MAX_INDEX, Lines, display_name, open_data

#: Whether features are counted from 0; "auto": if index 0 occurs.
Base: TypeAlias = bool | Literal["auto"]


@dataclasses.dataclass(frozen=True)
class Data:
    """A LIBSVM file in memory.

    Attributes
    ----------
    features : scipy CSR matrix, shape (rows, features)
    labels : ndarray, shape (rows,)
    zero_based : bool
        Whether the file counts features from 0.
    lines : ndarray of int64, shape (rows,)
        The line number of each row.
    name : str
        The file's name in messages.
    """

    features: Any
    labels: np.ndarray
    zero_based: bool
    lines: np.ndarray
    name: str

    def with_width(self, n_features: int) -> Data:
        """Return the same rows with `n_features` columns: columns are cut off or added empty.

        A feature that training never saw has no weight, so that nothing is lost by the cut.
        """
        n_rows, n_own = self.features.shape
        if n_own == n_features:
            return self
        if n_own > n_features:
            return dataclasses.replace(self, features=self.features[:, :n_features])
        X = self.features
        parts = X.data, X.indices, X.indptr
        return dataclasses.replace(self, features=sparse.csr_matrix(parts, (n_rows, n_features)))

    def counted_from(self, zero_based: bool) -> Data:
        """Return the same rows with features counted from 0 or from 1; the values are shared.

        From 1 only if index 0 does not occur.
        """
        if zero_based == self.zero_based:
            return self
        X, more = self.features, 1 if zero_based else -1
        parts = X.data, X.indices + X.indices.dtype.type(more), X.indptr
        features = sparse.csr_matrix(parts, (X.shape[0], X.shape[1] + more))
        return dataclasses.replace(self, features=features, zero_based=zero_based)

    def fingerprint(self) -> str:
        """Return what is different for other data, names and line numbers aside."""
        features = self.features
        digest = hashlib.sha256(repr((features.shape, self.zero_based)).encode())
        for array in (features.indptr, features.indices, features.data, self.labels):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def refuse_row(self, row: int, message: str, token: str = "") -> CommandError:
        """Return the refusal of one row."""
        return at(self.name, int(self.lines[row]), message, token.encode())


def read_libsvm(path: str, zero_based: Base, name: str | None = None) -> Data:
    """Read LIBSVM text, plain or compressed with gzip, bzip2 or xz.

    Parameters
    ----------
    path : str
        The file, or its URL; ``-`` is standard input.
    zero_based : bool or "auto"
        Whether features are counted from 0. "auto": one-based unless index 0 occurs.
    name : str, optional
        The file's name in messages, if it is another.

    Returns
    -------
    Data
        At least one row; all numbers finite; indices ascending within a row.
    """
    name = display_name(path if name is None else name)
    one_based = zero_based is False
    with open_data(path, name) as stream:
        lines = Lines(stream, name, first_index=int(one_based))
        try:
            features, labels = load_svmlight_file(lines, zero_based=not one_based)
        except (ValueError, OverflowError) as error:
            raise lines.refusal(error) from error
    if not labels.size:
        raise CommandError(f"{name}: no data rows")
    data = Data(features, labels, not one_based, np.frombuffer(lines.numbers, np.int64), name)
    _check_range(data)
    if zero_based == "auto" and features.nnz and features.indices.min() > 0:
        return data.counted_from(False)
    return data


def _check_range(data: Data) -> None:
    # What is well written but out of range: 1e999, and an index that would claim all memory.
    columns, values = data.features.indices, data.features.data
    indices = columns if data.zero_based else columns + 1
    large = indices > MAX_INDEX
    wrong = np.flatnonzero(large | ~np.isfinite(values))
    if wrong.size:
        first = wrong[0]
        row = int(np.searchsorted(data.features.indptr, first, side="right")) - 1
        fault = f"the index is above {MAX_INDEX}" if large[first] else "the value is not finite"
        raise data.refuse_row(row, fault, f"{indices[first]}:{values[first]:.17g}")
    infinite = np.flatnonzero(~np.isfinite(data.labels))
    if infinite.size:
        raise data.refuse_row(infinite[0], "the label is not finite", f"{data.labels[infinite[0]]}")


def classes_of(
    name: str, labels: np.ndarray, loss: str, at_most: int | None = None
) -> tuple[float, ...]:
    """Return the different labels of training data, in ascending order.

    Parameters
    ----------
    name : str
        Of the data.
    labels : ndarray
        All, or those that differ.
    loss : str
        For the message.
    at_most : int, optional
        How many there may be.

    Returns
    -------
    tuple of float
        Two or more; of two the negative class comes first.
    """
    labels = np.unique(labels)
    if labels.size < 2 or (at_most and labels.size > at_most):
        shown = ", ".join([f"{label:g}" for label in labels[:5]] + ["..."] * (labels.size > 5))
        raise CommandError(
            f"{name}: {loss} loss needs two classes{'' if at_most else ' or more'}, "
            f"the labels have {labels.size}: {shown}"
            f"{' (--solver sdca takes more)' if labels.size > 2 else ''}"
        )
    return tuple(labels.tolist())


def targets(data: Data, classes: tuple[float, ...] | None) -> np.ndarray:
    """Return what a model is to predict: each label's place in the classes, or the label itself."""
    if classes is None:
        return data.labels
    unseen = np.flatnonzero(~np.isin(data.labels, classes))
    if unseen.size:
        label = f"{data.labels[unseen[0]]:g}"
        raise data.refuse_row(unseen[0], "the label does not occur in the training data", label)
    return np.searchsorted(classes, data.labels).astype(np.float64)
