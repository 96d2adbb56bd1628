"""Rules of functions that join arrays, and that cut one into several."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from tfopt.autodiff.operands import array_operand as operand
from tfopt.autodiff.ops import implements
from tfopt.autodiff.vjps.arguments import axis_of, known, parameters, shell
from tfopt.autodiff.vjps.composed import constant_of, with_gradients_of
from tfopt.autodiff.vjps.shapes import atleast_1d, atleast_2d, atleast_3d, expand_dims, moveaxis
from tfopt.core.engine import Op, apply


def _concatenate(*arrays: Any, axis: int) -> Any:
    return np.concatenate(arrays, axis)


def _split_rule(g: Any, y: Any, ins: Any, kw: Any, need: Any) -> list[Any]:
    axis, start, made = kw["axis"] % g.ndim, 0, []
    for array, wanted in zip(ins, need, strict=True):
        stop = start + array.shape[axis]
        made.append(g[(slice(None),) * axis + (slice(start, stop),)] if wanted else None)
        start = stop
    return made


CONCATENATE = Op("concatenate", _concatenate)
CONCATENATE.define_jointly(_split_rule)


@implements(np.concatenate, np.concat)
def concatenate(arrays: Any, /, axis: Any = 0, out: Any = None, **others: Any) -> Any:
    """Join along an axis."""
    parts = list(arrays) if isinstance(arrays, (list, tuple)) else list(operand(arrays))
    if others or (axis is None and any(type(a) in (int, float, complex) for a in parts)):
        return with_gradients_of(_converted, np.concatenate, (parts, axis), others)
    parts = [operand(a) for a in parts]
    if axis is None:
        parts, axis = [np.ravel(a) for a in parts], 0
    axis = axis if type(axis) in (int, bool) else operator.index(axis)
    return apply(CONCATENATE, tuple(parts), {"axis": axis})


def _converted(arrays: Any, axis: Any, dtype: Any = None, casting: str = "same_kind") -> Any:
    made = constant_of(np.concatenate, arrays, axis, dtype=dtype, casting=casting).dtype
    return concatenate([operand(a).astype(made) for a in arrays], axis)


@implements(np.stack)
def stack(arrays: Any, axis: int = 0, out: Any = None, **others: Any) -> Any:
    """Join along a new axis."""
    parts = [operand(a) for a in arrays]
    if len({a.shape for a in parts}) != 1:
        raise ValueError("all input arrays must have the same shape, and there must be one")
    axis = normalize_axis_index(axis, parts[0].ndim + 1)
    return concatenate([expand_dims(a, axis) for a in parts], axis, out, **others)


def _joiner(function: Any, as_part: Any, axis: int) -> None:
    """Make the handler of a function that joins what `as_part` makes of arrays.

    Vectors are joined along the only axis that they have.
    """

    def handler(tup: Any, **others: Any) -> Any:
        if others:
            parameters(function).bind(tup, **others)
        parts = list(map(as_part, tup))
        return concatenate(parts, min(axis, parts[0].ndim - 1) if parts else 0, **others)

    implements(function)(handler)


def _as_column(a: Any) -> Any:
    a = operand(a)
    return a if a.ndim > 1 else np.reshape(a, (-1, 1))


_joiner(np.hstack, atleast_1d, 1)
_joiner(np.vstack, atleast_2d, 0)
_joiner(np.dstack, atleast_3d, 2)
_joiner(np.column_stack, _as_column, 1)


@implements(np.append)
def append(arr: Any, values: Any, axis: Any = None) -> Any:
    """Join two."""
    if axis is None:
        arr, values, axis = np.ravel(operand(arr)), np.ravel(operand(values)), 0
    return concatenate([arr, values], axis)


# ---- cut


def _cutter(function: Any, cut: Any, axis_in: Any) -> None:
    """Make the handler of a function that cuts along an axis.

    It is asked for what is wrong, and `cut` for where numbers are cut.
    """

    def handler(ary: Any, indices_or_sections: Any, *args: Any, **kwargs: Any) -> list[Any]:
        ary, places = operand(ary), known(indices_or_sections)
        function(shell(ary), places, *args, **kwargs)
        axis = axis_of(ary, axis_in(ary, *args, **kwargs))
        pieces = cut(np.arange(ary.shape[axis]), places)
        starts = [int(piece[0]) if piece.size else 0 for piece in pieces]
        return [
            ary[(*(slice(None),) * axis, slice(start, start + piece.size))]
            for start, piece in zip(starts, pieces, strict=True)
        ]

    implements(function)(handler)


_cutter(np.array_split, np.array_split, lambda ary, axis=0: axis)
_cutter(np.split, np.split, lambda ary, axis=0: axis)
_cutter(np.hsplit, np.split, lambda ary: 1 if ary.ndim > 1 else 0)
_cutter(np.vsplit, np.split, lambda ary: 0)
_cutter(np.dsplit, np.split, lambda ary: 2)


@implements(np.unstack)
def unstack(x: Any, /, *, axis: Any = 0) -> tuple[Any, ...]:
    """Return the parts along an axis, without it."""
    x, axis = operand(x), known(axis)
    np.unstack(shell(x), axis=axis)
    return tuple(moveaxis(x, axis, 0))
