"""Scans: the results of a reduction up to each element; and sums of segments."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tfopt.autodiff.backward import call
from tfopt.autodiff.operands import array_operand as operand
from tfopt.autodiff.ops import ACCUMULATIONS, SEGMENTS
from tfopt.autodiff.vjps.arguments import axes_of
from tfopt.autodiff.vjps.composed import composed, constant_of, with_gradients_of
from tfopt.autodiff.vjps.indexing import ADD_AT, SLOT
from tfopt.core.engine import CUT, Op, Operand, apply


def _cumulative(function: Any, first: float, x: Any, axis: Any, dtype: Any,
                include_initial: Any) -> Any:  # fmt: skip
    x = np.atleast_1d(operand(x))
    axis = 0 if axis is None else axes_of(x, axis)[0]
    made = function(x, axis, dtype)
    if not include_initial:
        return made
    shape = [1 if k == axis else n for k, n in enumerate(made.shape)]
    start = np.full(shape, first, made.dtype)
    return np.concatenate([start, made], axis)


composed(np.cumulative_sum, functools.partial(_cumulative, np.cumsum, 0))
composed(np.cumulative_prod, functools.partial(_cumulative, np.cumprod, 1))


# ---- ufunc.accumulate


def _extremes(ufunc: np.ufunc, a: Any, axis: int, dtype: Any) -> Any:
    """Choose the first of equal elements, as a chain of ``np.maximum`` does."""
    a = a if dtype is None else a.astype(dtype)
    if not a.size:
        return a
    lanes = np.moveaxis(a, axis, -1)
    before = constant_of(ufunc.accumulate, lanes[..., :-1], -1)
    stays = before >= lanes[..., 1:] if ufunc is np.maximum else before <= lanes[..., 1:]
    places = np.where(stays, 0, np.arange(1, lanes.shape[-1]))
    places = np.concatenate([np.zeros((*lanes.shape[:-1], 1), int), places], -1)
    chosen = constant_of(np.maximum.accumulate, places, -1)
    return np.moveaxis(np.take_along_axis(lanes, chosen, -1), -1, axis)


def _accumulation(ufunc: np.ufunc, composition: Any) -> Any:
    def along(a: Any, axis: Any, dtype: Any) -> Any:
        return composition(a, axes_of(a, axis)[0], dtype)

    def accumulate(array: Any, axis: int = 0, dtype: Any = None, out: None = None) -> Any:
        args = (operand(array), axis, dtype)
        name = f"{ufunc.__name__}.accumulate"
        return with_gradients_of(along, ufunc.accumulate, args, {}, name)

    return accumulate


for _ufunc, _composition in (
    (np.add, np.cumsum), (np.multiply, np.cumprod),
    (np.maximum, functools.partial(_extremes, np.maximum)),
    (np.minimum, functools.partial(_extremes, np.minimum)),
):  # fmt: skip
    ACCUMULATIONS[_ufunc] = _accumulation(_ufunc, _composition)


# ---- ufunc.reduceat


def _reduceat_rule(g: Any, y: Any, a: Any, indices: Any, axis: Any = 0) -> Any:
    """Give each element the gradient of every sum that it is part of."""
    axis, starts = axes_of(a, axis)[0], indices.astype(np.intp)
    n, owners = a.shape[axis], np.arange(starts.shape[0])
    gaps = np.diff(starts, append=n)
    lengths = np.maximum(gaps, 1)
    owners = np.repeat(owners, lengths)
    parts = np.take(g, owners, axis)
    before, after = g.shape[:axis], g.shape[axis + 1 :]
    if isinstance(starts, np.ndarray) and np.array_equal(lengths, gaps):
        left_out = n - parts.shape[axis]  # each other place is in one sum, in order
        zeros = np.zeros((*before, left_out, *after), g.dtype)
        return np.concatenate([zeros, parts], axis) if left_out else parts
    places = np.arange(owners.shape[0]) + np.take(starts + lengths - np.cumsum(lengths), owners)
    key = (*(slice(None),) * axis, SLOT)
    return call(ADD_AT, (parts, places), {"key": key, "shape": (*before, n, *after)})


REDUCEAT = Op("add.reduceat", np.add.reduceat, label="np.add.reduceat")
REDUCEAT.define((_reduceat_rule, "b"), CUT)


def _sums(array: Any, indices: Any, axis: Any, dtype: Any) -> Any:
    return reduceat(array.astype(dtype), indices, axis)


def reduceat(
    array: Any, /, indices: Any, axis: Any = 0, dtype: Any = None, out: None = None
) -> Any:
    """Sum segments, as ``np.add.reduceat``."""
    if dtype is not None:
        args = (operand(array), indices, axis, dtype)
        return with_gradients_of(_sums, np.add.reduceat, args, {}, REDUCEAT.name)
    if not isinstance(indices, (Operand, np.ndarray)):
        listed = isinstance(indices, (list, tuple))  # of any numbers
        indices = np.asarray(indices, np.intp if listed else None)
    return apply(REDUCEAT, (operand(array), indices), {"axis": axis})


SEGMENTS[np.add] = reduceat
