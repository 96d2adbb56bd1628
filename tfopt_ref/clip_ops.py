"""Clipping by value and by norm, and the gradients of both, as formulas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfopt_ref.arithmetic import computed, operand, select
from tfopt_ref.norms import factors, norm, sum_of_squares

# ---- by value


def clip_by_value(t: Any, clip_value_min: Any, clip_value_max: Any) -> np.ndarray:
    """Clip each element to two bounds; if they contradict each other, to clip_value_min."""
    t = np.asarray(t)
    with np.errstate(all="ignore"):
        low, high = (np.asarray(b).astype(t.dtype) for b in (clip_value_min, clip_value_max))
        return maximum(minimum(t, high), low)


def minimum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the smaller, or NaN if either is NaN; a if they are equal."""
    return np.where((b < a) | (b != b), b, a)


def maximum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the larger, or NaN if either is NaN; a if they are equal."""
    return np.where((b > a) | (b != b), b, a)


# ---- by norm


def clip_by_norm(
    t: Any, clip_norm: Any, axes: Any = None, *, nonfinite: str = "propagate"
) -> np.ndarray:
    """Scale each slice of t along the axes down to the norm clip_norm if its norm is larger.

    Slices without a finite norm stay unchanged if `nonfinite` is "skip".
    """
    t = np.asarray(t)
    limits = np.maximum(np.asarray(clip_norm).astype(np.float64), 0.0)
    roots, exponents = norms_of_slices(t, normalized(axes, t.ndim))
    if nonfinite == "skip":
        limits = np.where(np.isfinite(roots), limits, np.inf)
    return scaled(t, *factors(roots, exponents, limits, computed(t.dtype)))


def clip_by_average_norm(t: Any, clip_norm: Any) -> np.ndarray:
    """Scale a tensor down to clip_norm if its norm divided by its number of elements is larger."""
    t = np.asarray(t)
    return clip_by_norm(t, np.asarray(clip_norm).astype(np.float64) * t.size)


def normalized(axes: Any, ndim: int) -> tuple[int, ...]:
    """Return axes as numbers from 0; all axes for None."""
    listed = range(ndim) if axes is None else np.asarray(axes).flat
    return tuple(sorted(int(axis) % ndim for axis in listed))


def norms_of_slices(t: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the norms over some axes, which get the length 1, as roots and exponents."""
    shape = tuple(1 if axis in axes else n for axis, n in enumerate(t.shape))
    roots, exponents = np.zeros(shape), np.zeros(shape, np.int64)
    for index in np.ndindex(shape):
        one = tuple(slice(None) if axis in axes else i for axis, i in enumerate(index))
        roots[index], exponents[index] = norm([np.asarray(t[one])])
    return roots, exponents


def scaled(t: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return t * first * second, computed in their type; factors of 1 change nothing."""
    dtype = first.dtype
    with np.errstate(all="ignore"):
        product = operand(t, dtype) * operand(first, dtype)
        product = select(second == 1, product, product * operand(second, dtype))
        return np.where(first == 1, t, product.astype(t.dtype))


# ---- by the norm of many tensors


def global_norm(t_list: Sequence[Any], dtype: Any = None) -> Any:
    """Return the norm of all elements of all tensors; None is left out.

    It is rounded once, to `dtype` or to the dtype of the tensors.
    """
    tensors = [np.asarray(t) for t in t_list if t is not None]
    return rounded(*norm(tensors), tensors if dtype is None else [np.empty((), dtype)])


def rounded(root: Any, exponent: int, tensors: list[np.ndarray]) -> Any:
    """Return root * 2**exponent in the dtype of the tensors, float32 if there are none."""
    dtype = tensors[0].dtype if tensors else np.dtype(np.float32)
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(np.float64(root), exponent).astype(dtype)


def clip_by_global_norm(
    t_list: Sequence[Any], clip_norm: Any, use_norm: Any = None, *, nonfinite: str = "propagate"
) -> tuple[list[Any], Any]:
    """Scale all tensors by one factor such that their norm is at most clip_norm; return both.

    The second result is the norm before. Without a finite norm the tensors become NaN, unless
    `nonfinite` is "skip" or there is no limit.
    """
    tensors = [None if t is None else np.asarray(t) for t in t_list]
    present = [t for t in tensors if t is not None]
    root, exponent = norm(present) if use_norm is None else (np.float64(use_norm), 0)
    value = rounded(root, exponent, present) if use_norm is None else use_norm
    limit = np.maximum(np.float64(clip_norm), 0.0)
    if not np.isfinite(root):
        limit = np.float64(math.inf if limit == math.inf or nonfinite == "skip" else math.nan)
    clipped = [
        None if t is None else scaled(t, *factors(root, exponent, limit, computed(t.dtype)))
        for t in tensors
    ]
    return clipped, value


def l2_loss(t: Any) -> Any:
    """Return half the sum of all squares, summed in float64 and rounded once."""
    t = np.asarray(t)
    with np.errstate(over="ignore", under="ignore"):
        return (sum_of_squares(t) / 2).astype(t.dtype)


# ---- gradients


def clip_by_value_grad(
    grad: Any, t: Any, clip_value_min: Any, clip_value_max: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the gradients of clip_by_value to its three arguments.

    The gradient of an element goes to the chosen argument; in a tie and if t is NaN, to t.
    """
    grad, t = np.asarray(grad), np.asarray(t)
    low, high = (np.asarray(b).astype(t.dtype) for b in (clip_value_min, clip_value_max))
    to_high = t > high
    to_low = np.where(to_high, high, t) < low
    chosen = ~to_high & ~to_low, to_low, to_high & ~to_low
    to_t, *to_bounds = (np.where(here, grad, t.dtype.type(0)) for here in chosen)
    return to_t, unbroadcast(to_bounds[0], low.shape), unbroadcast(to_bounds[1], high.shape)


def clip_by_norm_grad(
    grad: Any, t: Any, clip_norm: Any, axes: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the gradients of clip_by_norm to t and to clip_norm; a tie counts as clipped.

    With the unit vector u = t / norm they are clip_norm / norm * (grad - u * sum(u * grad)) and
    sum(u * grad).
    """
    t, grad = np.asarray(t), np.asarray(grad).astype(np.float64)
    clip_norm = np.asarray(clip_norm).astype(np.float64)
    limit, axes = np.maximum(clip_norm, 0.0), normalized(axes, t.ndim)
    roots, exponents = norms_of_slices(t, axes)
    with np.errstate(all="ignore"):
        clipped = ~(np.ldexp(roots, exponents) < limit) & (limit != np.inf)
        u = np.ldexp(t.astype(np.float64), -exponents) / np.where(roots == 0, 1, roots)
        rest = grad - u * np.sum(u * grad, axes, keepdims=True)
        to_t = np.where(roots == 0, 0.0, np.ldexp(limit, -exponents) / roots * rest)
        to_norm = np.where(clipped & ~(clip_norm < 0), u * grad, 0.0)
        to_t = np.where(clipped, to_t, grad).astype(t.dtype)
        return to_t, unbroadcast(to_norm, clip_norm.shape).astype(t.dtype)


def unbroadcast(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Sum an array over the axes along which `shape` was broadcast to the shape of the array."""
    padded = (1,) * (array.ndim - len(shape)) + shape
    axes = tuple(axis for axis, n in enumerate(padded) if n != array.shape[axis])
    wide = np.int64 if array.dtype.kind in "iu" else np.float64
    total: np.ndarray = array.sum(axes, wide, keepdims=True).reshape(shape).astype(array.dtype)
    return total
