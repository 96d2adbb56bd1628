"""Rules of indexing: slices, rows, masks.

Choosing and putting back undo each other: the gradient of one is the other. Rows that are taken
along the first axis have gradients of rows (:class:`tfopt.IndexedSlices`), however large the array.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt.autodiff.backward import call
from tfopt.autodiff.dispatch import without_rule
from tfopt.autodiff.expressions import Call
from tfopt.autodiff.operands import array_operand as operand
from tfopt.autodiff.ops import implements, method
from tfopt.autodiff.vjps.arguments import axis_of, into_zeros, shell
from tfopt.autodiff.vjps.composed import composed, constant_of, moved
from tfopt.core.engine import CUT, Op, Operand, Tensor, apply
from tfopt.indexed_slices import IndexedSlices, densify_rows

# ---- slices


def _embed(g: Any, key: Any, shape: tuple[int, ...]) -> Any:
    made = np.zeros(shape, g.dtype)
    made[key] = g
    return made


def _slice_expression(call: Call) -> str | None:
    key = call.kw["key"]
    return f"{call.args[0]}[{key!r}]" if type(key) is int else None


SLICE = Op("slice", lambda a, key: a[key], views=True, expression=_slice_expression)
EMBED = Op("embed", _embed)
SLICE.define(lambda g, y, a, key: call(EMBED, (g,), {"key": key, "shape": a.shape}))
EMBED.define(lambda g, y, a, key, shape: g[key])

# ---- rows


def _rows(a: Any, indices: Any) -> Any:
    return a.take(indices, 0)


def rows_rule(g: Any, y: Any, a: Any, indices: Any) -> IndexedSlices:
    """Return the gradient of taken rows: rows, as many as were taken."""
    values = g.reshape((indices.size, *a.shape[1:]))
    flat = indices.reshape((-1,))
    if flat.dtype not in (np.int32, np.int64):
        flat = flat.astype(np.int64)
    if isinstance(flat, Tensor) or (flat.size and flat.min() < 0):
        flat = np.where(flat < 0, flat + a.shape[0], flat)
    return IndexedSlices(values, flat, a.shape)


GATHER = Op("GatherV2", _rows, expression=lambda call: f"{call.args[0]}.take({call.args[1]}, 0)")
GATHER.define((rows_rule, "b"), CUT)

# ---- anything else


class Slot:
    """The place of an array in an index."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Slot()"


SLOT = Slot()


def _filled(key: tuple[Any, ...], arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    given = iter(arrays)
    return tuple(next(given) if part is SLOT else part for part in key)


def _choose(a: Any, *arrays: Any, key: tuple[Any, ...]) -> Any:
    made = a[_filled(key, arrays)]
    return made if any(x.ndim for x in arrays) else made.copy()  # places alone give a view


def _add_at(g: Any, *arrays: Any, key: tuple[Any, ...], shape: tuple[int, ...]) -> Any:
    made, index = np.zeros(shape, g.dtype), _filled(key, arrays)
    if len(arrays) == 1 and arrays[0].dtype == bool:
        made[index] = g
    elif len(key) == 1 and arrays[0].ndim == 1 and g.dtype.kind in "fc":
        return densify_rows(g, np.where(arrays[0] < 0, arrays[0] + shape[0], arrays[0]), shape)
    else:
        np.add.at(made, index, g)
    return made


CHOOSE = Op("choose_elements", _choose)
#: The same by a mask, whose values decide how many.
SIFT = Op("choose_elements", _choose, sized=False, label="x[mask]")
ADD_AT = Op("add_at", _add_at)


def _choose_rule(g: Any, y: Any, ins: Any, kw: Any, need: Any) -> list[Any]:
    made = call(ADD_AT, (g, *ins[1:]), {"key": kw["key"], "shape": ins[0].shape})
    return [made] + [None] * (len(ins) - 1)


def _add_at_rule(g: Any, y: Any, ins: Any, kw: Any, need: Any) -> list[Any]:
    return [call(CHOOSE, (g, *ins[1:]), {"key": kw["key"]})] + [None] * (len(ins) - 1)


CHOOSE.define_jointly(_choose_rule, "+")
SIFT.define_jointly(_choose_rule, "+")
ADD_AT.define_jointly(_add_at_rule, "+")


def _is_basic(part: Any) -> bool:
    return part is None or part is Ellipsis or type(part) in (int, slice)


@method("__getitem__")
def getitem(a: Any, index: Any) -> Any:
    """Return a part: by numbers and slices, rows by integers, or elements by arrays."""
    kind = type(index)
    if kind is int or kind is slice or (kind is tuple and all(map(_is_basic, index))):
        return apply(SLICE, (a,), {"key": index})
    if kind is not tuple:
        if _is_basic(index):
            return apply(SLICE, (a,), {"key": index})
        array = _index_array(index)
        if array.dtype.kind in "iu" and array.ndim and a.ndim:
            return apply(GATHER, (a, array))
        index = (array,)
    key, arrays = [], []
    for part in index:
        if _is_basic(part) or isinstance(part, slice):
            key.append(part)
        elif isinstance(part, (int, np.integer)) and not isinstance(part, bool):
            key.append(int(part))
        else:
            key.append(SLOT)
            arrays.append(_index_array(part))
    if not arrays:
        return apply(SLICE, (a,), {"key": tuple(key)})
    masked = any(isinstance(x, Operand) and x.dtype == bool for x in arrays)
    return apply(SIFT if masked else CHOOSE, (a, *arrays), {"key": tuple(key)})


def _index_array(part: Any) -> Any:
    array = operand(part) if not isinstance(part, (list, bool)) else np.asarray(part)
    if isinstance(part, list) and any(isinstance(each, Operand) for each in part):
        array = operand(part)
    if isinstance(array, np.ndarray) and array.size == 0 and isinstance(part, list):
        array = array.astype(np.intp)
    if not hasattr(array, "ndim"):
        array = np.asarray(array)
    if array.dtype.kind not in "iub":
        raise IndexError(
            f"arrays used as indices must be of integers or booleans, not {array.dtype}"
        )
    return array


@implements(np.take)
@method("take")
def take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    """Take elements along an axis: whole rows along the first."""
    a = operand(a)
    if out is not None:
        return without_rule("take", np.take, (a, indices, axis, out, mode), {})
    plain = type(mode) is str and mode == "raise" and (axis is None or type(axis) is int)
    if not plain:
        constant_of(np.take, shell(a), indices, axis, mode=mode)  # which raises what NumPy raises
    if axis is None or not a.ndim:
        a, axis = np.ravel(a), 0 if axis is None else axis
    axis = axis_of(a, axis)
    places = operand(indices)
    if not plain or places.dtype.kind not in "iu":
        places = constant_of(np.take, np.arange(a.shape[axis]), indices, mode=mode)
    if axis == 0:
        return apply(GATHER, (a, places))
    return a[(slice(None),) * axis + (places,)]


def _take_along_axis(arr: Any, indices: Any, axis: Any) -> Any:
    """Take an element for each place along an axis."""
    a, indices = operand(arr), operand(indices)
    if axis is None:
        a, axis = np.ravel(a), 0
    axis = axis_of(a, axis)
    shape = np.broadcast_shapes(
        *(tuple(1 if k == axis else n for k, n in enumerate(x.shape)) for x in (a, indices))
    )
    grid = [
        indices if k == axis else np.arange(n).reshape([-1 if j == k else 1 for j in range(a.ndim)])
        for k, n in enumerate(shape)
    ]
    return a[tuple(grid)]


def _places(condition: Any) -> Any:
    """Return where a condition holds."""
    return np.flatnonzero(condition if isinstance(condition, Operand) else np.asarray(condition))


def _delete(arr: Any, obj: Any, axis: Any) -> Any:
    a = operand(arr)
    a, axis = (np.ravel(a), 0) if axis is None else (a, axis_of(a, axis))
    return take(a, constant_of(np.delete, np.arange(a.shape[axis]), obj), axis)


def _bincount(x: Any, weights: Any, minlength: Any) -> Any:
    """Add weights up where numbers say; how often these are has no gradient."""
    if weights is None:
        return None
    length = constant_of(np.bincount, x, minlength=minlength).shape[0]
    places = operand(x).astype(np.intp)
    return apply(ADD_AT, (operand(weights), places), {"key": (SLOT,), "shape": (length,)})


method("compress")(lambda a, condition, axis=None: np.compress(condition, a, axis))
composed(np.take_along_axis, _take_along_axis)
composed(
    np.compress, lambda condition, a, axis: take(a, _places(condition), axis), sized_by="condition"
)
composed(
    np.extract, lambda condition, arr: take(np.ravel(arr), _places(condition)), sized_by="condition"
)
composed(np.delete, _delete, sized_by="obj")
composed(np.bincount, _bincount, sized_by="x")

# ---- diagonals and triangles


def _diagonal(a: Any, offset: Any, axis1: Any, axis2: Any) -> Any:
    return moved(np.diagonal, operand(a), offset, axis1, axis2)


def _trace(a: Any, offset: Any, axis1: Any, axis2: Any, dtype: Any) -> Any:
    return np.sum(_diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype)


composed(np.diagonal, _diagonal, methods=["diagonal"])
composed(np.trace, _trace, methods=["trace"])
composed(np.linalg.diagonal, lambda x, offset: _diagonal(x, offset, -2, -1))
composed(np.linalg.trace, lambda x, offset, dtype: _trace(x, offset, -2, -1, dtype))
composed(np.diag, lambda v, k: into_zeros(np.diag, operand(v), k))
composed(np.diagflat, lambda v, k: into_zeros(np.diagflat, operand(v), k))
composed(np.tril, lambda m, k: _triangle(np.tril, operand(m), k))
composed(np.triu, lambda m, k: _triangle(np.triu, operand(m), k))


def _triangle(function: Any, m: Any, k: Any) -> Any:
    return np.where(function(np.ones(m.shape, bool), k), m, np.zeros(1, m.dtype))
