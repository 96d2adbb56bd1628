"""Differences, integrals and convolutions of samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt.autodiff.backward import call, conj
from tfopt.autodiff.operands import array_operand as operand
from tfopt.autodiff.operands import as_tensor
from tfopt.autodiff.vjps.arguments import axes_of, axis_of
from tfopt.autodiff.vjps.composed import composed, constant_of
from tfopt.core.engine import Op, apply


def _diff(a: Any, n: Any, axis: Any, prepend: Any, append: Any) -> Any:
    a = operand(a)
    if n == 0:
        return a
    axis = axis_of(a, axis)
    parts = [_edge(prepend, a, axis), a, _edge(append, a, axis)]
    made = np.moveaxis(np.concatenate([x for x in parts if x is not None], axis), axis, -1)
    for _ in range(n):
        made = made[..., 1:] - made[..., :-1]
    return np.moveaxis(made, -1, axis)


def _edge(value: Any, a: Any, axis: int) -> Any:
    if value is np._NoValue:
        return None
    if np.ndim(value):
        return operand(value)
    return np.broadcast_to(value, [1 if k == axis else n for k, n in enumerate(a.shape)])


def _ediff1d(ary: Any, to_end: Any, to_begin: Any) -> Any:
    flat = np.ravel(ary)
    parts = [to_begin, flat[1:] - flat[:-1], to_end]
    return np.concatenate([np.ravel(x).astype(flat.dtype) for x in parts if x is not None])


def _unwrap(p: Any, *args: Any, **kwargs: Any) -> Any:
    """Add multiples of the period, which are constant."""
    return p + (constant_of(np.unwrap, p, *args, **kwargs) - constant_of(np.copy, p))


# ---- slopes


def _gradient(f: Any, varargs: Any, axis: Any, edge_order: Any) -> Any:
    f = operand(f)
    axes = axes_of(f, axis)
    spaces = varargs * len(axes) if len(varargs) == 1 else varargs or (1.0,) * len(axes)
    made = tuple(_slopes(f, h, k, edge_order) for h, k in zip(spaces, axes, strict=True))
    return made if len(made) > 1 else made[0]


def _slopes(f: Any, h: Any, axis: int, edge_order: int) -> Any:
    f, h = np.moveaxis(f, axis, -1), operand(h)
    n = f.shape[-1]
    h = h[1:] - h[:-1] if np.ndim(h) else np.broadcast_to(h, (n - 1,))
    slope = (f[..., 1:] - f[..., :-1]) / h
    left, right = h[:-1], h[1:]
    inside = (right * slope[..., :-1] + left * slope[..., 1:]) / (left + right)
    first, last = slope[..., :1], slope[..., -1:]
    if edge_order != 1:  # as NumPy asks
        first = first + (first - slope[..., 1:2]) * h[0] / (h[0] + h[1])
        last = last + (last - slope[..., -2:-1]) * h[-1] / (h[-1] + h[-2])
    return np.moveaxis(np.concatenate([first, inside, last], -1), -1, axis)


def _trapezoid(y: Any, x: Any, dx: Any, axis: Any) -> Any:
    y = operand(y)
    place = axis_of(y, int(axis))
    if x is not None:
        dx = np.diff(x, axis=-1 if np.ndim(x) == 1 else axis)
        if np.ndim(x) == 1:
            dx = dx.reshape([-1 if k == place else 1 for k in range(y.ndim)])
    lead = (slice(None),) * place
    return np.sum(dx * (y[(*lead, slice(1, None))] + y[(*lead, slice(-1))]) / 2, axis=axis)


def _interp(x: Any, xp: Any, fp: Any, left: Any, right: Any, period: Any) -> Any:
    """Interpolate by straight lines; beyond the ends the values are constant."""
    x, xp, fp = map(as_tensor, (x, xp, fp))  # arrays have no places that are tensors
    x, xp = np.real(x), np.real(xp)  # as NumPy has them
    if period is not None:
        period = np.abs(period)  # as NumPy has it
        x, xp = x % period, xp % period
        order = np.argsort(xp)
        xp, fp = xp[order], fp[order]
        xp = np.concatenate([xp[-1:] - period, xp, xp[:1] + period])
        fp = np.concatenate([fp[-1:], fp, fp[:1]])
    place = np.clip(np.searchsorted(xp, x, side="right"), 1, xp.shape[0] - 1)
    x0, x1, f0, f1 = xp[place - 1], xp[place], fp[place - 1], fp[place]
    far = np.where(x1 == x0, 1, x1 - x0)  # of a single point, which is both neighbours
    made = f0 + (f1 - f0) * ((x - x0) / far)
    made = np.where(x < xp[0], fp[0] if left is None else left, made)
    return np.where(x > xp[-1], fp[-1] if right is None else right, made)


# ---- convolutions

CONVOLVE = Op("convolve", lambda a, v: np.convolve(a, v))


def _correlated(g: Any, other: Any, like: Any) -> Any:
    """Return the sums of g times another sequence, at each of its places."""
    made = call(CONVOLVE, (g, conj(other)[::-1]))
    start = other.shape[0] - 1
    return made[start : start + like.shape[0]]


CONVOLVE.define(
    (lambda g, y, a, v: _correlated(g, v, a), "b"), (lambda g, y, a, v: _correlated(g, a, v), "a")
)


def _convolve(a: Any, v: Any, mode: Any) -> Any:
    a, v = np.atleast_1d(a), np.atleast_1d(v)
    return _part(apply(CONVOLVE, (a, v)), a, v, mode, (min(a.shape[0], v.shape[0]) - 1) // 2)


def _correlate(a: Any, v: Any, mode: Any) -> Any:
    a, v = operand(a), operand(v)
    middle = (v.shape[0] - 1 if a.shape[0] >= v.shape[0] else a.shape[0]) // 2
    return _part(apply(CONVOLVE, (a, conj(v)[::-1])), a, v, mode, middle)


#: What NumPy takes for 0, 1 and 2.
_MODES = ("valid", "same", "full")


def _part(full: Any, a: Any, v: Any, mode: Any, middle: int) -> Any:
    """Return the part of a full convolution that a mode keeps."""
    short, long = sorted((a.shape[0], v.shape[0]))
    kept = [(short - 1, long - short + 1), (middle, long), (0, short + long - 1)]
    start, length = kept[_MODES.index(mode) if mode in _MODES else int(mode)]
    return full[start : start + length]


for _function, _composition in {
    np.diff: _diff, np.ediff1d: _ediff1d, np.unwrap: _unwrap, np.gradient: _gradient,
    np.trapezoid: _trapezoid, np.interp: _interp, np.convolve: _convolve,
    np.correlate: _correlate,
}.items():  # fmt: skip
    composed(_function, _composition)
