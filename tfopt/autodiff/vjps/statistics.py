"""Moments, order statistics and correlations: NumPy's values with gradients of compositions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt.autodiff.backward import conj
from tfopt.autodiff.operands import array_operand as operand
from tfopt.autodiff.ops import method
from tfopt.autodiff.vjps.arguments import axes_of, only_read
from tfopt.autodiff.vjps.composed import composed
from tfopt.autodiff.vjps.reductions import count, how_many, masked

_UNSET: Any = np._NoValue

# ---- moments


def _average(a: Any, axis: Any, weights: Any, returned: Any, keepdims: Any) -> Any:
    a = operand(a)
    axis = axis if axis is None else tuple(axes_of(a, axis))
    weights = np.ones(a.shape) if weights is None else operand(weights)
    if weights.shape != a.shape:
        axes = axes_of(a, axis)
        weights = np.transpose(weights, np.argsort(axes))
        weights = np.expand_dims(weights, [k for k in range(a.ndim) if k not in axes])
    weights = np.broadcast_to(weights, a.shape)
    total = np.sum(weights, axis=axis, keepdims=keepdims)
    made = np.sum(a * weights, axis=axis, keepdims=keepdims) / total
    return (made, total) if returned else made


def _var(a: Any, axis: Any, dtype: Any, ddof: Any, keepdims: Any, where: Any, mean: Any,
         correction: Any) -> Any:  # fmt: skip
    """Return the mean square of what elements are away from their mean."""
    a = operand(a)
    a = masked(a, where, 0, None if np.iscomplexobj(a) else dtype)
    if mean is None:
        mean = np.sum(a, axis=axis, keepdims=True) / how_many(a, axis, True, where)
    away = a - mean
    squares = away * away if a.dtype.kind in "fiu" else np.real(away * conj(away))
    total = np.sum(masked(squares, where, 0), axis=axis, keepdims=keepdims)
    ddof = operand(ddof if correction is None else correction)
    return total / np.maximum(how_many(a, axis, keepdims, where) - ddof, 0)


def _std(a: Any, axis: Any, dtype: Any, ddof: Any, keepdims: Any, where: Any, mean: Any,
         correction: Any) -> Any:  # fmt: skip
    """Return the root of the variance, with no slope where that is 0, as a norm."""
    made = _var(a, axis, dtype, ddof, keepdims, where, mean, correction)
    return np.where(made == 0, 0, np.sqrt(np.where(made == 0, 1, made)))


composed(np.average, _average)
for _moment, _composition in ((np.var, _var), (np.std, _std)):
    composed(_moment, _composition)

    def _method(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0,
                keepdims: Any = False, *, where: Any = True, mean: Any = _UNSET,
                moment: Any = _moment) -> Any:  # fmt: skip
        return moment(a, axis, dtype, out, ddof, keepdims, where=where, mean=mean)

    method(_moment.__name__)(_method)
composed(
    np.ptp,
    lambda a, axis, keepdims: np.max(a, axis, keepdims=keepdims) - np.min(
        a, axis, keepdims=keepdims),
    methods=["ptp"],
)  # fmt: skip

# ---- orders


def _lanes(a: Any, axis: Any) -> tuple[Any, tuple[int, ...]]:
    """Return what lies along axes, sorted, as the last axis, and the axes."""
    a = operand(a)
    axes = sorted(axes_of(a, axis))
    rest = [k for k in range(a.ndim) if k not in axes]
    moved = np.transpose(a, rest + axes)
    shape = (*(a.shape[k] for k in rest), count(a, axis))
    return np.sort(np.reshape(moved, shape), axis=-1), tuple(axes)


def _nan_if_any(made: Any, lanes: Any) -> Any:
    return np.where(np.isnan(lanes[..., -1]), lanes[..., -1], made) if lanes.shape[-1] else made


def _median(a: Any, axis: Any, keepdims: Any) -> Any:
    lanes, axes = _lanes(a, axis)
    n = lanes.shape[-1]
    if n:
        made = _nan_if_any((lanes[..., (n - 1) // 2] + lanes[..., n // 2]) / 2, lanes)
    else:
        made = np.sum(lanes, axis=-1)
    return np.expand_dims(made, axes) if keepdims else made


def _nanmedian(a: Any, axis: Any, keepdims: Any) -> Any:
    """Return the middle of the sorted elements that are no NaN, which is last."""
    lanes, axes = _lanes(a, axis)
    known = np.sum(~np.isnan(lanes), axis=-1, keepdims=True)
    places = np.concatenate([np.maximum(known - 1, 0) // 2, known // 2], axis=-1)
    of_some = np.take_along_axis(lanes, places, -1) if lanes.shape[-1] else lanes
    made = np.sum(of_some, axis=-1) / 2
    return np.expand_dims(made, axes) if keepdims else made


def _quantile(a: Any, q: Any, axis: Any, method: Any, keepdims: Any) -> Any:
    """Return what lies between the neighbours of a place among the sorted elements."""
    if method not in ("linear", "lower", "higher", "midpoint"):
        raise LookupError(f"no gradient of quantile with method={method!r}")
    lanes, axes = _lanes(a, axis)
    place = operand(q) * (lanes.shape[-1] - 1)
    below = np.floor(place)
    between = {"linear": place - below, "lower": 0.0 * below, "higher": np.ceil(place) - below,
               "midpoint": (np.ceil(place) - below) / 2}[method]  # fmt: skip
    low, high = lanes[..., below.astype(int)], lanes[..., np.ceil(place).astype(int)]
    made = low * (1 - between) + high * between
    made = np.moveaxis(made, range(lanes.ndim - 1, made.ndim), range(np.ndim(q)))
    made = _nan_if_any(made, lanes)
    return np.expand_dims(made, tuple(k + np.ndim(q) for k in axes)) if keepdims else made


composed(np.median, _median)
composed(np.nanmedian, _nanmedian)
composed(np.quantile, _quantile)
composed(
    np.percentile,
    lambda a, q, axis, method, keepdims: _quantile(a, operand(q) / 100, axis, method, keepdims),
)
for _function in (np.median, np.nanmedian, np.quantile, np.percentile):
    only_read(_function, "overwrite_input", False)

# ---- correlations


def _cov(m: Any, y: Any, rowvar: Any, bias: Any, ddof: Any, fweights: Any, aweights: Any,
         dtype: Any) -> Any:  # fmt: skip
    """Return the covariances of rows."""
    if dtype is None:
        given = [operand(x).dtype for x in (m, y) if x is not None]
        dtype = np.result_type(np.float64, *given)
    rows = np.atleast_2d(operand(m)).astype(dtype)
    if not rowvar and np.ndim(m) != 1:
        rows = rows.T
    if not rows.shape[0]:
        return rows[:, :0]
    if y is not None:
        rows = np.concatenate([rows, _rows(y, rowvar).astype(dtype)], axis=0)
    ddof = (0 if bias else 1) if ddof is None else ddof
    weights: Any = np.ones(rows.shape[1])
    for each in (fweights, aweights):
        weights = weights if each is None else weights * each
    total = np.sum(weights)
    lost = ddof if aweights is None else ddof * np.sum(weights * aweights) / total
    away = rows - (np.sum(rows * weights, axis=1) / total)[:, None]
    return np.squeeze((away * weights) @ conj(away.T) / (total - lost))


def _rows(m: Any, rowvar: Any) -> Any:
    m = np.atleast_2d(operand(m))
    return m if rowvar or m.shape[0] == 1 else m.T


def _corrcoef(x: Any, y: Any, rowvar: Any, dtype: Any) -> Any:
    """Return the correlations of rows: real and imaginary parts are clipped to [-1, 1]."""
    c = _cov(x, y, rowvar, False, None, None, None, dtype)
    if c.ndim == 0:
        return c / c
    spread = np.sqrt(np.real(np.diag(c)))
    made = c / spread[:, None] / spread[None, :]
    if np.iscomplexobj(made):
        return np.clip(made.real, -1, 1) + 1j * np.clip(made.imag, -1, 1)
    return np.clip(made, -1, 1)


composed(np.cov, _cov)
composed(np.corrcoef, _corrcoef)
