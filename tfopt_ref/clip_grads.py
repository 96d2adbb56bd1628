"""The gradients of clipping, as plain functions: what a tape calls on its way back."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt_ref.autodiff.effects import computes
from tfopt_ref.clip_checks import (
    FLOATS,
    INTEGERS,
    as_axes,
    as_bound,
    as_limits,
    as_tensor,
    check_broadcast,
)
from tfopt_ref.clip_ops import norms_of_slices
from tfopt_ref.errors import InvalidArgumentError

__all__ = ["clip_by_norm_grad", "clip_by_value_grad"]


@computes
def clip_by_value_grad(
    grad: Any, t: Any, clip_value_min: Any, clip_value_max: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the gradients of clip_by_value to its three arguments.

    Each element's goes to the argument that was chosen; to t in a tie, and if t is NaN.
    """
    array = as_tensor(t, "t", FLOATS + INTEGERS)
    upstream = _as_gradient(grad, array)
    high = as_bound(clip_value_max, "clip_value_max", "Minimum", array.dtype)
    check_broadcast(array, high)
    low = as_bound(clip_value_min, "clip_value_min", "Maximum", array.dtype)
    check_broadcast(array, low)
    with np.errstate(invalid="ignore"):
        above = array > high
        below = np.where(above, high, array) < low
    zero = np.zeros((), array.dtype)
    return (
        np.where(above | below, zero, upstream),
        _summed(np.where(below, upstream, zero), low.shape),
        _summed(np.where(above & ~below, upstream, zero), high.shape),
    )


@computes
def clip_by_norm_grad(
    grad: Any, t: Any, clip_norm: Any, axes: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the gradients of clip_by_norm to t and to clip_norm; a tie counts as clipped.

    With the unit vector u = t / norm they are clip_norm / norm * (grad - u * sum(u * grad)) and
    sum(u * grad).
    """
    array = as_tensor(t, "t", FLOATS)
    upstream = _as_gradient(grad, array).astype(np.float64)
    given = as_limits(clip_norm, "clip_norm")
    check_broadcast(array, given)
    limits = np.maximum(given, 0.0)
    reduced = as_axes(axes, array.ndim)
    roots, exponents = norms_of_slices(array, reduced)
    with np.errstate(all="ignore"):
        unit = np.ldexp(array.astype(np.float64), -exponents) / np.where(roots == 0, 1, roots)
        along = (unit * upstream).sum(reduced, keepdims=True)
        across = np.ldexp(limits, -exponents) / roots * (upstream - unit * along)
        clipped = ~(np.ldexp(roots, exponents) < limits) & (limits != np.inf)
        scaled = np.where(roots == 0, 0.0, across)
        t_grad = np.where(clipped, scaled, upstream).astype(array.dtype)
        to_norm = np.where(clipped & ~(given < 0), unit * upstream, 0.0)
        return t_grad, _summed(to_norm, given.shape).astype(array.dtype)


def _as_gradient(grad: Any, array: np.ndarray) -> np.ndarray:
    upstream = as_tensor(grad, "grad", FLOATS + INTEGERS)
    if upstream.shape != array.shape or upstream.dtype != array.dtype:
        raise InvalidArgumentError(
            f"grad must be {array.dtype} of shape {array.shape} as t is, "
            f"not {upstream.dtype} of shape {upstream.shape}"
        )
    return upstream


def _summed(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array summed over the axes along which a shape was broadcast to its shape."""
    added = array.ndim - len(shape)
    axes = tuple(
        axis for axis, n in enumerate(array.shape) if axis < added or shape[axis - added] != n
    )
    wide = np.int64 if array.dtype.kind in "iu" else np.float64
    summed: np.ndarray = array.sum(axes, wide, keepdims=True).reshape(shape).astype(array.dtype)
    return summed
