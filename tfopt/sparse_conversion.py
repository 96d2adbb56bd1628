"""Conversion of sparse gradients: SciPy matrices and arrays, torch COO tensors.

They are recognized by their attributes, so neither library is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfopt.errors import InvalidTypeError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.arrays.coerce import of_torch
from tfopt.kernels.arrays.csr import check_csr, check_indices

__all__ = ["as_slices", "each_as_slices"]

_OWN = {np.ndarray, IndexedSlices, type(None)}


def as_slices(grad: Any) -> Any:
    """Convert a sparse gradient of another library to slices; return other values unchanged.

    Rows with at least one entry have a gradient; duplicate entries are summed.

    Raises
    ------
    InvalidTypeError
        If the gradient has more than two sparse dimensions.
    InvalidArgumentError
        If its index arrays are inconsistent.
    """
    if type(grad) in _OWN:
        return grad
    if hasattr(grad, "nnz") and hasattr(grad, "tocoo"):
        if grad.format in ("csr", "csc") and len(grad.shape) == 2:
            return _compressed(grad)
        coo = grad.tocoo()
        coords = getattr(coo, "coords", None) or (coo.row, coo.col)
        return _rows(coords, coo.data, coo.shape)
    if getattr(grad, "is_sparse", False) is True and hasattr(grad, "_indices"):
        if getattr(grad, "is_cuda", False):
            return _rows_on_device(grad)
        indices, values = grad._indices().numpy(), grad._values().detach()
        shared = of_torch(values, "grad")
        values = values.numpy() if shared is None else shared
        return _rows(tuple(indices), values, tuple(grad.shape))
    return grad


def _rows_on_device(grad: Any) -> IndexedSlices:
    """Return the rows of a sparse tensor of torch on a GPU, where they stay."""
    if grad.sparse_dim() != 1:
        raise InvalidTypeError(
            f"a sparse gradient on a GPU must have 1 sparse dimension, not {grad.sparse_dim()}"
        )
    return IndexedSlices(grad._values().detach(), grad._indices()[0], tuple(grad.shape))


def each_as_slices(grads: Sequence[Any]) -> Sequence[Any]:
    """Convert the sparse gradients of other libraries in a list to slices."""
    if not isinstance(grads, (list, tuple)) or set(map(type, grads)) <= _OWN:
        return grads
    return [as_slices(grad) for grad in grads]


def _compressed(grad: Any) -> IndexedSlices:
    """Return the rows of a matrix in CSR or CSC format, whose arrays SciPy would not check."""
    data = grad.data
    # copies, which are checked: another thread may write to the matrix
    indices, indptr = (np.array(part) for part in (grad.indices, grad.indptr))
    shape = grad.shape if grad.format == "csr" else grad.shape[::-1]
    check_csr(data, indices, indptr, shape, "grad")
    major = np.repeat(np.arange(shape[0]), np.diff(indptr))
    coords = major, indices[: major.size]
    return _rows(coords if grad.format == "csr" else coords[::-1], data[: major.size], grad.shape)


def _rows(coords: Sequence[np.ndarray], data: np.ndarray, shape: tuple[int, ...]) -> IndexedSlices:
    if len(coords) == 1:  # each entry is a row
        return IndexedSlices(data, np.ascontiguousarray(coords[0]), shape)
    if len(coords) != 2 or data.ndim != 1:
        raise InvalidTypeError(
            f"a sparse gradient must have 1 or 2 sparse dimensions, not {len(coords)}"
        )
    row, column = map(np.array, coords)  # copies that no other thread writes to
    check_indices(row, shape[0], "the rows of grad")
    check_indices(column, shape[1], "the columns of grad")
    rows, position = np.unique(row, return_inverse=True)
    values = np.zeros((len(rows), shape[1]), data.dtype)
    np.add.at(values, (position, column), data)
    return IndexedSlices(values, rows, shape)
