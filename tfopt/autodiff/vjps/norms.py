"""Norms: of vectors, of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt.autodiff.backward import spread
from tfopt.autodiff.operands import array_operand as operand
from tfopt.autodiff.ops import implements
from tfopt.autodiff.vjps.arguments import axes_of
from tfopt.autodiff.vjps.composed import composed, with_gradients_of
from tfopt.autodiff.vjps.reductions import count
from tfopt.core.engine import Op, apply


def _norm_rule(g: Any, y: Any, a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Point along the vector; 0 where it is 0."""
    scale = np.where(y == 0, 0, g / np.where(y == 0, 1, y))
    axis = _as_read(axis)
    return a * spread(scale, a, axis, keepdims)


def _as_read(axis: Any) -> Any:
    """Return axes as `np.linalg.norm` reads them: a number as a whole one."""
    return axis if axis is None or isinstance(axis, tuple) else int(axis)


NORM = Op("norm", lambda a, axis=None, keepdims=False: np.linalg.norm(a, None, axis, keepdims))
NORM.define((_norm_rule, "ay"))


@implements(np.linalg.norm)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the norm of all elements, or those of vectors or matrices along axes."""
    x = operand(x)
    if ord is None and x.dtype.kind in "fc":
        return apply(NORM, (x,), {"axis": axis, "keepdims": keepdims})
    return with_gradients_of(_norm, np.linalg.norm, (x, ord, axis, keepdims), {})


def _norm(x: Any, ord: Any, axis: Any, keepdims: bool) -> Any:
    x = x.astype(float) if x.dtype.kind in "biu" else x
    axes = axes_of(x, _as_read(axis))
    of_two = ord is None or (ord == "fro" and len(axes) == 2) or (ord == 2 and len(axes) == 1)
    if of_two:
        return apply(NORM, (x,), {"axis": axis, "keepdims": keepdims})
    if len(axes) == 1:
        return _of_vectors(np.abs(x), ord, axes[0], keepdims)
    made = _of_matrices(np.moveaxis(x, axes, (-2, -1)), ord)
    return np.expand_dims(made, tuple(axes)) if keepdims else made


def _of_vectors(sizes: Any, ord: Any, axis: int, keepdims: bool) -> Any:
    if not sizes.size and not np.ndim(ord):
        return np.sum(sizes, axis=axis, keepdims=keepdims)
    if ord in (np.inf, -np.inf):
        return (np.max if ord > 0 else np.min)(sizes, axis=axis, keepdims=keepdims)
    if ord == 0:
        return np.sum(0 * sizes, axis=axis, keepdims=keepdims)
    if ord == 1:
        return np.sum(sizes, axis=axis, keepdims=keepdims)
    ord = np.asarray(ord)
    total = np.sum(sizes**ord, axis=axis, keepdims=keepdims)
    return np.where(total == 0, 0, np.where(total == 0, 1, total) ** (1 / ord))


def _of_matrices(x: Any, ord: Any) -> Any:
    if ord in ("nuc", 2, -2):
        values = np.linalg.svdvals(x)
        if ord == "nuc" or not values.shape[-1]:
            return np.sum(values, -1)
        return values[..., 0 if ord > 0 else -1]
    if not x.size:
        return np.sum(np.abs(x), axis=(-2, -1))
    sums = np.sum(np.abs(x), axis=-2 if ord in (1, -1) else -1)
    return np.max(sums, -1) if ord in (1, np.inf) else np.min(sums, -1)


def _vector_norm(x: Any, axis: Any, keepdims: Any, ord: Any) -> Any:
    x = operand(x)
    axis = _as_read(axis)
    axes = axes_of(x, axis)
    rest = [k for k in range(x.ndim) if k not in axes]
    flat = np.reshape(np.transpose(x, rest + axes), (*(x.shape[k] for k in rest), count(x, axis)))
    made = norm(flat, ord, -1)
    return np.expand_dims(made, tuple(axes)) if keepdims else made


def _cond(x: Any, p: Any) -> Any:
    """Return the ratio of the largest singular value to the smallest, or that of a norm."""
    if p is None or p in (2, -2):
        values = np.linalg.svdvals(x)
        return values[..., 0] / values[..., -1] if p != -2 else values[..., -1] / values[..., 0]
    return norm(x, p, (-2, -1)) * norm(np.linalg.inv(x), p, (-2, -1))


composed(np.linalg.vector_norm, _vector_norm)
composed(np.linalg.matrix_norm, lambda x, keepdims, ord: norm(x, ord, (-2, -1), keepdims))
composed(np.linalg.cond, _cond)
