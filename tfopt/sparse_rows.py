"""Rows of a sparse matrix, in batches, for linear models whose gradients are sparse, too."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from tfopt.core.engine import Op, Operand, apply
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.arrays import csr

__all__ = ["SparseRows"]


class SparseRows:
    """Rows of a matrix in CSR format.

    For mini-batches: `take` copies the rows of a batch alone, in any order, so that shuffled
    examples need no shuffled copy of the matrix; a gradient has the columns of the batch alone.

    Parameters
    ----------
    X : scipy.sparse.csr_matrix or csr_array
        Its arrays are shared if they are contiguous and of float32 or float64; values of other
        dtypes are converted to float64. They must not change afterwards.

    Attributes
    ----------
    values : ndarray of float32 or float64
        The stored entries, row by row.
    columns : ndarray of int32 or int64
        The column of each.
    ends : ndarray of int64, shape (n_rows + 1,)
        Row i has the entries from ``ends[i]`` to ``ends[i + 1] - 1``.
    shape : tuple of int

    Raises
    ------
    InvalidTypeError
        If `X` is not a CSR matrix.
    InvalidArgumentError
        If its arrays are inconsistent.
    IndexOutOfRangeError
        If a column is out of range.

    See Also
    --------
    tfopt.IndexedSlices : what gradients are.

    Examples
    --------
    A step of least squares, with two rows of three:

    >>> import numpy as np
    >>> from scipy.sparse import csr_matrix
    >>> from tfopt import SparseRows
    >>> from tfopt.optimizers import SGD
    >>> rows = SparseRows(csr_matrix([[0.0, 2.0, 0.0], [1.0, 0.0, 4.0], [0.0, 0.0, 3.0]]))
    >>> w, y = np.ones(3), np.array([1.0, 5.0, 2.0])
    >>> batch = rows.take([2, 0])
    >>> residuals = batch.dot(w) - y[[2, 0]]
    >>> gradient = batch.gradient(residuals)
    >>> gradient.indices, gradient.values
    (array([2, 1], dtype=int32), array([3., 2.]))
    >>> _ = SGD(0.1).apply_gradients([(gradient, w)])
    >>> w
    array([1. , 0.8, 0.7])
    """

    __slots__ = ("columns", "ends", "shape", "values")

    def __init__(self, X: Any) -> None:
        if getattr(X, "format", None) != "csr":
            raise InvalidTypeError(f"X must be a CSR matrix, not {type(X).__name__}")
        csr.check_csr(X.data, X.indices, X.indptr, X.shape, "X")
        is_float = X.data.dtype in (np.float32, np.float64)
        # what lies behind the last row's end belongs to none
        n = int(X.indptr[-1])
        self.values = np.ascontiguousarray(X.data[:n], None if is_float else np.float64)
        self.columns = np.ascontiguousarray(X.indices[:n])
        self.ends = np.ascontiguousarray(X.indptr, np.int64)
        self.shape: tuple[int, int] = X.shape

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return (
            f"SparseRows(shape {self.shape} and dtype {self.values.dtype}, "
            f"{self.values.size} entries)"
        )

    def take(self, rows: Any) -> Self:
        """Return a copy of some rows.

        Parameters
        ----------
        rows : array_like of int
            Their numbers, in any order; a row may occur more than once.

        Raises
        ------
        InvalidArgumentError
            If `rows` is not one-dimensional.
        InvalidTypeError
            If they are not integers.
        IndexOutOfRangeError
            If there is no such row; rows are not counted from the end.
        """
        numbers = np.asarray(rows)
        if numbers.size and numbers.dtype.kind not in "iu":
            raise InvalidTypeError(f"rows must be integers, not {numbers.dtype}")
        taken = object.__new__(type(self))
        n_columns = self.shape[1]
        taken.values, taken.columns, taken.ends = csr.take(
            self.values, self.columns, self.ends, numbers.astype(np.int64, copy=False), n_columns
        )
        taken.shape = numbers.size, n_columns
        return taken

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def dot(self, weights: Any) -> Any:
        """Return the products of the rows with weights.

        Parameters
        ----------
        weights : ndarray, Variable or Tensor of float32 or float64
            Of shape (n_columns,) or (n_columns, k). The products are computed in this dtype.

        Returns
        -------
        ndarray, or Tensor of a variable or a tensor, shape (n_rows,) or (n_rows, k)
            Each product is added to a sum that begins with zero, in the order of the entries. A
            tape records it: its gradient is that of `gradient`.

        Raises
        ------
        InvalidTypeError
            If the weights have another dtype.
        InvalidArgumentError
            If they have another shape.
        """
        w = _operand(weights, "weights")
        if w.ndim not in (1, 2) or len(w) != self.shape[1]:
            raise InvalidArgumentError(
                f"weights must have the shape ({self.shape[1]},) or ({self.shape[1]}, k), not "
                f"{w.shape}"
            )
        return _carried_out(_PRODUCTS, w, self)

    def gradient(self, slopes: Any) -> IndexedSlices:
        """Return the gradient of the weights, given that of the products of `dot`.

        Parameters
        ----------
        slopes : ndarray, Variable or Tensor of float32 or float64
            The derivative of the loss with respect to each product, of shape (n_rows,) or
            (n_rows, k).

        Returns
        -------
        IndexedSlices
            The transposed matrix times `slopes`, as one row of the weights for each entry: value
            times slope, in the dtype of the slopes, with the entry's column as its index. As
            TensorFlow's gradients of lookups, a column occurs as often as it has entries, until an
            optimizer, or `IndexedSlices.sum_duplicates`, sums them. Of a variable or a tensor, the
            values are a tensor, which tapes record.

        Raises
        ------
        InvalidTypeError
            If the slopes have another dtype.
        InvalidArgumentError
            If they have another shape.
        """
        s = _operand(slopes, "slopes")
        if s.ndim not in (1, 2) or len(s) != len(self):
            raise InvalidArgumentError(
                f"slopes must have the shape ({len(self)},) or ({len(self)}, k), not {s.shape}"
            )
        of_entries = _carried_out(_OF_ENTRIES, s, self)
        return IndexedSlices(of_entries, self.columns, (self.shape[1], *s.shape[1:]))

    def _of_entries(self) -> Self:
        """Return the same rows with each entry in a column of its own."""
        made = object.__new__(type(self))
        made.values, made.ends = self.values, self.ends
        made.columns = np.arange(self.values.size)
        made.shape = self.shape[0], self.values.size
        return made


def _operand(value: Any, name: str) -> Any:
    """Return an operand of a product: tensors and variables unchanged, others as arrays."""
    given = value if isinstance(value, Operand) else np.asarray(value)
    if given.dtype not in (np.float32, np.float64):
        raise InvalidTypeError(f"{name} must be float32 or float64, not {given.dtype}")
    return given


# ---- both products are linear: the gradient of each is the other one


def _products(w: np.ndarray, rows: SparseRows) -> np.ndarray:
    with np.errstate(over="ignore"):  # as in kernels
        values = rows.values.astype(w.dtype, copy=False)
    columns = w.reshape(len(w), 1) if w.ndim == 1 else w
    products: np.ndarray = csr.dot(values, rows.columns, rows.ends, columns)
    return products[:, 0] if w.ndim == 1 else products


def _terms(s: np.ndarray, rows: SparseRows) -> np.ndarray:
    of_entries = np.repeat(s, rows.ends[1:] - rows.ends[:-1], axis=0)
    with np.errstate(all="ignore"):
        values = rows.values.astype(s.dtype, copy=False)
        of_entries *= values if s.ndim == 1 else values[:, None]
    return of_entries


_PRODUCTS = Op("SparseRowsDot", _products, label="SparseRows.dot")
_PRODUCTS.define(lambda g, y, w, rows: rows.gradient(g))
_OF_ENTRIES = Op("SparseRowsGradient", _terms, label="SparseRows.gradient")
_OF_ENTRIES.define(lambda g, y, s, rows: rows._of_entries().dot(g))


def _carried_out(op: Op, value: Any, rows: SparseRows) -> Any:
    if isinstance(value, Operand):
        return apply(op, (value,), {"rows": rows})
    return op.fn(value, rows)
