"""Clipping by the norm of one tensor."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from tfopt.clip_ops.scaling import Nonfinite, check_policy, scale, scale_slices, skips
from tfopt.clip_ops.validation import (
    FLOATS,
    Array,
    as_axes,
    as_limit,
    as_limits,
    as_tensor,
    check_broadcast,
    check_separate,
    computed,
    densified,
    device_backend,
    is_recorded,
    of_rows,
    results_for,
    with_values,
    wrapped,
)
from tfopt.core.effects import writes
from tfopt.core.engine import Op, apply
from tfopt.indexed_slices import IndexedSlices, densify
from tfopt.kernels.reduce.norms import norm
from tfopt.kernels.update.clip import factor
from tfopt.sparse_conversion import as_slices

__all__ = ["BY_NORM", "clip_by_average_norm", "clip_by_norm"]


@writes("out", returns="out")
def clip_by_norm(
    t: Any,
    clip_norm: Any,
    axes: Any = None,
    name: str | None = None,
    *,
    out: Any = None,
    nonfinite: Nonfinite = "propagate",
) -> Any:
    """Scale down a tensor, or each of its slices, whose norm exceeds a limit.

    Parameters
    ----------
    t : array of floats, Variable or IndexedSlices
    clip_norm : array_like
        The largest norm: a number, or an array that broadcasts with the norms and to t's shape. A
        negative limit is treated as 0; an infinite one clips nothing.
    axes : int or sequence of int, optional
        The axes over which each norm is computed; all axes by default.
    name : str, optional
        Accepted for compatibility with TensorFlow and ignored.
    out : array of t's shape and dtype, optional
        Receives the result; may be t itself. For IndexedSlices, slices with such values.
    nonfinite : {"propagate", "raise", "skip"}
        What to do if a norm is infinite or NaN. "propagate": infinite elements become NaN and
        finite ones 0; with a NaN, all elements become NaN. "raise": raise an error and write
        nothing. "skip": leave the slice unchanged and issue a RuntimeWarning.

    Returns
    -------
    ndarray or IndexedSlices
        With t's shape and dtype; `out` if given. Slices within the limit keep their bits.

    Raises
    ------
    InvalidArgumentError
        If `clip_norm` does not broadcast, an axis is out of range or repeated, a norm is not finite
        and `nonfinite` is "raise", or the shape of `out` differs from t's.
    InvalidTypeError
        If t is not floating.

    Notes
    -----
    TensorFlow's ``tf.clip_by_norm`` (tensorflow/python/ops/clip_ops.py).

    Examples
    --------
    >>> import numpy as np
    >>> import tfopt
    >>> tfopt.clip_by_norm(np.array([[-3.0, 0.0], [4.0, 1.0]]), 4, axes=[0])
    array([[-2.4,  0. ],
           [ 3.2,  1. ]])
    """
    t = as_slices(t)
    if out is None and is_recorded(t, clip_norm):
        kw = {"axes": _static(axes), "nonfinite": nonfinite}
        return with_values(t, apply(BY_NORM, (of_rows(t), clip_norm), kw))
    backend = None if type(t) is np.ndarray else device_backend(t)
    if backend is not None:
        return backend.clip_by_norm(t, clip_norm, axes, out, nonfinite)
    check_policy(nonfinite)
    array = as_tensor(t, "t", FLOATS)
    limits: Array = np.maximum(as_limits(clip_norm, "clip_norm"), 0.0)
    reduced = as_axes(axes, array.ndim)
    check_broadcast(array, limits)
    (result,) = results_for([array], None if out is None else [out])
    assert result is not None
    if out is not None:
        check_separate([result], [array])
    if len(reduced) == array.ndim and limits.ndim == 0:
        root, exponent = norm([array])
        skipped = not math.isfinite(root) and skips(nonfinite, root)
        limit = math.inf if skipped else float(limits)
        single = computed(array.dtype) is np.float32
        scale([result], [array], *factor(root, exponent, limit, single))
    else:
        scale_slices(result, array, reduced, limits, nonfinite)
    return wrapped(t, result, out)


@writes("out", returns="out")
def clip_by_average_norm(
    t: Any,
    clip_norm: Any,
    name: str | None = None,
    *,
    out: Any = None,
    nonfinite: Nonfinite = "propagate",
) -> Any:
    """Scale down a tensor whose norm, divided by its number of elements, exceeds a limit.

    Deprecated in TensorFlow 2.0: use the equivalent ``clip_by_norm(t, clip_norm * t.size)``.

    Parameters
    ----------
    t : array of floats, Variable or IndexedSlices
        IndexedSlices must have a `dense_shape` and are converted to an array of that shape;
        duplicate rows are summed.
    clip_norm : float
        The largest average norm.
    name, out, nonfinite
        As in :func:`clip_by_norm`; for IndexedSlices, `out` is an array.

    Returns
    -------
    ndarray
        With t's shape and dtype; `out` if given.

    Raises
    ------
    InvalidArgumentError
        As in :func:`clip_by_norm`; also if IndexedSlices have no `dense_shape`, or do not match it.
    InvalidTypeError
        If t is not floating.

    Warns
    -----
    DeprecationWarning
        Always.

    Notes
    -----
    TensorFlow's ``tf.compat.v1.clip_by_average_norm`` (tensorflow/python/ops/clip_ops.py).

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> import tfopt
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", DeprecationWarning)
    ...     tfopt.clip_by_average_norm(np.array([[-3.0, 0.0], [4.0, 0.0]]), 1.0)
    array([[-2.4,  0. ],
           [ 3.2,  0. ]])
    """
    warnings.warn(
        "clip_by_average_norm is deprecated in TensorFlow 2.0. Please use "
        "clip_by_norm(t, clip_norm * t.size) instead.",
        DeprecationWarning,
        stacklevel=3,
    )
    t = as_slices(t)
    if out is None and is_recorded(t, clip_norm):
        t = densify(t)
        return clip_by_norm(t, clip_norm * math.prod(np.shape(t)), nonfinite=nonfinite)
    if isinstance(t, IndexedSlices):
        t = densified(t)
    elif device_backend(t) is None:
        t = as_tensor(t, "t", FLOATS)
    limit = as_limit(clip_norm, "clip_norm")
    return clip_by_norm(t, limit * math.prod(t.shape), out=out, nonfinite=nonfinite)


def _static(axes: Any) -> Any:
    return axes if axes is None else tuple(np.atleast_1d(axes).tolist())


BY_NORM = Op("ClipByNorm", clip_by_norm)
