"""Rules of functions that move elements, and of indexing.

All share one rule: the function moves the numbers of the elements, and each part of the gradient
goes back to the element whose number is in its place. The gradient of rows that an array of indices
selects is IndexedSlices instead.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt_ref.autodiff.indexed_slices import IndexedSlices
from tfopt_ref.autodiff.nest import flatten, pack
from tfopt_ref.autodiff.ops import Op, define, reshape_like, sum_to
from tfopt_ref.autodiff.tensor import TABLE, Operand, as_tensor


def _put_back(g: Any, like: Any, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Return the gradient of arrays whose elements a function moved or joined."""
    arrays = flatten(like)
    ends = np.cumsum([array.size for array in arrays])
    numbers = np.arange(1, ends[-1] + 1)  # 0 means no element
    parts = [np.empty_like(array, np.intp) for array in arrays]  # in the same order of memory
    for part, listed in zip(parts, np.split(numbers, ends[:-1]), strict=True):
        part[...] = listed.reshape(part.shape)
    sums = np.zeros(len(numbers) + 1, g.dtype)
    np.add.at(sums, np.asarray(function(pack(like, parts), *args, **kwargs), np.intp), g)
    found = np.split(sums[1:], ends[:-1])
    return pack(like, [p.reshape(array.shape) for p, array in zip(found, arrays, strict=True)])


put_back = Op(
    _put_back,
    lambda gg, y, g, like, function, args, kwargs: TABLE[function](gg, *args, **kwargs),
    name="put_back",
)


def moved(function: Callable[..., Any]) -> Op:
    """Return the operation of a function that moves elements, repeats them or adds zeros."""
    op = Op(function, lambda g, y, x, *args, **kwargs: put_back(g, x, function, list(args), kwargs))
    TABLE[function] = op
    return op


for mover in (
    np.reshape, np.ravel, np.squeeze, np.expand_dims, np.transpose, np.swapaxes, np.moveaxis,
    np.rollaxis, np.matrix_transpose, np.linalg.matrix_transpose, np.flip, np.fliplr, np.flipud,
    np.rot90, np.roll, np.tile, np.repeat, np.delete, np.resize, np.block, np.diag, np.diagflat,
    np.diagonal, np.tril, np.triu, np.copy, np.take_along_axis,
    np.concatenate, np.stack, np.vstack, np.hstack, np.dstack, np.column_stack,
    np.atleast_1d, np.atleast_2d, np.atleast_3d,
):  # fmt: skip
    moved(mover)

define(np.broadcast_to, lambda g, y, x, shape: sum_to(g, x))


def _joined(g: Any, y: Any, x: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    return np.concatenate(g, axis)


define(np.split, _joined)
define(np.array_split, _joined)


def _sort(g: Any, y: Any, a: Any, axis: Any = -1, kind: Any = None) -> Any:
    """Move the gradient of sorted elements back; equal elements keep their order."""
    order, along = np.argsort(a, axis, kind="stable"), 0 if axis is None else axis
    return reshape_like(np.take_along_axis(g, np.argsort(order, along), along), a)


define(np.sort, _sort)

# ---- indexing


def _slices(g: Any, y: Any, x: Any, indices: Any) -> IndexedSlices:
    flat = np.ravel(np.where(indices < 0, indices + x.shape[0], indices))
    values = np.reshape(g, (flat.size, *x.shape[1:]))
    return IndexedSlices(values, as_tensor(flat), x.shape)


_rows = Op(lambda x, indices: x[indices], _slices, name="take")
_items, _taken = moved(operator.getitem), moved(np.take)


def _as_indices(key: Any) -> Any:
    """Return a key that is an array of row numbers in a dtype of IndexedSlices, else None."""
    if isinstance(key, (list, np.ndarray)):
        key = np.asarray(key) if isinstance(key, list) else key.copy()
    if not isinstance(key, (np.ndarray, Operand)) or key.dtype.kind not in "iu" or not key.shape:
        return None
    return key if key.dtype in (np.int32, np.int64) else key.astype(np.int64)


def _getitem(x: Any, key: Any) -> Any:
    numbers = not isinstance(key, list) or all(isinstance(part, (int, np.integer)) for part in key)
    indices = _as_indices(key) if numbers else None
    return _items(x, key) if indices is None else _rows(x, indices)


def _take(a: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise",
          ) -> Any:  # fmt: skip
    given = indices if isinstance(indices, Operand) else np.asarray(indices)
    of_rows = mode == "raise" and (a.ndim == 1 if axis is None else axis % a.ndim == 0)
    found = _as_indices(given) if of_rows else None
    return _taken(a, given, axis, mode=mode) if found is None else _rows(a, found)


TABLE["getitem"], TABLE[np.take] = _getitem, _take
