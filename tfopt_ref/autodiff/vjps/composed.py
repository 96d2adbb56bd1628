"""Functions whose gradients are those of a composition of others."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tfopt_ref.autodiff.tensor import as_tensor
from tfopt_ref.autodiff.vjps.derived import array, constant_of, derived
from tfopt_ref.autodiff.vjps.elementwise import conj

__all__: list[str] = []


def _append(arr: Any, values: Any, axis: int | None = None) -> Any:
    if axis is None:
        return np.concatenate([np.ravel(arr), np.ravel(values)])
    return np.concatenate([arr, values], axis)


def _compress(condition: Any, a: Any, axis: int | None = None, out: None = None) -> Any:
    return np.take(a, np.flatnonzero(condition), axis)


def _extract(condition: Any, arr: Any) -> Any:
    return np.ravel(arr)[(np.flatnonzero(np.ravel(condition)),)]


def _kron(a: Any, b: Any) -> Any:
    ndim = max(np.ndim(a), np.ndim(b))
    a, b = (np.reshape(x, (1,) * (ndim - np.ndim(x)) + np.shape(x)) for x in (a, b))
    shape = [n * m for n, m in zip(a.shape, b.shape, strict=True)]
    first, second = tuple(range(1, 2 * ndim, 2)), tuple(range(0, 2 * ndim, 2))
    pairs = np.expand_dims(a, first) * np.expand_dims(b, second)
    return np.reshape(pairs, shape)


def _matrix_power(a: Any, n: int) -> Any:
    if n == 0:
        return 0 * a
    factor = np.linalg.inv(a) if n < 0 else a
    return functools.reduce(np.matmul, [factor] * abs(n))


def _select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    chosen = default
    for condition, choice in reversed(list(zip(condlist, choicelist, strict=True))):
        chosen = np.where(condition, choice, chosen)
    return chosen


def _matvec(x1: Any, x2: Any, /) -> Any:
    return np.matmul(x1, x2[..., None])[..., 0]


def _vecmat(x1: Any, x2: Any, /) -> Any:
    return np.matmul(conj(x1)[..., None, :], x2)[..., 0, :]


def _vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    return np.sum(conj(x1) * x2, axis)


def _trace(
    a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: None = None
) -> Any:
    return np.sum(np.diagonal(a, offset, axis1, axis2), -1, dtype)


def _vdot(a: Any, b: Any, /) -> Any:
    return np.dot(conj(np.ravel(a)), np.ravel(b))


def _cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Any:
    """Sum over the permutations of three, with their signs."""
    axisa, axisb, axisc = (axisa, axisb, axisc) if axis is None else (axis,) * 3
    signs = np.zeros((3, 3, 3))
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        signs[i, j, k], signs[k, j, i] = 1, -1
    a, b = np.moveaxis(a, axisa, -1), np.moveaxis(b, axisb, -1)
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        raise LookupError("no gradient of cross of vectors of two dimensions")
    return np.moveaxis(np.einsum("...i,...j,ijk->...k", a, b, signs), -1, axisc)


def _piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    """Put the pieces together in the order of the conditions, the last one that holds on top."""
    conditions = list(condlist) if np.ndim(condlist[0]) == np.ndim(x) else [condlist]
    held = [as_tensor(condition).astype(bool) for condition in conditions]
    if len(funclist) > len(held):
        held.append(~functools.reduce(np.logical_or, held))

    def piece(where: Any, function: Any) -> Any:
        found = function(x[where], *args, **kw) if callable(function) else function
        order = np.where(where, np.cumsum(where).reshape(x.shape) - 1, 0)
        return as_tensor(found)[order] if np.ndim(found) else found

    parts = [part for part in zip(held, funclist, strict=True) if np.any(part[0])]
    nothing = np.zeros(x.shape, x.dtype)
    return functools.reduce(lambda y, part: np.where(part[0], piece(*part), y), parts, nothing)


def _choose(a: Any, choices: Any, out: None = None, mode: str = "raise") -> Any:
    n = len(choices)
    a = {"raise": a, "clip": np.clip(a, 0, n - 1), "wrap": a % n}[mode]
    return np.select([a == k for k in range(n)], list(choices))


def _apply_along_axis(func1d: Any, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    last = np.moveaxis(arr, axis, -1)
    rest = last.shape[:-1]
    made = np.stack([array(func1d(last[i], *args, **kwargs)) for i in np.ndindex(rest)])
    made = np.reshape(made, rest + made.shape[1:])
    for k in range(len(rest), made.ndim):
        made = np.moveaxis(made, k, axis % len(last.shape) + k - len(rest))
    return made


def _polyval(p: Any, x: Any) -> Any:
    return functools.reduce(lambda value, each: value * x + each, array(p), 0 * array(x))


def _unwrap(p: Any, *args: Any, **kwargs: Any) -> Any:
    return p + (constant_of(np.unwrap, p, *args, **kwargs) - constant_of(np.copy, p))


def _interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
) -> Any:
    """Mix the values of the two neighbours."""
    x, xp, fp = map(as_tensor, (x, xp, fp))
    if period is not None:
        period = np.abs(period)
        order = np.argsort(xp % period)
        x, xp, fp = x % period, (xp % period)[order], fp[order]
        xp = np.concatenate([xp[-1:] - period, xp, xp[:1] + period])
        fp = np.concatenate([fp[-1:], fp, fp[:1]])
    after = np.clip(np.searchsorted(xp, x, side="right"), 1, len(xp) - 1)
    gap = xp[after] - xp[after - 1]
    part = np.where(gap == 0, 0, (x - xp[after - 1]) / np.where(gap == 0, 1, gap))
    value = fp[after - 1] * (1 - part) + fp[after] * part
    value = np.where(x < xp[0], fp[0] if left is None else left, value)
    return np.where(x > xp[-1], fp[-1] if right is None else right, value)


_COMPOSITIONS: dict[Any, Any] = {
    np.append: _append,
    np.compress: _compress,
    np.extract: _extract,
    np.kron: _kron,
    np.select: _select,
    np.vdot: _vdot,
    np.piecewise: _piecewise,
    np.choose: _choose,
    np.apply_along_axis: _apply_along_axis,
    np.polyval: _polyval,
    np.unwrap: _unwrap,
    np.interp: _interp,
    np.trace: _trace,
    np.cross: _cross,
    np.linalg.cross: lambda x1, x2, /, *, axis=-1: _cross(x1, x2, axis=axis),
    np.vecdot: _vecdot,
    np.linalg.vecdot: _vecdot,
    np.linalg.matrix_power: _matrix_power,
    np.linalg.multi_dot: lambda arrays: functools.reduce(np.dot, arrays),
    np.linalg.matmul: lambda x1, x2, /: np.matmul(x1, x2),
    np.linalg.outer: lambda x1, x2, /: np.outer(x1, x2),
    np.linalg.tensordot: lambda a, b, /, *, axes=2: np.tensordot(a, b, axes),
    np.linalg.diagonal: lambda x, /, *, offset=0: np.diagonal(x, offset, -2, -1),
    np.linalg.trace: lambda x, /, *, offset=0, dtype=None: np.trace(x, offset, -2, -1, dtype),
}
for function, composition in _COMPOSITIONS.items():
    derived(function)(composition)
if hasattr(np, "matvec"):  # of NumPy 2.2
    derived(np.matvec)(_matvec)
    derived(np.vecmat)(_vecmat)
