"""Sparse gradients of other libraries: scipy's matrices and arrays, torch's COO tensors.

They are known by what they have, so that neither library is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfopt.errors import InvalidTypeError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.csr import check_csr, check_indices

__all__ = ["as_slices", "each_as_slices"]

_OWN = {np.ndarray, IndexedSlices, type(None)}


def as_slices(grad: Any) -> Any:
    """Return a sparse gradient of another library as slices, and any other one as it is.

    The rows with an entry are those that have a gradient; entries of one place are summed.

    Raises
    ------
    InvalidTypeError
        If it has entries by more than two indices.
    InvalidArgumentError
        If its arrays of indices do not fit together.
    """
    if type(grad) in _OWN:
        return grad
    if hasattr(grad, "nnz") and hasattr(grad, "tocoo"):
        if grad.format in ("csr", "csc") and len(grad.shape) == 2:  # scipy does not look
            shape = grad.shape if grad.format == "csr" else grad.shape[::-1]
            check_csr(grad.data, grad.indices, grad.indptr, shape, "grad")
        coo = grad.tocoo()
        coords = getattr(coo, "coords", None) or (coo.row, coo.col)
        return _rows(coords, coo.data, coo.shape)
    if getattr(grad, "is_sparse", False) is True and hasattr(grad, "_indices"):
        indices, values = grad._indices().numpy(), grad._values().detach().numpy()
        return _rows(tuple(indices), values, tuple(grad.shape))
    return grad


def each_as_slices(grads: Sequence[Any]) -> Sequence[Any]:
    """Return gradients with those of other libraries as slices."""
    if not isinstance(grads, (list, tuple)) or set(map(type, grads)) <= _OWN:
        return grads
    return [as_slices(grad) for grad in grads]


def _rows(coords: Sequence[np.ndarray], data: np.ndarray, shape: tuple[int, ...]) -> IndexedSlices:
    if len(coords) == 1:  # its entries are rows
        return IndexedSlices(data, np.ascontiguousarray(coords[0]), shape)
    if len(coords) != 2 or data.ndim != 1:
        raise InvalidTypeError(
            f"a sparse gradient has entries by 1 or 2 indices, not {len(coords)}"
        )
    row, column = coords
    check_indices(row, shape[0], "the rows of grad")
    check_indices(column, shape[1], "the columns of grad")
    rows, place = np.unique(row, return_inverse=True)
    values = np.zeros((len(rows), shape[1]), data.dtype)
    np.add.at(values, (place, column), data)
    return IndexedSlices(values, rows, shape)
