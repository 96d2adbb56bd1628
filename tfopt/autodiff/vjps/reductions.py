"""Rules of sums, extremes, scans and orders."""

from __future__ import annotations

import math
from inspect import signature
from typing import Any

import numpy as np

from tfopt.autodiff.backward import conj, spread
from tfopt.autodiff.expressions import Call, reduction
from tfopt.autodiff.operands import array_operand as operand
from tfopt.autodiff.ops import FUNCTIONS, REDUCTIONS, implements, method
from tfopt.autodiff.vjps.arguments import axes_of, axis_of, parameters
from tfopt.autodiff.vjps.composed import composed, constant_of, with_gradients_of
from tfopt.core.engine import Op, Operand, apply

_UNSET: Any = np._NoValue
Axis = int | tuple[int, ...] | None
# typed for fewer arguments than they take
_ADD: Any = np.add.reduce
_LOGADDEXP: Any = np.logaddexp.reduce
_MAXIMUM: Any = np.maximum.reduce
_MINIMUM: Any = np.minimum.reduce


def _reducer(op: Op, function: Any, first: Axis = None, *others: Any) -> Any:
    """Return the handler of a reduction: by its own rule, if nothing unusual is asked for.

    Without an axis it takes the `first`. Its signature is NumPy's, unless `others` say one.
    """

    def handler(a: Any, axis: Any = first, *args: Any, keepdims: Any = _UNSET, **kw: Any) -> Any:
        usual = keepdims is _UNSET or keepdims is False or keepdims is True
        if args or kw or not usual:
            accepted = signature(*others) if others else parameters(function)
            named = kw if keepdims is _UNSET else {"keepdims": keepdims, **kw}
            (_, a), *given = accepted.bind(a, axis, *args, **named).arguments.items()
            asked = {k: v for k, v in given if v is not accepted.parameters[k].default}
            axis, keepdims = asked.pop("axis", first), asked.get("keepdims", False)
            if asked.keys() - {"keepdims"} or type(keepdims) is not bool:
                return with_gradients_of(_UNUSUAL[op], function, (operand(a), axis), asked, op.name)
        known = {} if axis is None else {"axis": axis}
        return apply(
            op, (operand(a),), {**known, "keepdims": True} if keepdims is True else known or None
        )

    return handler


def _of_ufunc(array: Any, axis: Any = 0, dtype: Any = None, out: Any = None,
              keepdims: Any = False, initial: Any = _UNSET, where: Any = True) -> Any:  # fmt: skip
    """The arguments of ``ufunc.reduce``."""


def _question(ufunc: np.ufunc) -> Any:
    """Return ``ufunc.reduce`` of what has no gradient."""
    return lambda array, **kwargs: constant_of(ufunc.reduce, array, **kwargs)


def masked(a: Any, where: Any, fill: Any, dtype: Any = None) -> Any:
    """Return an array with the identity of a reduction wherever a mask is False."""
    a = a if dtype is None else a.astype(dtype)
    return a if where is True else np.where(mask_of(where), a, fill)


def mask_of(where: Any) -> Any:
    """Return `where` as the boolean array that NumPy makes of it."""
    return where if isinstance(where, Operand) else np.asarray(where, bool)


def how_many(a: Any, axis: Any, keepdims: bool, where: Any) -> Any:
    """Return how many elements a reduction combines under a mask."""
    if where is True:
        return count(a, axis)
    where = 0 if where is None else where
    return np.sum(np.broadcast_to(where, a.shape), axis=axis, keepdims=keepdims)


def count(a: Any, axis: Any) -> int:
    """Return how many elements a reduction over axes combines."""
    return math.prod([a.shape[k] for k in axes_of(a, axis)])


def _spread(g: Any, a: Any, axis: Any, keepdims: bool) -> Any:
    """Return a gradient over the axes that were reduced; a scalar has none."""
    return spread(g, a, axis if a.ndim else None, keepdims)


# ---- sums


def _sum(a: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    return _ADD(a, axis=axis, keepdims=keepdims)


_AXES = (int, tuple, type(None))


def _mean(a: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    if type(axis) not in _AXES or a.dtype.char not in "fdFD" or not a.ndim:
        return np.mean(a, axis=axis, keepdims=keepdims)
    n = a.dtype.type(count(a, axis))  # before the sum, as NumPy: their errors differ
    return _ADD(a, axis=axis, keepdims=keepdims) / n


def _mean_expression(call: Call) -> str | None:
    x = call.node.ins[0]
    if x.dtype.char not in "fdFD" or not x.ndim:
        return None
    return f"{_total(call)} / {int(count(x, call.kw.get('axis')))}"


_total = reduction(_ADD, "add_reduce")
SUM = Op("sum", _sum, expression=_total)
SUM.define(lambda g, y, a, axis=None, keepdims=False: _spread(g, a, axis, keepdims))
MEAN = Op("mean", _mean, expression=_mean_expression)
MEAN.define(
    lambda g, y, a, axis=None, keepdims=False: _spread(g / count(a, axis), a, axis, keepdims)
)


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


# ---- products


def _before(x: Any) -> Any:
    """Return the product of all elements before each, along the last axis."""
    ones = np.ones_like(x[..., :1])
    return np.cumprod(np.concatenate([ones, x[..., :-1]], axis=-1), axis=-1)


def _product_rule(g: Any, y: Any, a: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """Multiply by the product of the others, which is right for zeros, too."""
    axes = axes_of(a, axis)
    order = [k for k in range(a.ndim) if k not in axes] + axes
    moved = np.transpose(a, order)
    rest = moved.shape[: a.ndim - len(axes)]
    flat = np.reshape(moved, (*rest, count(a, axis)))
    others = _before(flat) * _before(flat[..., ::-1])[..., ::-1]
    others = np.transpose(np.reshape(others, moved.shape), np.argsort(order))
    return _spread(g, a, axis, keepdims) * conj(others)


PROD = Op("prod", lambda a, axis=None, keepdims=False: np.prod(a, axis=axis, keepdims=keepdims))
PROD.define((_product_rule, "a"))


# ---- extremes


def _extreme_rule(g: Any, y: Any, a: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """Split evenly between equal extremes."""
    chosen = a == _aligned(y, a, axis, keepdims)
    ties = _ADD(chosen.astype(a.dtype), axis=axis, keepdims=True)
    return chosen * (_aligned(g, a, axis, keepdims) / ties)


def _aligned(y: Any, a: Any, axis: Axis, keepdims: bool) -> Any:
    """Return a reduction's result with the axes that were reduced, so that it broadcasts."""
    if keepdims or axis is None or not a.ndim:
        return y
    axes = axes_of(a, axis)
    return y.reshape([1 if k in axes else n for k, n in enumerate(a.shape)])


def _max(a: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    return _MAXIMUM(a, axis=axis, keepdims=keepdims)


def _min(a: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    return _MINIMUM(a, axis=axis, keepdims=keepdims)


MAX = Op("max", _max, expression=reduction(_MAXIMUM, "maximum_reduce"))
MIN = Op("min", _min, expression=reduction(_MINIMUM, "minimum_reduce"))
MAX.define((_extreme_rule, "ay"))
MIN.define((_extreme_rule, "ay"))


def _joined_with(function: Any, nothing: float, join: np.ufunc) -> Any:
    """Return a reduction of unmasked elements and the initial value."""

    def composition(a: Any, axis: Any, dtype: Any = None, keepdims: Any = False,
                    initial: Any = None, where: Any = True) -> Any:  # fmt: skip
        made = function(masked(a, where, nothing, dtype), axis=axis, keepdims=bool(keepdims))
        return made if initial is None else join(made, initial)

    return composition


def _mean_of(a: Any, axis: Any, dtype: Any = None, keepdims: Any = False,
             where: Any = True) -> Any:  # fmt: skip
    total = np.sum(masked(a, where, 0, dtype), axis=axis, keepdims=bool(keepdims))
    return total / how_many(a, axis, bool(keepdims), where)


def _extreme_of(function: Any) -> Any:
    """Return the mean of those elements that are the extreme, which is it.

    There are none where `initial` is more extreme.
    """

    def composition(a: Any, axis: Any, dtype: Any = None, keepdims: Any = False,
                    initial: Any = _UNSET, where: Any = True) -> Any:  # fmt: skip
        a = a if dtype is None else a.astype(dtype)
        y = constant_of(function, a, axis=axis, keepdims=True, initial=initial, where=where)
        chosen = np.logical_and(a == y, mask_of(where))
        ties = np.sum(chosen, axis=axis, keepdims=True)
        ties = np.where(np.isnan(y), ties, np.maximum(ties, 1))
        return np.sum(a * chosen / ties, axis=axis, keepdims=bool(keepdims))

    return composition


#: What reductions are with `dtype`, `initial` and `where`.
_UNUSUAL: dict[Op, Any] = {
    SUM: _joined_with(np.sum, 0, np.add), PROD: _joined_with(np.prod, 1, np.multiply),
    LOGSUMEXP: _joined_with(_LOGADDEXP, -np.inf, np.logaddexp), MEAN: _mean_of,
    MAX: _extreme_of(np.max), MIN: _extreme_of(np.min),
}  # fmt: skip

for _function, _op in ((np.sum, SUM), (np.mean, MEAN), (np.prod, PROD), (np.max, MAX),
                       (np.min, MIN)):  # fmt: skip
    method(_function.__name__)(implements(_function)(_reducer(_op, _function)))
FUNCTIONS.update({np.amax: FUNCTIONS[np.max], np.amin: FUNCTIONS[np.min]})
for _ufunc, _op in ((np.add, SUM), (np.multiply, PROD), (np.maximum, MAX), (np.minimum, MIN),
                    (np.logaddexp, LOGSUMEXP)):  # fmt: skip
    REDUCTIONS[_ufunc] = _reducer(_op, _ufunc.reduce, 0, _of_ufunc)
REDUCTIONS.update({_ask: _question(_ask) for _ask in (np.logical_and, np.logical_or)})

# ---- scans


def _reverse_cumsum(g: Any, axis: int) -> Any:
    return np.flip(np.cumsum(np.flip(g, axis), axis=axis), axis)


def _cumprod_rule(g: Any, y: Any, a: Any, axis: int) -> Any:
    """Go back along the axis: exact, for zeros, too.

    The gradient of an element is the product of those before it, times what reaches it from all
    results after it.
    """
    x, g = np.moveaxis(conj(a), axis, -1), np.moveaxis(g, axis, -1)
    if not x.shape[-1]:
        return np.moveaxis(g, -1, axis)
    reach = [g[..., -1]]
    for k in range(x.shape[-1] - 2, -1, -1):
        reach.append(g[..., k] + x[..., k + 1] * reach[-1])
    return np.moveaxis(_before(x) * np.stack(reach[::-1], axis=-1), -1, axis)


def _scan(function: Any, *rule: Any) -> Any:
    """Return the handler of a scan, which is an operation unless something unusual is asked for."""
    name = function.__name__
    op = Op(name, lambda a, axis: function(a, axis=axis, dtype=a.dtype))
    op.define(*rule)

    def converted(a: Any, axis: Any, dtype: Any, out: None) -> Any:
        return function(a.astype(dtype), axis)

    def handler(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        a = operand(a)
        if dtype is not None or out is not None or a.dtype.kind in "biu":
            return with_gradients_of(converted, function, (a, axis, dtype, out), {})
        a = np.ravel(a) if axis is None or not a.ndim else a  # a scalar as a vector, as NumPy
        return apply(op, (a,), {"axis": 0 if axis is None else axis})

    return method(name)(implements(function)(handler))


cumsum = _scan(np.cumsum, lambda g, y, a, axis: _reverse_cumsum(g, axis))
cumprod = _scan(np.cumprod, (_cumprod_rule, "a"))

# ---- orders


def _sort_rule(g: Any, y: Any, a: Any, axis: Any) -> Any:
    axis = axis_of(a, axis)
    place = np.argsort(a, axis=axis, kind="stable")
    return np.take_along_axis(g, np.argsort(place, axis=axis), axis=axis)


def _sort(a: Any, axis: int, kind: Any = None, stable: Any = None) -> Any:
    return np.sort(a, axis=axis, kind=kind, stable=stable)


SORT = Op("sort", _sort)
SORT.define((lambda g, y, a, axis, kind=None, stable=None: _sort_rule(g, y, a, axis), "a"))


@implements(np.sort)
@method("sort")
def sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    """Sort along an axis."""
    a = operand(a)
    if order is not None:
        return constant_of(np.sort, a, axis, kind, order, stable=stable)  # of fields: an error
    a, axis = (np.ravel(a), -1) if axis is None else (a, axis)
    return apply(SORT, (a,), {"axis": axis, "kind": kind, "stable": stable})


def _partition(a: Any, kth: Any, axis: Any, kind: Any) -> Any:
    a, axis = (np.ravel(a), -1) if axis is None else (a, int(axis))
    return np.take_along_axis(a, np.argpartition(a, kth, axis, kind), axis)


composed(np.partition, _partition)


for _asked in (np.all, np.any, np.argmax, np.argmin, np.argsort):
    method(_asked.__name__)(lambda x, *args, f=_asked, **kwargs: f(x, *args, **kwargs))
method("nonzero")(lambda x: np.nonzero(x))
