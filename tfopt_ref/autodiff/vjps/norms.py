"""Norms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from tfopt_ref.autodiff.ops import define
from tfopt_ref.autodiff.vjps.derived import derived
from tfopt_ref.autodiff.vjps.reductions import kept

__all__: list[str] = []


def _norm(g: Any, y: Any, x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    axes = tuple(range(x.ndim)) if axis is None else normalize_axis_tuple(axis, x.ndim)
    y, g = kept(y, x, axis, keepdims), kept(g, x, axis, keepdims)
    if ord is None or (ord == 2 and len(axes) == 1) or ord == "fro":
        return np.where(y == 0, 0, g * x / np.where(y == 0, 1, y))
    if len(axes) == 2:
        return _norm_of_matrices(g, x, ord, axes)
    if ord == 0:
        return 0 * x
    if abs(ord) == np.inf:
        chosen = np.abs(x) == y
        return g * np.sign(x) * chosen / np.sum(chosen, axes, keepdims=True)
    ratio = np.abs(x) / np.where(y == 0, 1, y)
    return np.where(y == 0, 0, g * np.sign(x) * ratio ** (ord - 1))


def _norm_of_matrices(g: Any, x: Any, ord: Any, axes: tuple[int, ...]) -> Any:
    rows, columns = axes
    if ord in ("nuc", 2, -2):
        matrix, g = (np.moveaxis(each, axes, (-2, -1)) for each in (x, g))
        u, s, vh = np.linalg.svd(matrix, full_matrices=False)
        weights = np.ones(s.shape[-1])
        if ord != "nuc":
            weights = np.eye(s.shape[-1])[0 if ord == 2 else -1]
        return np.moveaxis(g * ((u * weights) @ vh), (-2, -1), axes)
    summed, other = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = np.sum(np.abs(x), summed, keepdims=True)
    extreme = (np.max if ord > 0 else np.min)(sums, other, keepdims=True)
    chosen = sums == extreme
    return g * np.sign(x) * chosen / np.sum(chosen, other, keepdims=True)


define(np.linalg.norm, _norm)


@derived(np.linalg.vector_norm)
def _vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    axes = tuple(range(x.ndim)) if axis is None else normalize_axis_tuple(axis, x.ndim)
    rest = [i for i in range(x.ndim) if i not in axes]
    last = np.transpose(x, [*rest, *axes])
    count = math.prod(last.shape[len(rest) :])
    norm = np.linalg.norm(np.reshape(last, (*last.shape[: len(rest)], count)), ord, -1)
    return np.expand_dims(norm, axes) if keepdims else norm


@derived(np.linalg.matrix_norm)
def _matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    return np.linalg.norm(x, ord, (-2, -1), keepdims)


@derived(np.linalg.cond)
def _cond(x: Any, p: Any = None) -> Any:
    if p in (None, 2, -2):
        s = np.linalg.svdvals(x)
        ratio = s[..., 0] / s[..., -1]
        return 1 / ratio if p == -2 else ratio
    return np.linalg.norm(x, p, (-2, -1)) * np.linalg.norm(np.linalg.inv(x), p, (-2, -1))
