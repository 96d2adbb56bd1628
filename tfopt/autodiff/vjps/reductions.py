"""Rules of sums, extremes, scans and orders."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tfopt.autodiff.backward import conj, spread
from tfopt.autodiff.core import Op, apply
from tfopt.autodiff.ops import REDUCTIONS, implements, method, without_rule
from tfopt.autodiff.ops import array_operand as operand

_UNSET: Any = np._NoValue
Axis = int | tuple[int, ...] | None
# typed for fewer arguments than they take
_ADD: Any = np.add.reduce
_LOGADDEXP: Any = np.logaddexp.reduce
_MAXIMUM: Any = np.maximum.reduce
_MINIMUM: Any = np.minimum.reduce


def _reduced(op: Op, function: Any, a: Any, axis: Any, keepdims: Any, *others: Any) -> Any:
    """Carry a reduction out, with a rule if nothing unusual is asked for.

    `others` are NumPy's arguments dtype, out, initial and where, as far as it takes them.
    """
    for value in others:
        if value is not None and value is not _UNSET:
            return _unusual(op.name, function, a, axis, keepdims, others)
    if isinstance(axis, list):
        axis = tuple(axis)
    a = operand(a)
    if keepdims is _UNSET or not keepdims:
        return apply(op, (a,), None if axis is None else {"axis": axis})
    return apply(op, (a,), {"axis": axis, "keepdims": True})


def _unusual(
    name: str, function: Any, a: Any, axis: Any, keepdims: Any, others: tuple[Any, ...]
) -> Any:
    given = {"axis": axis, "keepdims": keepdims}
    given.update(zip(("dtype", "out", "initial", "where"), others, strict=True))
    kwargs = {k: v for k, v in given.items() if v is not _UNSET and v is not None}
    return without_rule(name, function, (a,), kwargs)


def count(a: Any, axis: Axis) -> int:
    """Return how many elements a reduction over axes puts together."""
    if axis is None:
        return math.prod(a.shape)
    return math.prod([a.shape[k] for k in (axis if isinstance(axis, tuple) else (axis,))])


# ---- sums


def _sum(a: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    return _ADD(a, axis=axis, keepdims=keepdims)


def _mean(a: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    if a.dtype.char not in "fdFD":
        return np.mean(a, axis=axis, keepdims=keepdims)
    return _ADD(a, axis=axis, keepdims=keepdims) / a.dtype.type(count(a, axis))


SUM = Op("sum", _sum)
SUM.define(lambda g, y, a, axis=None, keepdims=False: spread(g, a, axis, keepdims))
MEAN = Op("mean", _mean)
MEAN.define(
    lambda g, y, a, axis=None, keepdims=False: spread(g / count(a, axis), a, axis, keepdims)
)


@implements(np.sum)
@method("sum")
def sum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = _UNSET,
        initial: Any = _UNSET, where: Any = _UNSET) -> Any:  # fmt: skip
    """Sum over axes."""
    if dtype is not None:
        a, dtype = operand(a).astype(dtype), None
    return _reduced(SUM, np.sum, a, axis, keepdims, None, out, initial, where)


@implements(np.mean)
@method("mean")
def mean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = _UNSET, *,
         where: Any = _UNSET) -> Any:  # fmt: skip
    """Average over axes."""
    if dtype is not None:
        a, dtype = operand(a).astype(dtype), None
    return _reduced(MEAN, np.mean, a, axis, keepdims, None, out, _UNSET, where)


@implements(np.average)
def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *,
            keepdims: Any = _UNSET) -> Any:  # fmt: skip
    """Average over axes, weighted."""
    keep = False if keepdims is _UNSET else keepdims
    a = operand(a)
    if weights is None:
        made = np.mean(a, axis=axis, keepdims=keep)
        total = np.full_like(made, a.size / max(made.size, 1)) if returned else None
    else:
        weights = operand(weights)
        if weights.shape != a.shape:
            shape = [1] * a.ndim
            shape[axis] = a.shape[axis]
            weights = np.broadcast_to(np.reshape(weights, shape), a.shape)
        total = np.sum(weights, axis=axis, keepdims=keep)
        made = np.sum(a * weights, axis=axis, keepdims=keep) / total
    return (made, total) if returned else made


@implements(np.var)
@method("var")
def var(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0,
        keepdims: Any = _UNSET, **others: Any) -> Any:  # fmt: skip
    """Return the variance."""
    others = {k: v for k, v in others.items() if v is not _UNSET}
    if others or out is not None:
        return without_rule("var", np.var, (a, axis, dtype, out, ddof), others)
    a = operand(a) if dtype is None else operand(a).astype(dtype)
    away = a - np.mean(a, axis=axis, keepdims=True)
    squares = np.real(away * conj(away)) if np.iscomplexobj(away) else away * away
    total = np.sum(squares, axis=axis, keepdims=False if keepdims is _UNSET else keepdims)
    return total / max(count(a, axis) - ddof, 0)


@implements(np.std)
@method("std")
def std(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0,
        keepdims: Any = _UNSET, **others: Any) -> Any:  # fmt: skip
    """Return the standard deviation."""
    others = {k: v for k, v in others.items() if v is not _UNSET}
    if others or out is not None:
        return without_rule("std", np.std, (a, axis, dtype, out, ddof), others)
    return np.sqrt(np.var(a, axis=axis, dtype=dtype, ddof=ddof, keepdims=keepdims))


def _logsumexp(a: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    return _LOGADDEXP(a, axis=axis, keepdims=keepdims)


LOGSUMEXP = Op("logaddexp.reduce", _logsumexp)
LOGSUMEXP.define(
    (
        lambda g, y, a, axis=None, keepdims=False: (
            _aligned(g, a, axis, keepdims) * np.exp(a - _aligned(y, a, axis, keepdims))
        ),
        "ay",
    )
)


def logsumexp(a: Any, axis: Any = None, dtype: Any = None, out: Any = None,
              keepdims: Any = _UNSET, initial: Any = _UNSET,
              where: Any = _UNSET) -> Any:  # fmt: skip
    """Return the logarithm of a sum of exponentials: ``np.logaddexp.reduce``."""
    name = np.logaddexp.reduce
    return _reduced(LOGSUMEXP, name, a, axis, keepdims, dtype, out, initial, where)


REDUCTIONS[np.logaddexp] = logsumexp


def _axes(a: Any, axis: Axis) -> list[int]:
    """Return the axes of a reduction, counted from the first."""
    if axis is None:
        return list(range(a.ndim))
    return [k % a.ndim for k in (axis if isinstance(axis, tuple) else (axis,))]


# ---- products


def _before(x: Any) -> Any:
    """Return the product of all elements before each, along the last axis."""
    ones = np.ones_like(x[..., :1])
    return np.cumprod(np.concatenate([ones, x[..., :-1]], axis=-1), axis=-1)


def _product_rule(g: Any, y: Any, a: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """Multiply by the product of the others, which is right for zeros, too."""
    axes = _axes(a, axis)
    order = [k for k in range(a.ndim) if k not in axes] + axes
    moved = np.transpose(a, order)
    rest = moved.shape[: a.ndim - len(axes)]
    flat = np.reshape(moved, (*rest, count(a, axis)))
    others = _before(flat) * _before(flat[..., ::-1])[..., ::-1]
    others = np.transpose(np.reshape(others, moved.shape), np.argsort(order))
    return spread(g, a, axis, keepdims) * conj(others)


PROD = Op("prod", lambda a, axis=None, keepdims=False: np.prod(a, axis=axis, keepdims=keepdims))
PROD.define((_product_rule, "a"))


@implements(np.prod)
@method("prod")
def prod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = _UNSET,
         initial: Any = _UNSET, where: Any = _UNSET) -> Any:  # fmt: skip
    """Multiply over axes."""
    return _reduced(PROD, np.prod, a, axis, keepdims, dtype, out, initial, where)


# ---- extremes


def _extreme_rule(g: Any, y: Any, a: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """Split evenly between equal extremes."""
    chosen = a == _aligned(y, a, axis, keepdims)
    ties = _ADD(chosen, axis=axis, dtype=a.dtype, keepdims=True)
    return chosen * (_aligned(g, a, axis, keepdims) / ties)


def _aligned(y: Any, a: Any, axis: Axis, keepdims: bool) -> Any:
    """Return a reduction's result with the axes that were reduced, so that it broadcasts."""
    if keepdims or axis is None:
        return y
    axes = _axes(a, axis)
    return y.reshape([1 if k in axes else n for k, n in enumerate(a.shape)])


def _max(a: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    return _MAXIMUM(a, axis=axis, keepdims=keepdims)


def _min(a: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    return _MINIMUM(a, axis=axis, keepdims=keepdims)


MAX, MIN = Op("max", _max), Op("min", _min)
MAX.define((_extreme_rule, "ay"))
MIN.define((_extreme_rule, "ay"))


@implements(np.max, np.amax)
@method("max")
def max_(a: Any, axis: Any = None, out: Any = None, keepdims: Any = _UNSET, initial: Any = _UNSET,
         where: Any = _UNSET) -> Any:  # fmt: skip
    """Return the largest elements."""
    return _reduced(MAX, np.max, a, axis, keepdims, None, out, initial, where)


@implements(np.min, np.amin)
@method("min")
def min_(a: Any, axis: Any = None, out: Any = None, keepdims: Any = _UNSET, initial: Any = _UNSET,
         where: Any = _UNSET) -> Any:  # fmt: skip
    """Return the smallest elements."""
    return _reduced(MIN, np.min, a, axis, keepdims, None, out, initial, where)


@implements(np.ptp)
def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = _UNSET) -> Any:
    """Return the largest minus the smallest."""
    return max_(a, axis, out, keepdims) - min_(a, axis, out, keepdims)


# ---- scans


def _reverse_cumsum(g: Any, axis: int) -> Any:
    return np.flip(np.cumsum(np.flip(g, axis), axis=axis), axis)


CUMSUM = Op("cumsum", lambda a, axis: np.cumsum(a, axis=axis, dtype=a.dtype))
CUMSUM.define(lambda g, y, a, axis: _reverse_cumsum(g, axis))


@implements(np.cumsum)
@method("cumsum")
def cumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """Return the sums of all elements up to each."""
    if dtype is not None or out is not None or operand(a).dtype.kind in "biu":
        return without_rule("cumsum", np.cumsum, (a, axis, dtype, out), {})
    a = operand(a)
    return apply(CUMSUM, (np.ravel(a) if axis is None else a,), {"axis": axis or 0})


def _cumprod_rule(g: Any, y: Any, a: Any, axis: int) -> Any:
    """Go back along the axis: exact, for zeros, too.

    The gradient of an element is the product of those before it, times what reaches it from all
    results after it.
    """
    x, g = np.moveaxis(conj(a), axis, -1), np.moveaxis(g, axis, -1)
    reach = [g[..., -1]]
    for k in range(x.shape[-1] - 2, -1, -1):
        reach.append(g[..., k] + x[..., k + 1] * reach[-1])
    return np.moveaxis(_before(x) * np.stack(reach[::-1], axis=-1), -1, axis)


CUMPROD = Op("cumprod", lambda a, axis: np.cumprod(a, axis=axis, dtype=a.dtype))
CUMPROD.define((_cumprod_rule, "a"))


@implements(np.cumprod)
@method("cumprod")
def cumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """Return the products of all elements up to each."""
    a = operand(a)
    if dtype is not None or out is not None or a.dtype.kind in "biu" or a.size == 0:
        return without_rule("cumprod", np.cumprod, (a, axis, dtype, out), {})
    return apply(CUMPROD, (np.ravel(a) if axis is None else a,), {"axis": axis or 0})


@implements(np.diff)
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = _UNSET, append: Any = _UNSET) -> Any:
    """Return the differences of neighbours."""
    if prepend is not _UNSET or append is not _UNSET:
        return without_rule("diff", np.diff, (a, n, axis, prepend, append), {})
    made = np.moveaxis(operand(a), axis, -1)
    for _ in range(n):
        made = made[..., 1:] - made[..., :-1]
    return np.moveaxis(made, -1, axis)


# ---- orders


def _sort_rule(g: Any, y: Any, a: Any, axis: int) -> Any:
    place = np.argsort(a, axis=axis, kind="stable")
    return np.take_along_axis(g, np.argsort(place, axis=axis), axis=axis)


SORT = Op("sort", lambda a, axis: np.sort(a, axis=axis, kind="stable"))
SORT.define((_sort_rule, "a"))


@implements(np.sort)
@method("sort")
def sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    """Sort along an axis; equal elements keep their order."""
    a = operand(a)
    return apply(
        SORT, (np.ravel(a) if axis is None else a,), {"axis": -1 if axis is None else axis}
    )


@implements(np.median)
def median(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False,
           keepdims: bool = False) -> Any:  # fmt: skip
    """Return the median: the middle of the sorted elements."""
    a = operand(a)
    if out is not None or a.size == 0:
        return without_rule("median", np.median, (a, axis, out, overwrite_input, keepdims), {})
    axes = _axes(a, axis)
    rest = [k for k in range(a.ndim) if k not in axes]
    n = int(np.prod([a.shape[k] for k in axes]))
    moved = np.reshape(np.transpose(a, rest + axes), (*(a.shape[k] for k in rest), n))
    ordered = np.sort(moved, axis=-1)
    made = (ordered[..., (n - 1) // 2] + ordered[..., n // 2]) / 2
    return np.expand_dims(made, tuple(sorted(axes))) if keepdims else made


@implements(np.partition)
def partition(
    a: Any, kth: Any, axis: Any = -1, kind: str = "introselect", order: Any = None
) -> Any:
    """Sort, which puts every element where a partition may have it."""
    return sort(a, axis)


method("all")(lambda x, *args, **kwargs: np.all(x, *args, **kwargs))
method("any")(lambda x, *args, **kwargs: np.any(x, *args, **kwargs))
method("argmax")(lambda x, *args, **kwargs: np.argmax(x, *args, **kwargs))
method("argmin")(lambda x, *args, **kwargs: np.argmin(x, *args, **kwargs))
method("argsort")(lambda x, *args, **kwargs: np.argsort(x, *args, **kwargs))
method("nonzero")(lambda x: np.nonzero(x))
