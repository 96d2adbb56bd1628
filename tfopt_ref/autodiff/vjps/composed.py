"""Functions without rules of their own: they are made of others, which have them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tfopt_ref.autodiff.tensor import TABLE
from tfopt_ref.autodiff.vjps.elementwise import conj

__all__: list[str] = []


def _append(arr: Any, values: Any, axis: int | None = None) -> Any:
    if axis is None:
        return np.concatenate([np.ravel(arr), np.ravel(values)])
    return np.concatenate([arr, values], axis)


def _average(a: Any, axis: Any = None, weights: Any = None, *, keepdims: bool = False) -> Any:
    if weights is None:
        return np.mean(a, axis, keepdims=keepdims)
    if np.shape(weights) != np.shape(a):
        others = tuple(i for i in range(np.ndim(a)) if i != axis % np.ndim(a))
        weights = np.expand_dims(weights, others)
    total = np.sum(weights * np.ones(np.shape(a)), axis, keepdims=keepdims)
    return np.sum(a * weights, axis, keepdims=keepdims) / total


def _compress(condition: Any, a: Any, axis: int | None = None) -> Any:
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
        return np.zeros(np.shape(a)) * a + np.eye(np.shape(a)[-1])
    factor = np.linalg.inv(a) if n < 0 else a
    return functools.reduce(np.matmul, [factor] * abs(n))


def _select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    chosen = default
    for condition, choice in reversed(list(zip(condlist, choicelist, strict=True))):
        chosen = np.where(condition, choice, chosen)
    return chosen


def _vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    return np.sum(conj(x1) * x2, axis)


def _vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    if axis is not None:
        return np.linalg.norm(x, ord, axis, keepdims)
    norm = np.linalg.norm(np.ravel(x), ord)
    return np.reshape(norm, (1,) * np.ndim(x)) if keepdims else norm


TABLE.update(
    {
        np.append: _append,
        np.average: _average,
        np.compress: _compress,
        np.extract: _extract,
        np.kron: _kron,
        np.select: _select,
        np.vecdot: _vecdot,
        np.linalg.vecdot: _vecdot,
        np.linalg.vector_norm: _vector_norm,
        np.linalg.matrix_power: _matrix_power,
        np.linalg.multi_dot: lambda arrays: functools.reduce(np.dot, arrays),
        np.linalg.matmul: lambda x1, x2, /: np.matmul(x1, x2),
        np.linalg.outer: lambda x1, x2, /: np.outer(x1, x2),
        np.linalg.tensordot: lambda a, b, /, *, axes=2: np.tensordot(a, b, axes),
        np.linalg.diagonal: lambda x, /, *, offset=0: np.diagonal(x, offset, -2, -1),
        np.linalg.trace: lambda x, /, *, offset=0: np.trace(x, offset, -2, -1),
    }
)
