"""Training data for the law of estimators: features in every form, labels, weights.

All numbers are integers, or such times a power of two, so that no form and no dtype rounds them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

__all__ = ["FEATURES", "FORMS", "LABELS", "WEIGHTS", "features"]


def _split(X: np.ndarray) -> Any:
    """Return a CSR matrix with each entry in two parts."""
    rows = sparse.csr_matrix(X)
    indices, data = np.repeat(rows.indices, 2), np.repeat(rows.data, 2)
    data[::2] *= 2
    data[1::2] *= -1
    return sparse.csr_matrix((data, indices, rows.indptr * 2), X.shape)


def _unsorted(X: np.ndarray) -> Any:
    rows = sparse.csr_matrix(X)
    for a, b in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
        rows.indices[a:b], rows.data[a:b] = rows.indices[a:b][::-1].copy(), rows.data[a:b][::-1]
    rows.has_sorted_indices = False
    return rows


def _wide_indices(X: np.ndarray) -> Any:
    rows = sparse.csr_matrix(X)
    rows.indices, rows.indptr = rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    return rows


def _with_zeros(X: np.ndarray) -> Any:
    rows = sparse.csr_matrix(np.ones_like(X))
    rows.data[:] = X.ravel()
    return rows


def _mapped(X: np.ndarray) -> Any:
    with tempfile.TemporaryFile() as file:
        mapped = np.memmap(file, X.dtype, "w+", shape=X.shape)
    mapped[...] = X
    return mapped


def _misaligned(X: np.ndarray) -> np.ndarray:
    """Return an array at an odd address, as messages have them."""
    moved = np.empty(X.nbytes + 1, np.uint8)[1:].view(X.dtype).reshape(X.shape)
    moved[...] = X
    return moved


def _misaligned_rows(X: np.ndarray) -> Any:
    rows = sparse.csr_matrix(X)
    for name in ("data", "indices", "indptr"):
        setattr(rows, name, _misaligned(getattr(rows, name)))
    return rows


def _read_only(X: np.ndarray) -> np.ndarray:
    X = X.copy()
    X.flags.writeable = False
    return X


FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "array": np.array,
    "Fortran": np.asfortranarray,
    "strided": lambda X: np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3],
    "backwards": lambda X: X[::-1, ::-1].copy()[::-1, ::-1],
    "read-only": _read_only,
    "memmap": _mapped,
    "list": lambda X: X.tolist(),
    "frame": lambda X: pd.DataFrame(X, columns=[f"c{k}" for k in range(X.shape[1])]),
    "csr_matrix": sparse.csr_matrix,
    "csr_array": sparse.csr_array,
    "csc": sparse.csc_matrix,
    "coo": sparse.coo_array,
    "lil": sparse.lil_matrix,
    "bsr": sparse.bsr_matrix,
    "unsorted": _unsorted,
    "split": _split,
    "wide indices": _wide_indices,
    "explicit zeros": _with_zeros,
    "misaligned": _misaligned,
    "misaligned rows": _misaligned_rows,
}


def _plain(random: np.random.Generator) -> np.ndarray:
    return random.integers(-3, 4, (24, 4)) * (random.uniform(size=(24, 4)) < 0.7)


def _with(column: Callable[[np.ndarray], np.ndarray]) -> Callable[[Any], np.ndarray]:
    def made(random: np.random.Generator) -> np.ndarray:
        X = _plain(random)
        X[:, 1] = column(X[:, 1])
        return X

    return made


FEATURES: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "plain": _plain,
    "constant": _with(np.ones_like),
    "zero": _with(np.zeros_like),
    "equal rows": lambda random: np.repeat(_plain(random)[:8], 3, axis=0),
    "equal columns": lambda random: np.repeat(_plain(random)[:, :2], 2, axis=1),
    "large": _with(lambda x: x * 1024),
    "shifted": _with(lambda x: x + 1024),
    "wide": lambda random: random.integers(-3, 4, (12, 30)),
    "one column": lambda random: random.integers(1, 4, (24, 1)),
}


def features(name: str, random: np.random.Generator) -> np.ndarray:
    """Return integers."""
    made: np.ndarray = FEATURES[name](random).astype(np.int64)
    return made


#: Labels of three classes, or two, ascending.
LABELS: dict[str, Any] = {
    "small": np.array([0, 1, 2]),
    "signs": np.array([-1, 1, 3], np.int8),
    "large": np.array([2**53 - 1, 2**53, 2**53 + 1]),
    "adjacent": np.array([2**60, 2**60 + 1, 2**60 + 2]),
    "unsigned": np.array([0, 1, 2], np.uint8),
    "bool": np.array([False, True]),
    "float": np.array([-1.0, 0.0, 1.0]),
    "text": np.array(["no", "perhaps", "yes"]),
    "objects": np.array(["a", "b", "c"], object),
}

#: Sample weights, all or none of them 0 in each class.
WEIGHTS: dict[str, Callable[[int], np.ndarray | None]] = {
    "none": lambda n: None,
    "ones": np.ones,
    "some 0": lambda n: (np.arange(n) % 7 != 3).astype(float),
    "twos": lambda n: 1.0 + (np.arange(n) % 3 == 1),
    "many": lambda n: 2.0 ** (np.arange(n) % 5 - 2),
}
