"""Rules of sums and other functions of many elements, of scans and of sorting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from tfopt_ref.autodiff.ops import Op, broadcast_like, define, no_gradients, reshape_like
from tfopt_ref.autodiff.tensor import TABLE

__all__ = ["kept"]


def kept(reduced: Any, a: Any, axis: Any, keepdims: bool = False) -> Any:
    """Return what was reduced along axes of a, with the axes as ones of length 1."""
    if keepdims or not reduced.shape:
        return reduced
    axes = range(a.ndim) if axis is None else normalize_axis_tuple(axis, a.ndim)
    return np.expand_dims(reduced, tuple(axes))


def _count(y: Any, a: Any) -> float:
    return float(a.size) / y.size if y.size else math.nan


# ---- sums and products


def _sum(
    g: Any, y: Any, a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False
) -> Any:
    return broadcast_like(kept(g, a, axis, keepdims), a)


def _mean(
    g: Any, y: Any, a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False
) -> Any:
    return broadcast_like(kept(g, a, axis, keepdims), a) / _count(y, a)


def _prod(
    g: Any, y: Any, a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False
) -> Any:
    return broadcast_like(kept(g, a, axis, keepdims), a) * _of_others(a, axis, np.prod)


def _of_others(a: Any, axis: Any, product: Any) -> Any:
    """Return for each element a product of the others along the axes, zeros among them or not."""
    axes = range(a.ndim) if axis is None else normalize_axis_tuple(axis, a.ndim)
    order = [*(i for i in range(a.ndim) if i not in axes), *axes]
    last = np.transpose(a, order)
    lanes = np.reshape(last, (*last.shape[: a.ndim - len(axes)], -1))
    others = product(_without_each(lanes), axis=-1)
    return np.transpose(reshape_like(others, last), np.argsort(order))


def _without_each(lanes: Any) -> Any:
    """Return for each element of the last axis all of them, with a 1 in its place."""
    return np.where(np.eye(lanes.shape[-1], dtype=bool), 1, lanes[..., None, :])


define(np.sum, _sum, reads="")
define(np.mean, _mean, reads="")
define(np.prod, _prod, reads="a")

# ---- extremes


def _extreme(
    g: Any, y: Any, a: Any, axis: Any = None, out: None = None, keepdims: bool = False
) -> Any:
    chosen = a == kept(y, a, axis, keepdims)
    count = np.sum(chosen, axis=None if axis is None else axis, keepdims=True)
    return kept(g, a, axis, keepdims) * chosen / count


for extreme in (np.max, np.min, np.amax, np.amin):
    define(extreme, _extreme)

# ---- moments


def _var(
    g: Any, y: Any, a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: int = 0,
    *, keepdims: bool = False,
) -> Any:  # fmt: skip
    deviations = a - np.mean(a, axis, keepdims=True)
    return 2 * kept(g, a, axis, keepdims) * deviations / (_count(y, a) - ddof)


def _std(
    g: Any, y: Any, a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: int = 0,
    *, keepdims: bool = False,
) -> Any:  # fmt: skip
    return _var(g / (2 * y), y, a, axis, ddof=ddof, keepdims=keepdims)


define(np.var, _var)
define(np.std, _std)


def _logsumexp(
    g: Any,
    y: Any,
    a: Any,
    axis: Any = 0,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
) -> Any:
    return kept(g, a, axis, keepdims) * np.exp(a - kept(y, a, axis, keepdims))


TABLE[np.logaddexp.reduce] = Op(np.logaddexp.reduce, _logsumexp, name="logsumexp")


def _reduced_by(function: Any) -> Any:
    """Return ``ufunc.reduce`` as another function, whose axis is not 0 if it is left out."""
    return lambda a, axis=0, *args, **kwargs: function(a, axis, *args, **kwargs)


for ufunc, function in (
    (np.add, np.sum), (np.multiply, np.prod), (np.maximum, np.max), (np.minimum, np.min),
    (np.logical_and, np.all), (np.logical_or, np.any),
):  # fmt: skip
    TABLE[ufunc.reduce] = _reduced_by(function)
TABLE[np.add.accumulate] = _reduced_by(np.cumsum)
TABLE[np.multiply.accumulate] = _reduced_by(np.cumprod)

# ---- scans


def _cumsum(g: Any, y: Any, a: Any, axis: Any = None, dtype: Any = None) -> Any:
    along = 0 if axis is None else axis
    return reshape_like(np.flip(np.cumsum(np.flip(g, along), along), along), a)


def _cumprod(g: Any, y: Any, a: Any, axis: Any = None, dtype: Any = None) -> Any:
    along = 0 if axis is None else axis
    lanes = np.moveaxis(np.ravel(a) if axis is None else a, along, -1)
    products = np.cumprod(_without_each(lanes), -1)
    later = np.triu(np.ones((lanes.shape[-1],) * 2, bool))
    upstream = np.moveaxis(g, along, -1)[..., None, :]
    to_lanes = np.sum(np.where(later, products * upstream, 0), -1)
    return reshape_like(np.moveaxis(to_lanes, -1, along), a)


define(np.cumsum, _cumsum, reads="")
define(np.cumprod, _cumprod, reads="a")

# ---- order


def _unsorted(g: Any, order: Any, axis: Any, a: Any) -> Any:
    along = 0 if axis is None else axis
    return reshape_like(np.take_along_axis(g, np.argsort(order, along), along), a)


def _sort(g: Any, y: Any, a: Any, axis: Any = -1, kind: Any = None) -> Any:
    return _unsorted(g, np.argsort(a, axis, kind="stable"), axis, a)


def _partition(g: Any, y: Any, a: Any, kth: Any, axis: Any = -1) -> Any:
    return _unsorted(g, np.argpartition(a, kth, axis), axis, a)


def _median(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    axes = range(a.ndim) if axis is None else normalize_axis_tuple(axis, a.ndim)
    rest = [i for i in range(a.ndim) if i not in axes]
    last = np.transpose(a, [*rest, *axes])
    lanes = np.sort(np.reshape(last, (*last.shape[: len(rest)], -1)), -1)
    middle = (lanes.shape[-1] - 1) // 2, lanes.shape[-1] // 2
    value = (lanes[..., middle[0]] + lanes[..., middle[1]]) / 2
    value = np.where(np.isnan(lanes[..., -1]), lanes[..., -1], value)
    return kept(value, a, axis) if keepdims else value


def _ptp(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return np.max(a, axis, keepdims=keepdims) - np.min(a, axis, keepdims=keepdims)


define(np.sort, _sort, reads="a")
define(np.partition, _partition, reads="a")
TABLE[np.median], TABLE[np.ptp] = _median, _ptp

no_gradients(
    np.all, np.any, np.argmax, np.argmin, np.argsort, np.argpartition, np.lexsort,
    np.nanargmax, np.nanargmin, np.count_nonzero,
    np.nonzero, np.flatnonzero, np.argwhere, np.searchsorted, np.digitize, np.bincount,
    np.unique, np.array_equal, np.allclose,
)  # fmt: skip
