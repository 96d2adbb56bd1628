"""Rules of sums and other functions of many elements, of scans and of sorting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from tfopt_ref.autodiff.ops import Op, broadcast_like, define, no_gradients, reshape_like
from tfopt_ref.autodiff.tensor import TABLE
from tfopt_ref.autodiff.vjps.derived import array, derived
from tfopt_ref.autodiff.vjps.elementwise import conj

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


def _where(where: Any, x: Any, fill: Any) -> Any:
    return x if where is True else np.where(where, x, fill)


def _counted(y: Any, a: Any, axis: Any, keepdims: bool, where: Any) -> Any:
    """Return how many elements are behind each result."""
    if where is True:
        return _count(y, a)
    return np.sum(np.broadcast_to(where, a.shape), axis, keepdims=keepdims)


def _sum(
    g: Any, y: Any, a: Any, axis: Any = None, dtype: Any = None, out: None = None,
    keepdims: bool = False, initial: Any = 0, where: Any = True,
) -> Any:  # fmt: skip
    return _where(where, broadcast_like(kept(g, a, axis, keepdims), a), 0)


def _mean(
    g: Any, y: Any, a: Any, axis: Any = None, dtype: Any = None, out: None = None,
    keepdims: bool = False, *, where: Any = True,
) -> Any:  # fmt: skip
    each = g / _counted(y, a, axis, keepdims, where)
    return _where(where, broadcast_like(kept(each, a, axis, keepdims), a), 0)


def _prod(
    g: Any, y: Any, a: Any, axis: Any = None, dtype: Any = None, out: None = None,
    keepdims: bool = False, initial: Any = 1, where: Any = True,
) -> Any:  # fmt: skip
    others = conj(_of_others(_where(where, a, 1), axis, np.prod) * initial)
    return _where(where, broadcast_like(kept(g, a, axis, keepdims), a) * others, 0)


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


define(np.sum, _sum)
define(np.mean, _mean)
define(np.prod, _prod)

# ---- extremes


def _extreme(
    g: Any, y: Any, a: Any, axis: Any = None, out: None = None, keepdims: bool = False,
    initial: Any = None, where: Any = True,
) -> Any:  # fmt: skip
    """Share between equal ones; there is none if `initial` is more extreme than all."""
    extreme = kept(y, a, axis, keepdims)
    chosen = (a == extreme) & where
    count = np.sum(chosen, axis=axis, keepdims=True)
    if initial is not None:
        count = np.where(np.isnan(extreme), count, np.maximum(count, 1))
    return kept(g, a, axis, keepdims) * chosen / count


for extreme in (np.max, np.min, np.amax, np.amin):
    define(extreme, _extreme)


@derived(np.ptp)
def _ptp(a: Any, axis: Any = None, out: None = None, keepdims: bool = False) -> Any:
    return np.max(a, axis, keepdims=keepdims) - np.min(a, axis, keepdims=keepdims)


# ---- moments


def _var(
    g: Any, y: Any, a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: float = 0,
    keepdims: bool = False, *, where: Any = True, correction: Any = None,
) -> Any:  # fmt: skip
    deviations = a - np.mean(a, axis, keepdims=True, where=where)
    ddof = ddof if correction is None else correction
    each = 2 * g / (_counted(y, a, axis, keepdims, where) - ddof)
    return _where(where, kept(each, a, axis, keepdims) * deviations, 0)


def _std(
    g: Any, y: Any, a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: float = 0,
    keepdims: bool = False, *, where: Any = True, correction: Any = None,
) -> Any:  # fmt: skip
    half = np.where(y == 0, 0, g / (2 * np.where(y == 0, 1, y)))
    return _var(half, y, a, axis, dtype, out, ddof, keepdims, where=where,
                correction=correction)  # fmt: skip


define(np.var, _var)
define(np.std, _std)


def _logsumexp(
    g: Any, y: Any, a: Any, axis: Any = 0, dtype: Any = None, out: None = None,
    keepdims: bool = False, initial: Any = None, where: Any = True,
) -> Any:  # fmt: skip
    shares = np.exp(a - kept(y, a, axis, keepdims))
    return _where(where, kept(g, a, axis, keepdims) * shares, 0)


TABLE[np.logaddexp.reduce] = Op(np.logaddexp.reduce, _logsumexp, name="logsumexp")


def _reduced_by(function: Any) -> Any:
    """Return ``ufunc.reduce`` as another function, whose axis is not 0 if it is left out."""
    return lambda a, axis=0, *args, **kwargs: function(a, axis, *args, **kwargs)


for ufunc, function in (
    (np.add, np.sum), (np.multiply, np.prod), (np.maximum, np.max), (np.minimum, np.min),
    (np.logical_and, np.all), (np.logical_or, np.any),
):  # fmt: skip
    TABLE[ufunc.reduce] = _reduced_by(function)

# ---- reductions that leave NaN out


def _without_nan(function: Any, fill: float) -> Any:
    def composition(a: Any, *args: Any, where: Any = True, **kwargs: Any) -> Any:
        known = ~np.isnan(a) & where
        return function(np.where(np.isnan(a), fill, a), *args, where=known, **kwargs)

    return composition


def _filled(function: Any, fill: float) -> Any:
    return lambda a, *args, **kwargs: function(np.where(np.isnan(a), fill, a), *args, **kwargs)


for nan_function, plain, nothing in (
    (np.nansum, np.sum, 0), (np.nanprod, np.prod, 1), (np.nanmean, np.mean, 0),
    (np.nanvar, np.var, 0), (np.nanstd, np.std, 0),
):  # fmt: skip
    derived(nan_function)(_without_nan(plain, nothing))
derived(np.nanmax)(_filled(np.max, -np.inf))
derived(np.nanmin)(_filled(np.min, np.inf))
derived(np.nancumsum)(_filled(np.cumsum, 0))
derived(np.nancumprod)(_filled(np.cumprod, 1))

# ---- scans


def _cumsum(g: Any, y: Any, a: Any, axis: Any = None, dtype: Any = None) -> Any:
    along = 0 if axis is None else axis
    return reshape_like(np.flip(np.cumsum(np.flip(g, along), along), along), a)


def _cumprod(g: Any, y: Any, a: Any, axis: Any = None, dtype: Any = None) -> Any:
    along = 0 if axis is None else axis
    lanes = np.moveaxis(np.ravel(a) if axis is None else a, along, -1)
    products = conj(np.cumprod(_without_each(lanes), -1))
    later = np.triu(np.ones((lanes.shape[-1],) * 2, bool))
    upstream = np.moveaxis(g, along, -1)[..., None, :]
    to_lanes = np.sum(np.where(later, products * upstream, 0), -1)
    return reshape_like(np.moveaxis(to_lanes, -1, along), a)


define(np.cumsum, _cumsum)
define(np.cumprod, _cumprod)
TABLE[np.add.accumulate] = _reduced_by(np.cumsum)
TABLE[np.multiply.accumulate] = _reduced_by(np.cumprod)


def _cumulative(function: Any, first: float) -> Any:
    def composition(
        x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: bool = False
    ) -> Any:
        made = function(x, axis or 0, dtype)
        start = np.take(made, [0], axis or 0) * 0 + first
        return np.concatenate([start, made], axis or 0) if include_initial else made

    return composition


derived(np.cumulative_sum)(_cumulative(np.cumsum, 0))
derived(np.cumulative_prod)(_cumulative(np.cumprod, 1))


def _accumulated(of_two: Any) -> Any:
    """Return what puts one element after the other to the extreme of those before."""

    def composition(array: Any, axis: int = 0) -> Any:
        first, *others = np.moveaxis(array, axis, 0)
        made = [first]
        for each in others:
            made.append(of_two(made[-1], each))
        return np.stack(made, axis)

    return composition


for of_two in (np.maximum, np.minimum):
    name = f"{of_two.__name__}.accumulate"
    derived(of_two.accumulate, name=name)(_accumulated(of_two))

# ---- order


def _unsorted(g: Any, order: Any, axis: Any, a: Any) -> Any:
    along = 0 if axis is None else axis
    return reshape_like(np.take_along_axis(g, np.argsort(order, along), along), a)


def _sort(g: Any, y: Any, a: Any, axis: Any = -1, kind: Any = None) -> Any:
    return _unsorted(g, np.argsort(a, axis, kind="stable"), axis, a)


def _partition(g: Any, y: Any, a: Any, kth: Any, axis: Any = -1) -> Any:
    return _unsorted(g, np.argpartition(a, kth, axis), axis, a)


def _lanes(a: Any, axis: Any) -> tuple[Any, tuple[int, ...]]:
    """Return what lies along axes as the last one, sorted, and the axes."""
    axes = tuple(range(a.ndim)) if axis is None else normalize_axis_tuple(axis, a.ndim)
    rest = [i for i in range(a.ndim) if i not in axes]
    last = np.transpose(a, [*rest, *axes])
    count = math.prod(last.shape[len(rest) :])
    return np.sort(np.reshape(last, (*last.shape[: len(rest)], count)), -1), axes


def _or_nan(value: Any, lanes: Any) -> Any:
    return np.where(np.isnan(lanes[..., -1]), lanes[..., -1], value)


@derived(np.median)
def _median(
    a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
    keepdims: bool = False,
) -> Any:  # fmt: skip
    lanes, axes = _lanes(a, axis)
    n = lanes.shape[-1]
    if n == 0:
        return np.sum(a, axes, keepdims=keepdims)
    value = _or_nan((lanes[..., (n - 1) // 2] + lanes[..., n // 2]) / 2, lanes)
    return np.expand_dims(value, axes) if keepdims else value


@derived(np.nanmedian)
def _nanmedian(
    a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
    keepdims: bool = False,
) -> Any:  # fmt: skip
    """NaN is sorted after all numbers: take the middle of those."""
    lanes, axes = _lanes(a, axis)
    if lanes.shape[-1] == 0:
        return np.sum(a, axes, keepdims=keepdims)
    known = np.sum(~np.isnan(lanes), -1, keepdims=True)
    places = np.concatenate([np.maximum(known - 1, 0) // 2, known // 2], -1)
    value = np.mean(np.take_along_axis(lanes, places, -1), -1)
    return np.expand_dims(value, axes) if keepdims else value


@derived(np.quantile)
def _quantile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
    method: str = "linear", keepdims: bool = False,
) -> Any:  # fmt: skip
    """Go from one element to the next in a straight line, or take one of the two, or their mean."""
    lanes, axes = _lanes(a, axis)
    place = array(q) * (lanes.shape[-1] - 1)
    part = place - np.floor(place)
    if method in ("lower", "higher", "midpoint"):
        part = {"lower": 0.0, "higher": 1.0, "midpoint": 0.5}[method] * np.ceil(part)
    elif method != "linear":
        raise LookupError(f"no gradient of quantile with method={method!r}")
    low, high = (lanes[..., f(place).astype(int)] for f in (np.floor, np.ceil))
    q_axes = range(lanes.ndim - 1, low.ndim)
    value = np.moveaxis(low * (1 - part) + high * part, q_axes, range(np.ndim(q)))
    value = _or_nan(value, lanes)
    return np.expand_dims(value, tuple(i + np.ndim(q) for i in axes)) if keepdims else value


@derived(np.percentile)
def _percentile(a: Any, q: Any, *args: Any, **kwargs: Any) -> Any:
    return _quantile(a, array(q) / 100, *args, **kwargs)


define(np.sort, _sort)
define(np.partition, _partition)

no_gradients(
    np.all, np.any, np.argmax, np.argmin, np.argsort, np.argpartition, np.lexsort,
    np.nanargmax, np.nanargmin, np.count_nonzero,
    np.nonzero, np.flatnonzero, np.argwhere, np.searchsorted, np.digitize, np.linalg.matrix_rank,
    np.array_equal, np.allclose,
)  # fmt: skip
