"""TensorFlow's ops beside those that update a variable: of clipping, losses and SDCA."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt.autodiff.vjps import clipping
from tfopt.clip_ops import clip_by_value
from tfopt.clip_ops.validation import (
    FLOATS,
    INTEGERS,
    Array,
    as_bound,
    as_tensor,
    device_backend,
    is_recorded,
)
from tfopt.core.engine import Op, apply
from tfopt.errors import InvalidArgumentError
from tfopt.kernels.reduce.norms import sum_of_squares
from tfopt.sdca_ops import sdca_fprint, sdca_shrink_l1
from tfopt.updates.op_shapes import text_of

__all__ = ["ClipByValue", "L2Loss", "SdcaFprint", "SdcaShrinkL1"]


def ClipByValue(
    *, t: Any, clip_value_min: Any, clip_value_max: Any, name: str | None = None
) -> Any:
    """Clip each element to two bounds, as :func:`~tfopt.clip_ops.clip_by_value` does.

    Parameters
    ----------
    t : array of floats or integers, or Variable
    clip_value_min, clip_value_max : array_like
        Scalars, or arrays of t's shape.
    name : str, optional
        Accepted as TensorFlow accepts it, and not used.

    Returns
    -------
    ndarray, shape and dtype of t
        A tensor, with a gradient, where :func:`~tfopt.clip_ops.clip_by_value` returns one.

    Raises
    ------
    InvalidArgumentError
        If a bound has another shape, or as :func:`~tfopt.clip_ops.clip_by_value` does.
    """
    if is_recorded(t, clip_value_min, clip_value_max):
        return apply(_CLIP_BY_VALUE, (t, clip_value_min, clip_value_max))
    if device_backend(t) is not None:
        return clip_by_value(t, clip_value_min, clip_value_max)
    array = as_tensor(t, "t", FLOATS + INTEGERS)
    high = as_bound(clip_value_max, "clip_value_max", "ClipByValue", array.dtype)
    low = as_bound(clip_value_min, "clip_value_min", "ClipByValue", array.dtype)
    if {low.shape, high.shape} - {(), array.shape}:
        raise InvalidArgumentError(
            "clip_value_min and clip_value_max must be either of the same shape as input, or a "
            f"scalar. input shape: {text_of(array.shape)}clip_value_min shape: {text_of(low.shape)}"
            f"clip_value_max shape: {text_of(high.shape)}"
        )
    return clip_by_value(array, low, high)


def L2Loss(*, t: Any, name: str | None = None) -> Any:
    """Return half the sum of all squares.

    Parameters
    ----------
    t : array of floats, or Variable
    name : str, optional
        Accepted as TensorFlow accepts it, and not used.

    Returns
    -------
    NumPy scalar, dtype of t
        Summed in float64, in the order of norms, and rounded once. Of a :class:`tfopt.Tensor`, and
        of a Variable while a tape records, it is a tensor, which has a gradient.

    Raises
    ------
    InvalidTypeError
        If t is not of floats.

    Examples
    --------
    >>> from tfopt import raw_ops
    >>> float(raw_ops.L2Loss(t=[3.0, 4.0]))
    12.5
    """
    if is_recorded(t):
        return apply(_L2_LOSS, (t,))
    backend = device_backend(t)
    if backend is not None:
        return backend.l2_loss(t)
    array: Array = as_tensor(t, "t", FLOATS)
    with np.errstate(over="ignore", under="ignore"):
        return (np.float64(sum_of_squares(array)) / 2).astype(array.dtype)


_CLIP_BY_VALUE = Op(
    "ClipByValue", lambda t, low, high: ClipByValue(t=t, clip_value_min=low, clip_value_max=high)
)
_CLIP_BY_VALUE.define(*clipping.by_value)
_L2_LOSS = Op("L2Loss", lambda t: L2Loss(t=t))
_L2_LOSS.define((lambda g, y, t: g * t, "a"))


def SdcaShrinkL1(*, weights: Any, l1: Any, l2: Any, name: str | None = None) -> None:
    """Move each weight by l1 / l2 towards 0, as :func:`tfopt.sdca_ops.sdca_shrink_l1` does.

    Parameters
    ----------
    weights : list of float arrays or Variables
        Changed in place.
    l1, l2 : float
    name : str, optional
        Accepted as TensorFlow accepts it, and not used.

    Raises
    ------
    InvalidArgumentError
        As there; nothing has been written.
    """
    sdca_shrink_l1(weights, l1, l2)


def SdcaFprint(*, input: Any, name: str | None = None) -> Any:
    """Return the fingerprint of each string, as :func:`tfopt.sdca_ops.sdca_fprint` does.

    Parameters
    ----------
    input : list or array of bytes or str, shape (n,)
    name : str, optional
        Accepted as TensorFlow accepts it, and not used.

    Returns
    -------
    ndarray of int64, shape (n, 2)

    Raises
    ------
    InvalidArgumentError
        As there.
    """
    return sdca_fprint(input)
