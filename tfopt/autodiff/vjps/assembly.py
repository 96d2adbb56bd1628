"""Arrays assembled from others, or by a user's functions."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from tfopt.autodiff.operands import array_operand as operand
from tfopt.autodiff.operands import as_tensor
from tfopt.autodiff.vjps.arguments import into_zeros, known, shell
from tfopt.autodiff.vjps.composed import composed

# ---- filled


def _full_like(a: Any, fill_value: Any, dtype: Any, shape: Any) -> Any:
    a, value = operand(a), operand(fill_value)
    shape = a.shape if shape is None else np.broadcast_shapes(shape)
    further = max(value.ndim - len(shape), 0)  # axes of length 1
    made = np.broadcast_to(np.reshape(value, value.shape[further:]), shape)
    return made.astype(a.dtype if dtype is None else dtype)


def _linspace(start: Any, stop: Any, num: Any, endpoint: Any, retstep: Any, dtype: Any,
              axis: Any) -> Any:  # fmt: skip
    start, stop = operand(start), operand(stop)
    step = (stop - start) / max(num - 1 if endpoint else num, 1)
    made = start + np.arange(num).reshape((-1,) + (1,) * np.ndim(step)) * step
    made = np.moveaxis(made if dtype is None else made.astype(dtype), 0, axis)
    return (made, step) if retstep else made


def _meshgrid(xi: Any, sparse: Any, indexing: Any) -> Any:
    vectors = [np.ravel(x) for x in xi]
    order = list(range(len(vectors)))
    if indexing == "xy" and len(vectors) > 1:
        order[:2] = [1, 0]
    grids = [
        np.reshape(x, [-1 if k == place else 1 for k in range(len(vectors))])
        for x, place in zip(vectors, order, strict=True)
    ]
    return tuple(grids if sparse else np.broadcast_arrays(*grids))


# ---- joined


def _block(arrays: Any) -> Any:
    """Join blocks: the innermost lists along the last axis."""
    depth = _depth(arrays)
    ndim = max(depth, *(np.ndim(x) for x in _blocks(arrays)))
    return _joined(arrays, -depth, ndim)


def _depth(arrays: Any) -> int:
    return 1 + _depth(arrays[0]) if isinstance(arrays, list) else 0


def _blocks(arrays: Any) -> list[Any]:
    if not isinstance(arrays, list):
        return [arrays]
    return [x for part in arrays for x in _blocks(part)]


def _joined(arrays: Any, axis: int, ndim: int) -> Any:
    if not isinstance(arrays, list):
        x = operand(arrays)
        return np.reshape(x, (1,) * (ndim - x.ndim) + x.shape)
    return np.concatenate([_joined(part, axis + 1, ndim) for part in arrays], axis)


def _insert(arr: Any, obj: Any, values: Any, axis: Any) -> Any:
    """Put values before places: found by what happens to the elements' numbers."""
    arr, values = operand(arr), operand(values)
    numbers = np.arange(arr.size).reshape(arr.shape)
    further = arr.size + np.arange(values.size).reshape(values.shape)
    pool = np.concatenate([np.ravel(arr), np.ravel(values).astype(arr.dtype)])
    return pool[np.insert(numbers, known(obj), further, axis)]


# ---- chosen


def _select(condlist: Any, choicelist: Any, default: Any) -> Any:
    """Choose the first value whose condition holds."""
    python = int, float, complex  # which decide less
    dtype = np.result_type(
        *(x if type(x) in python else shell(operand(x)) for x in (*choicelist, default))
    )
    made = operand(default).astype(dtype)
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        made = np.where(condition, operand(choice).astype(dtype), made)
    return made


def _choose(a: Any, choices: Any, mode: Any) -> Any:
    a, choices = operand(a), list(map(operand, choices))
    n, dtype = len(choices), np.result_type(*map(shell, choices))
    a = np.clip(a, 0, n - 1) if mode == "clip" else np.remainder(a, n) if mode == "wrap" else a
    made: Any = np.zeros((), dtype)
    for k, choice in enumerate(choices):
        made = np.where(a == k, choice.astype(dtype), made)
    return made


def _piecewise(x: Any, condlist: Any, funclist: Any, args: Any, kw: Any) -> Any:
    """Apply to each element the function of the last condition that holds for it."""
    x = operand(x)
    if not x.size:
        return x
    held = [as_tensor(c).astype(bool) for c in _conditions(condlist, x.ndim)]
    if len(funclist) == len(held) + 1:
        held.append(~functools.reduce(np.logical_or, held))
    made = np.zeros(x.shape, x.dtype)
    for where, function in zip(held, funclist, strict=True):
        chosen = x[where]
        if callable(function) and not chosen.size:
            continue
        value = function(chosen, *args, **kw) if callable(function) else function
        if np.ndim(value):
            places = np.cumsum(where).reshape(where.shape) - 1  # of those that it holds for
            value = np.broadcast_to(as_tensor(value), chosen.shape)[np.where(where, places, 0)]
        made = np.where(where.reshape(where.shape + (1,) * (x.ndim - where.ndim)), value, made)
    return made


def _conditions(given: Any, ndim: int) -> Any:
    """Return a list of conditions: NumPy takes one alone, too, of what has axes."""
    if not isinstance(given, (list, tuple)) and not np.ndim(given):
        return [given]
    first = given[0]
    listed = isinstance(first, list) or (not isinstance(first, tuple) and np.ndim(first) > 0)
    return given if listed or not ndim else [given]


def _apply_along_axis(func1d: Any, axis: Any, arr: Any, args: Any, kwargs: Any) -> Any:
    moved_arr = np.moveaxis(operand(arr), axis, -1)
    lanes = np.reshape(moved_arr, (math.prod(moved_arr.shape[:-1]), moved_arr.shape[-1]))
    made = np.stack([operand(func1d(lane, *args, **kwargs)) for lane in lanes])
    rest, new = moved_arr.shape[:-1], made.shape[1:]
    axis = axis % (len(rest) + 1)
    made = np.reshape(made, (*rest, *new))
    return np.moveaxis(made, range(len(rest), len(rest) + len(new)), range(axis, axis + len(new)))


# ---- polynomials


def _polyval(p: Any, x: Any) -> Any:
    """Evaluate a polynomial by Horner's rule."""
    made = 0 * operand(x)
    for coefficient in operand(p):
        made = made * x + coefficient
    return made


for _function, _composition in {
    np.full_like: _full_like, np.linspace: _linspace, np.meshgrid: _meshgrid, np.block: _block,
    np.select: _select, np.choose: _choose, np.piecewise: _piecewise,
    np.apply_along_axis: _apply_along_axis, np.polyval: _polyval,
    np.resize: lambda a, new_shape: into_zeros(np.resize, operand(a), new_shape),
}.items():  # fmt: skip
    composed(_function, _composition)
composed(np.insert, _insert, sized_by="obj")
