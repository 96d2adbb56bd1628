"""The columns of a table as a matrix, with little memory beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

__all__ = ["filled_rows", "matrix_of"]

#: Rows whose values are put in place together, so that they stay in the cache.
PIECE = 2**10


def filled_rows(frame: Any) -> np.ndarray:
    """Return which rows have a value; others are blank lines."""
    filled: np.ndarray = frame.iloc[:, 0].notna().to_numpy().copy()
    rest = np.flatnonzero(~filled)
    filled[rest] = frame.iloc[rest].notna().any(axis=1).to_numpy()
    return filled


def matrix_of(columns: list[np.ndarray], good: np.ndarray) -> Any:
    """Return the good rows of columns as a CSR matrix, made without the indices of its rows."""
    X = np.empty((int(np.count_nonzero(good)), len(columns)))
    at = slice(None) if good.all() else np.flatnonzero(good)
    for first in range(0, len(X), PIECE):
        piece = slice(first, min(first + PIECE, len(X)))
        taken = piece if isinstance(at, slice) else at[piece]
        for k, column in enumerate(columns):
            X[piece, k] = column[taken]
    names = np.arange(len(columns), dtype=np.int32)
    if np.count_nonzero(X) == X.size:
        data, indices = X.ravel(), np.tile(names, len(X))
        counts = np.full(len(X), len(columns))
    else:
        stored = X != 0
        data, indices = X[stored], np.broadcast_to(names, X.shape)[stored]
        counts = np.count_nonzero(stored, axis=1)
    ends = np.append(0, np.cumsum(counts))
    kind = np.int32 if data.size < 2**31 else np.int64
    parts = data, indices.astype(kind, copy=False), ends.astype(kind)
    return sparse.csr_matrix(parts, shape=X.shape)
