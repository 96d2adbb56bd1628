"""The hashing trick, for matrices whose columns are too many or not known in advance."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.imports import imported
from tfopt.kernels.arrays import csr
from tfopt.kernels.text.hashing import hash_columns

__all__ = ["hash_features"]

#: As many as scikit-learn's FeatureHasher takes.
MAX_FEATURES = 2**31 - 1


def hash_features(X: Any, n_features: int) -> Any:
    """Hash the columns of a sparse matrix to a smaller number of them.

    The result is bit for bit that of scikit-learn's ``FeatureHasher(n_features)`` if the columns'
    names are their numbers: ``{"7": 2.5}`` for the value 2.5 in column 7.

    Parameters
    ----------
    X : CSR matrix or array, shape (n_rows, n_columns)
    n_features : int
        From 1 to 2**31 - 1; a power of two, so that hashes fall evenly.

    Returns
    -------
    scipy.sparse.csr_matrix, shape (n_rows, n_features)
        Of float32 if `X` is, else of float64; the indices of a row ascend. Each value has the sign
        of its column's hash (MurmurHash3, signed), so that values of colliding columns tend to
        cancel out.

    Raises
    ------
    InvalidTypeError
        If `X` is no CSR matrix.
    InvalidArgumentError
        If `n_features` is out of range, or an index of `X` out of bounds.

    Examples
    --------
    >>> from scipy import sparse
    >>> from tfopt.io import hash_features
    >>> X = sparse.csr_matrix(([1.0, 2.0], [7, 10**9], [0, 2]), shape=(1, 2**30))
    >>> hash_features(X, 8).toarray()
    array([[1., 2., 0., 0., 0., 0., 0., 0.]])
    """
    sparse = imported("scipy.sparse")

    if not sparse.issparse(X) or X.format != "csr":
        raise InvalidTypeError(f"X must be a CSR matrix, not {type(X).__name__}")
    n_features = operator.index(n_features)
    if not 1 <= n_features <= MAX_FEATURES:
        raise InvalidArgumentError(f"n_features must be from 1 to {MAX_FEATURES}: {n_features}")
    ends = np.array(X.indptr)  # its own, so that it stays as it was checked
    csr.check_csr(X.data, X.indices, ends, X.shape, "X")
    # what lies behind the last row's end belongs to none
    values = X.data[: ends[-1]].astype(np.float32 if X.dtype == np.float32 else np.float64)
    columns, signs = np.empty(values.size, np.int32), np.empty(values.size, np.int8)
    hash_columns(np.ascontiguousarray(X.indices[: values.size]), n_features, columns, signs)
    values *= signs
    hashed = sparse.csr_matrix((values, columns, ends), (X.shape[0], n_features))
    hashed.eliminate_zeros()
    hashed.sum_duplicates()
    return hashed
