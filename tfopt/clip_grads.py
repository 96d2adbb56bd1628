"""The gradients of clipping, as plain functions; tapes call them in the backward pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt.clip_ops.scaling import norms_of_slices
from tfopt.clip_ops.validation import (
    FLOATS,
    INTEGERS,
    Array,
    as_axes,
    as_bound,
    as_limits,
    as_tensor,
    check_broadcast,
)
from tfopt.core.effects import computes
from tfopt.errors import InvalidArgumentError

__all__ = ["clip_by_norm_grad", "clip_by_value_grad"]


@computes
def clip_by_value_grad(
    grad: Any, t: Any, clip_value_min: Any, clip_value_max: Any
) -> tuple[Array, Array, Array]:
    """Return the gradients of :func:`~tfopt.clip_ops.clip_by_value`, for its three arguments.

    Parameters
    ----------
    grad : array of t's shape and dtype
        The gradient with respect to the result.
    t, clip_value_min, clip_value_max : array_like
        As in :func:`~tfopt.clip_ops.clip_by_value`.

    Returns
    -------
    t_grad, min_grad, max_grad : ndarray
        With the arguments' shapes and t's dtype. Each element's gradient goes to the argument that
        was selected: to t, if t equals a bound or is NaN; to the lower bound, if it is greater
        than the upper one. Gradients of a broadcast bound are summed in float64.

    Raises
    ------
    InvalidArgumentError
        As in :func:`~tfopt.clip_ops.clip_by_value`, and if the shape or dtype of `grad` is not t's.

    Notes
    -----
    The gradient of TensorFlow's ``minimum`` followed by ``maximum``; its op ``ClipByValue`` has a
    different one where the lower bound is greater than the upper one
    (tensorflow/python/ops/clip_ops.py).

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.clip_grads import clip_by_value_grad
    >>> t = np.array([-2.0, -1.0, 0.0, 2.0])
    >>> t_grad, min_grad, max_grad = clip_by_value_grad(np.ones(4), t, -1.0, 1.0)
    >>> t_grad, float(min_grad), float(max_grad)
    (array([0., 1., 1., 0.]), 1.0, 1.0)
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
def clip_by_norm_grad(grad: Any, t: Any, clip_norm: Any, axes: Any = None) -> tuple[Array, Array]:
    """Return the gradients of :func:`~tfopt.clip_ops.clip_by_norm`, for t and `clip_norm`.

    Parameters
    ----------
    grad : array of t's shape and dtype
        The gradient with respect to the result.
    t, clip_norm, axes
        As in :func:`~tfopt.clip_ops.clip_by_norm`.

    Returns
    -------
    t_grad : ndarray, shape and dtype of t
        ``clip_norm / norm * (grad - t * sum(t * grad) / norm**2)`` where the norm is at least
        `clip_norm`, `grad` elsewhere. Computed in float64.
    norm_grad : ndarray, shape of clip_norm and dtype of t
        ``sum(t * grad) / norm`` where the norm is at least `clip_norm`, 0 elsewhere.

    Raises
    ------
    InvalidArgumentError
        As in :func:`~tfopt.clip_ops.clip_by_norm`, and if the shape or dtype of `grad` is not t's.

    Notes
    -----
    TensorFlow's gradient, except if the norm and `clip_norm` are both 0: there TensorFlow returns
    NaN, and this function a zero gradient for t (tensorflow/python/ops/clip_ops.py).

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.clip_grads import clip_by_norm_grad
    >>> t_grad, norm_grad = clip_by_norm_grad(np.array([1.0, 0.0]), np.array([3.0, 4.0]), 1.0)
    >>> t_grad.round(6), round(float(norm_grad), 6)
    (array([ 0.128, -0.096]), 0.6)
    """
    array = as_tensor(t, "t", FLOATS)
    upstream = _as_gradient(grad, array).astype(np.float64)
    bounds = as_limits(clip_norm, "clip_norm")
    check_broadcast(array, bounds)
    limits = np.maximum(bounds, 0.0)
    reduced = as_axes(axes, array.ndim)
    roots, exponents = norms_of_slices(array, reduced)
    with np.errstate(all="ignore"):
        unit = np.ldexp(array.astype(np.float64), -exponents) / np.where(roots == 0, 1, roots)
        along = (unit * upstream).sum(reduced, keepdims=True)
        across = np.ldexp(limits, -exponents) / roots * (upstream - unit * along)
        clipped = ~(np.ldexp(roots, exponents) < limits) & (limits != np.inf)
        scaled = np.where(roots == 0, 0.0, across)
        t_grad = np.where(clipped, scaled, upstream).astype(array.dtype)
        to_norm = np.where(clipped & ~(bounds < 0), unit * upstream, 0.0)
        return t_grad, _summed(to_norm, bounds.shape).astype(array.dtype)


def _as_gradient(grad: Any, array: Array) -> Array:
    upstream = as_tensor(grad, "grad", FLOATS + INTEGERS)
    if upstream.shape != array.shape or upstream.dtype != array.dtype:
        raise InvalidArgumentError(
            f"grad must have t's dtype {array.dtype} and shape {array.shape}, "
            f"not {upstream.dtype} and {upstream.shape}"
        )
    return upstream


def _summed(array: Array, shape: tuple[int, ...]) -> Array:
    """Sum an array over the axes along which an operand of some shape was broadcast."""
    added = array.ndim - len(shape)
    axes = tuple(
        axis for axis, n in enumerate(array.shape) if axis < added or shape[axis - added] != n
    )
    wide = np.int64 if array.dtype.kind in "iu" else np.float64
    summed: Array = array.sum(axes, wide, keepdims=True).reshape(shape).astype(array.dtype)
    return summed


def __dir__() -> list[str]:
    return __all__
