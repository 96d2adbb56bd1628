"""Which rows of a table belong to which of its parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt.core.sparse_conversion import as_slices
from tfopt.errors import IndexOutOfRangeError, InvalidArgumentError, InvalidTypeError
from tfopt.indexed_slices import IndexedSlices

__all__ = ["checked_ids", "checked_rows", "edges_of", "route"]


def edges_of(rows: int, shards: int) -> np.ndarray:
    """Return where the parts of a table begin and end: part k has the rows from edge k to k + 1."""
    return np.array([rows * k // shards for k in range(shards + 1)], np.int64)


def route(ids: np.ndarray, edges: np.ndarray) -> list[np.ndarray]:
    """Return for each part the places of its ids, in the order in which they come."""
    part = np.searchsorted(edges[1:], ids, side="right")
    order = np.argsort(part, kind="stable")
    return np.split(order, np.searchsorted(part[order], np.arange(1, len(edges) - 1)))


def checked_ids(ids: Any, rows: int) -> np.ndarray:
    """Return ids as an array, all of them rows of a table.

    Raises
    ------
    InvalidTypeError
        If they are not int32 or int64.
    IndexOutOfRangeError
        If one of them is no row; it is named.
    """
    array = np.asarray(ids)
    if array.size == 0 and not hasattr(ids, "dtype"):
        array = array.astype(np.int64)
    if array.dtype not in (np.int32, np.int64):
        raise InvalidTypeError(f"ids must be int32 or int64, not {array.dtype}")
    outside = (array < 0) | (array >= rows)
    if outside.any():
        place = int(np.argmax(outside))
        raise IndexOutOfRangeError(
            f"ids[{place}] = {array.reshape(-1)[place]} is not in [0, {rows})"
        )
    return array


def checked_rows(slices: Any, rows: int, width: int) -> IndexedSlices:
    """Return gradients of rows that fit a table; their dtype is the optimizer's to check.

    Raises
    ------
    InvalidTypeError
        If they are no `IndexedSlices`, or the indices neither int32 nor int64.
    InvalidArgumentError
        If shapes do not fit, or an index is no row.
    """
    slices = as_slices(slices)
    if not isinstance(slices, IndexedSlices):
        raise InvalidTypeError(
            f"the gradient of a table is IndexedSlices, not {type(slices).__name__}"
        )
    indices = checked_ids(slices.indices, rows)
    if indices.ndim != 1:
        raise InvalidArgumentError(f"indices must be one-dimensional: {list(indices.shape)}")
    values = np.asarray(slices.values)
    if values.shape != (indices.size, width):
        raise InvalidArgumentError(
            f"values must have shape {[indices.size, width]}, not {list(values.shape)}"
        )
    return IndexedSlices(values, indices)
