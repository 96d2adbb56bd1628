"""Clipping by value and by norm.

Norms are exact to the last bits and the same on any number of threads: squares are added up in
float64, in a fixed order (:mod:`tfopt_ref.norms` has it in a few lines), and neither overflow nor
vanish. What is scaled is multiplied by ``clip_norm / norm``, computed in float64 and rounded to the
tensor's dtype; what needs no scaling keeps its bits.

Tensors are arrays, Variables, IndexedSlices, of which the values are clipped, or Python's numbers
and lists, which become float32 or int32. Of a :class:`tfopt.Tensor`, and of a Variable while a tape
records, the result is a Tensor, which has gradients. With `out` nothing is allocated; a tensor may
be its own `out`. What lies on a GPU is clipped there (:mod:`tfopt.cuda.clip_ops`), and so is the
result.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from tfopt.clip_ops.scaling import by_type, check_policy, rounded, scale, scale_slices, skips
from tfopt.clip_ops.validation import (
    FLOATS,
    INTEGERS,
    Array,
    as_axes,
    as_bound,
    as_limit,
    as_limits,
    as_tensor,
    as_tensors,
    check_broadcast,
    check_separate,
    computed,
    densified,
    device_backend,
    is_recorded,
    of_rows,
    results_for,
    wrapped,
)
from tfopt.core.effects import readable, writes
from tfopt.core.engine import Op, apply
from tfopt.core.sparse_conversion import as_slices, each_as_slices
from tfopt.errors import InvalidArgumentError
from tfopt.indexed_slices import IndexedSlices, densify
from tfopt.kernels.clip import clamp_call, factor
from tfopt.kernels.norms import norm
from tfopt.kernels.training import run

__all__ = [
    "clip_by_average_norm",
    "clip_by_global_norm",
    "clip_by_norm",
    "clip_by_value",
    "global_norm",
]


# ---- by value


@writes("out", returns="out")
def clip_by_value(
    t: Any, clip_value_min: Any, clip_value_max: Any, name: str | None = None, *, out: Any = None
) -> Any:
    """Clip each element to two bounds: ``maximum(minimum(t, clip_value_max), clip_value_min)``.

    Parameters
    ----------
    t : array of floats or integers, Variable or IndexedSlices
    clip_value_min, clip_value_max : array_like
        Numbers, or arrays of t's dtype that broadcast to t's shape. Where the smaller bound is the
        larger one, it is the result.
    name : str, optional
        Accepted as TensorFlow accepts it, and not used.
    out : array of t's shape and dtype, optional
        Gets the result; may be t itself. For IndexedSlices, slices with such values.

    Returns
    -------
    ndarray or IndexedSlices
        Of t's shape and dtype; `out` if it was given. A NaN stays NaN, and a bound that is NaN
        makes NaN of what it bounds. Elements within the bounds keep their bits.

    Raises
    ------
    InvalidArgumentError
        If the bounds do not broadcast to t's shape, or are no integers that t's dtype can hold, or
        `out` does not fit.
    InvalidTypeError
        If t is neither floats nor integers, or a bound is of another kind or float dtype than t.

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
        return _as_given(t, apply(BY_VALUE, (of_rows(t), clip_value_min, clip_value_max)))
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


# ---- by the norm of one tensor


@writes("out", returns="out")
def clip_by_norm(
    t: Any,
    clip_norm: Any,
    axes: Any = None,
    name: str | None = None,
    *,
    out: Any = None,
    nonfinite: str = "propagate",
) -> Any:
    """Scale a tensor, or each of its slices, whose norm is above a limit down to it.

    Parameters
    ----------
    t : array of floats, Variable or IndexedSlices
    clip_norm : array_like
        The largest norm: a number, or an array that broadcasts with the norms and to t's shape. A
        negative one counts as 0, an infinite one clips nothing.
    axes : int or sequence of int, optional
        The axes that each norm is taken over; all, if None.
    name : str, optional
        Accepted as TensorFlow accepts it, and not used.
    out : array of t's shape and dtype, optional
        Gets the result; may be t itself. For IndexedSlices, slices with such values.
    nonfinite : {"propagate", "raise", "skip"}
        What a norm that is infinite or NaN does: infinite elements become NaN, finite ones beside
        them 0, and all NaN beside a NaN; or nothing is written and an error raised; or the slice
        stays as it is, with a RuntimeWarning.

    Returns
    -------
    ndarray or IndexedSlices
        Of t's shape and dtype; `out` if it was given. What was not above the limit keeps its bits.

    Raises
    ------
    InvalidArgumentError
        If `clip_norm` does not broadcast, an axis does not exist or occurs twice, a norm is not
        finite and `nonfinite` is "raise", or `out` does not fit.
    InvalidTypeError
        If t is not of floats.

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
        return _as_given(t, apply(BY_NORM, (of_rows(t), clip_norm), kw))
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


# ---- by the norm of many tensors


@writes("out", returns="out")
def global_norm(t_list: Any, name: str | None = None, *, out: Any = None) -> Any:
    """Return the norm of all elements of all tensors.

    Parameters
    ----------
    t_list : sequence of arrays, Variables, IndexedSlices, sparse ones of scipy or torch, or None
        Of one float dtype. None is left out; of IndexedSlices the values count.
    name : str, optional
        Accepted as TensorFlow accepts it, and not used.
    out : array of shape () and the tensors' dtype, optional
        Gets the norm.

    Returns
    -------
    NumPy scalar
        Of the tensors' dtype, which may not hold the norm: then it is infinite. `out` if it was
        given. 0, as float32, if there are no tensors.

    Raises
    ------
    InvalidTypeError
        If `t_list` is no sequence, or its tensors are not of one float dtype.

    Notes
    -----
    TensorFlow's ``tf.linalg.global_norm`` (tensorflow/python/ops/clip_ops.py). Wrong by half a unit
    in the last place, as a rounded number is, for a hundred million elements, too.

    Examples
    --------
    >>> import numpy as np
    >>> import tfopt
    >>> float(tfopt.global_norm([np.array([-2.0, 4.0]), None, np.array([1.0, -2.0])]))
    5.0
    """
    t_list = each_as_slices(t_list)
    if out is None and _any_recorded(t_list):
        return apply(GLOBAL_NORM, tuple(of_rows(t) for t in t_list if t is not None))
    backend = device_backend(t_list)
    if backend is not None:
        return backend.global_norm(t_list, out)
    tensors = [t for t in as_tensors(t_list, one_dtype=True) if t is not None]
    dtype = tensors[0].dtype if tensors else np.dtype(np.float32)
    into = None
    if out is not None:
        (into,) = results_for([np.empty((), dtype)], [out])
    value = rounded(*norm(tensors), dtype)
    if into is None:
        return value
    into[...] = value
    return out


def _of_a_recorded_call(given: dict[str, Any]) -> tuple[Any, Any]:
    """Return what a call of clip_by_global_norm that a trace records gives: results, and norm."""
    given["out"] = readable(given["out"])
    if given["use_norm"] is not None:
        return given["out"], given["use_norm"]
    t_list = given["t_list"] if isinstance(given["t_list"], (list, tuple)) else []
    dtypes = [t.dtype for t in each_as_slices(t_list) if hasattr(t, "dtype")]
    into = np.zeros((), dtypes[0] if dtypes else np.float32)
    return given["out"], global_norm(given["t_list"], out=into)


@writes("out", returns=_of_a_recorded_call)
def clip_by_global_norm(
    t_list: Any,
    clip_norm: Any,
    use_norm: Any = None,
    name: str | None = None,
    *,
    out: Any = None,
    nonfinite: str = "propagate",
) -> tuple[list[Any], Any]:
    """Scale tensors by one factor, so that the norm of them all is at most a limit.

    Parameters
    ----------
    t_list : sequence of arrays, Variables, IndexedSlices, sparse ones of scipy or torch, or None
        Of one float dtype; of several, if `use_norm` is given.
    clip_norm : float
        The largest norm. A negative one counts as 0, an infinite one clips nothing.
    use_norm : float, optional
        The norm, if it is known already; at least 0.
    name : str, optional
        Accepted as TensorFlow accepts it, and not used.
    out : list, optional
        Gets the results, each an array of its tensor's shape and dtype, or slices with such values,
        or None where the tensor is. It may be `t_list` itself; what is not clipped is then not
        written.
    nonfinite : {"propagate", "raise", "skip"}
        What a norm that is infinite or NaN does: every element of every tensor becomes NaN; or
        nothing is written and an error raised; or all tensors stay as they are, with a
        RuntimeWarning.

    Returns
    -------
    list_clipped : list
        An array for each tensor, IndexedSlices for IndexedSlices, None for None; the members of
        `out` if it was given.
    global_norm : NumPy scalar
        As :func:`global_norm` returns it; `use_norm` itself if it was given. Clipping uses the
        norm in float64, so it works where this one is infinite because its dtype cannot hold it.

    Raises
    ------
    InvalidArgumentError
        If `clip_norm` or `use_norm` is no scalar, the norm is not finite and `nonfinite` is
        "raise", or `out` does not fit.
    InvalidTypeError
        If `t_list` is no sequence, or its tensors are not of one float dtype.

    Notes
    -----
    TensorFlow's ``tf.clip_by_global_norm`` (tensorflow/python/ops/clip_ops.py).

    References
    ----------
    Pascanu, Mikolov, Bengio: On the difficulty of training recurrent neural networks, ICML 2013.

    Examples
    --------
    >>> import numpy as np
    >>> import tfopt
    >>> grads = [np.array([-2.0, 4.0]), None, np.array([1.0, -2.0])]
    >>> clipped, norm = tfopt.clip_by_global_norm(grads, 4.0)
    >>> clipped, float(norm)
    ([array([-1.6,  3.2]), None, array([ 0.8, -1.6])], 5.0)
    """
    t_list = each_as_slices(t_list)
    if out is None and (_any_recorded(t_list) or is_recorded(clip_norm, use_norm)):
        there = tuple(of_rows(t) for t in t_list if t is not None)
        kw = {"nonfinite": nonfinite}
        *made, shared = apply(BY_GLOBAL_NORM, (*there, clip_norm, use_norm), kw)
        scaled = iter(made)
        clipped = [t if t is None else _as_given(t, next(scaled)) for t in t_list]
        return clipped, shared if use_norm is None else use_norm
    backend = device_backend(t_list)
    if backend is not None:
        return backend.clip_by_global_norm(t_list, clip_norm, use_norm, out, nonfinite)
    check_policy(nonfinite)
    tensors = as_tensors(t_list, one_dtype=use_norm is None)
    limit = as_limit(clip_norm, "clip_norm")
    limit = 0.0 if limit < 0 else limit
    known = None if use_norm is None else as_limit(use_norm, "use_norm")
    if known is not None and known < 0:
        raise InvalidArgumentError(f"use_norm must not be negative: {known}")
    results = results_for(tensors, out)
    arrays = [t for t in tensors if t is not None]
    outs = [r for r in results if r is not None]
    if out is not None:
        check_separate(outs, arrays)
    root, exponent = norm(arrays) if known is None else (known, 0)
    value = use_norm
    if known is None:
        value = rounded(root, exponent, arrays[0].dtype if arrays else np.dtype(np.float32))
    if not math.isfinite(root):
        limit = math.inf if limit == math.inf or skips(nonfinite, root) else math.nan
    for single, pairs in by_type(outs, arrays, known is None):
        scale(*pairs, *factor(root, exponent, limit, single))
    if out is not None:
        return list(out), value
    return [wrapped(t, r, None) for t, r in zip(t_list, results, strict=True)], value


# ---- deprecated


@writes("out", returns="out")
def clip_by_average_norm(
    t: Any,
    clip_norm: Any,
    name: str | None = None,
    *,
    out: Any = None,
    nonfinite: str = "propagate",
) -> Any:
    """Scale a tensor whose norm, divided by its number of elements, is above a limit.

    Deprecated in TensorFlow 2.0: use ``clip_by_norm(t, clip_norm * t.size)``, which this is.

    Parameters
    ----------
    t : array of floats, Variable or IndexedSlices
        IndexedSlices need a `dense_shape`, and become an array of this shape: rows that occur
        several times are summed.
    clip_norm : float
        The largest average norm.
    name, out, nonfinite
        As in :func:`clip_by_norm`; of IndexedSlices, `out` is an array.

    Returns
    -------
    ndarray
        Of t's shape and dtype; `out` if it was given.

    Raises
    ------
    InvalidArgumentError
        As :func:`clip_by_norm` does; and if IndexedSlices have no `dense_shape`, or do not fit it.
    InvalidTypeError
        If t is not of floats.

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


# ---- what tapes record


def _any_recorded(t_list: Any) -> bool:
    return isinstance(t_list, (list, tuple)) and is_recorded(*t_list)


def _as_given(t: Any, made: Any) -> Any:
    return IndexedSlices(made, t.indices, t.dense_shape) if isinstance(t, IndexedSlices) else made


def _static(axes: Any) -> Any:
    return axes if axes is None else tuple(np.atleast_1d(axes).tolist())


def _scaled_together(*operands: Any, nonfinite: str) -> tuple[Any, ...]:
    *tensors, limit, known = operands
    clipped, shared = clip_by_global_norm(tensors, limit, known, nonfinite=nonfinite)
    return (*clipped, shared)


BY_VALUE = Op("ClipByValue", clip_by_value)
BY_NORM = Op("ClipByNorm", clip_by_norm)
GLOBAL_NORM = Op("GlobalNorm", lambda *tensors: global_norm(list(tensors)))
BY_GLOBAL_NORM = Op("ClipByGlobalNorm", _scaled_together, many=True)
