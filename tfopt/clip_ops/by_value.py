"""Clipping by value."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt.clip_ops.validation import (
    FLOATS,
    INTEGERS,
    as_bound,
    as_tensor,
    check_broadcast,
    check_separate,
    computed,
    device_backend,
    is_recorded,
    of_rows,
    results_for,
    with_values,
    wrapped,
)
from tfopt.core.effects import writes
from tfopt.core.engine import Op, apply
from tfopt.kernels.update.clip import clamp_call
from tfopt.kernels.update.dense import run
from tfopt.sparse_conversion import as_slices

__all__ = ["BY_VALUE", "clip_by_value"]


@writes("out", returns="out")
def clip_by_value(
    t: Any, clip_value_min: Any, clip_value_max: Any, name: str | None = None, *, out: Any = None
) -> Any:
    """Clip each element to a range: ``maximum(minimum(t, clip_value_max), clip_value_min)``.

    Parameters
    ----------
    t : array of floats or integers, Variable or IndexedSlices
    clip_value_min, clip_value_max : array_like
        Numbers, or arrays of t's dtype that broadcast to t's shape. If `clip_value_min` is greater
        than `clip_value_max`, it is the result.
    name : str, optional
        Accepted for compatibility with TensorFlow and ignored.
    out : array of t's shape and dtype, optional
        Receives the result; may be t itself. For IndexedSlices, slices with such values.

    Returns
    -------
    ndarray or IndexedSlices
        With t's shape and dtype; `out` if given. NaNs stay NaN, and a NaN bound makes the elements
        it bounds NaN. Elements within the bounds keep their bits.

    Raises
    ------
    InvalidArgumentError
        If the bounds do not broadcast to t's shape, an integer tensor's dtype cannot hold them, or
        the shape of `out` differs from t's.
    InvalidTypeError
        If t is neither floating nor integer, a bound has another kind or float dtype, or the dtype
        of `out` differs from t's.

    Notes
    -----
    TensorFlow's ``tf.clip_by_value`` (tensorflow/python/ops/clip_ops.py).

    Examples
    --------
    >>> import numpy as np
    >>> import tfopt
    >>> t = np.array([[-5.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    >>> tfopt.clip_by_value(t, -1, 4)
    array([[-1.,  2.,  3.],
           [ 4.,  4.,  4.]])
    """
    t = as_slices(t)
    if out is None and is_recorded(t, clip_value_min, clip_value_max):
        return with_values(t, apply(BY_VALUE, (of_rows(t), clip_value_min, clip_value_max)))
    backend = None if type(t) is np.ndarray else device_backend(t)
    if backend is not None:
        return backend.clip_by_value(t, clip_value_min, clip_value_max, out)
    array = as_tensor(t, "t", FLOATS + INTEGERS)
    (result,) = results_for([array], None if out is None else [out])
    assert result is not None
    high = as_bound(clip_value_max, "clip_value_max", "Minimum", array.dtype)
    check_broadcast(array, high)
    low = as_bound(clip_value_min, "clip_value_min", "Maximum", array.dtype)
    check_broadcast(array, low)
    if out is not None:
        check_separate([result], [array])
    if low.ndim == high.ndim == 0:
        if array.dtype.name in FLOATS:
            low, high = (bound.astype(computed(array.dtype)) for bound in (low, high))
    else:
        low, high = (
            np.broadcast_to(bound.copy() if np.may_share_memory(bound, result) else bound,
                            array.shape)
            for bound in (low, high)
        )  # fmt: skip
    run(clamp_call(result, array, low, high))
    return wrapped(t, result, out)


BY_VALUE = Op("ClipByValue", clip_by_value)
