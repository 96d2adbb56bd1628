"""The norm of many tensors, and clipping by it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tfopt.clip_ops.scaling import Nonfinite, by_type, check_policy, rounded, scale, skips
from tfopt.clip_ops.validation import (
    FLOATS,
    as_limit,
    as_tensors,
    check_separate,
    device_backend,
    is_recorded,
    of_rows,
    results_for,
    with_values,
    wrapped,
)
from tfopt.core.effects import readable, writes
from tfopt.core.engine import Op, apply
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.kernels.reduce.norms import norm
from tfopt.kernels.update.clip import factor
from tfopt.sparse_conversion import each_as_slices

__all__ = ["BY_GLOBAL_NORM", "GLOBAL_NORM", "clip_by_global_norm", "global_norm"]


@writes("out", returns="out")
def global_norm(t_list: Any, name: str | None = None, *, out: Any = None, dtype: Any = None) -> Any:
    """Return the 2-norm of all elements of all tensors.

    Parameters
    ----------
    t_list : sequence of arrays, Variables, IndexedSlices, SciPy or torch sparse tensors, or None
        All of one float dtype, unless `dtype` is given. None is skipped; of IndexedSlices the
        values are used.
    name : str, optional
        Accepted for compatibility with TensorFlow and ignored.
    out : array of shape () and the result's dtype, optional
        Receives the norm.
    dtype : dtype, optional
        That of the result: a float dtype; by default the tensors'. float64 is what the norm is
        computed in, so that a norm of bfloat16 tensors is not rounded to 8 bits.

    Returns
    -------
    NumPy scalar
        In `dtype`, or the tensors' dtype; infinite if that cannot represent the norm. `out` if
        given. 0 as float32 if there are no tensors and no `dtype`.

    Raises
    ------
    InvalidTypeError
        If `t_list` is not a sequence, or its tensors do not have one float dtype; if `dtype` is
        not a float dtype.

    Notes
    -----
    TensorFlow's ``tf.linalg.global_norm`` (tensorflow/python/ops/clip_ops.py). The error is half a
    unit in the last place, the rounding of the result, even for a hundred million elements.

    Examples
    --------
    >>> import numpy as np
    >>> import tfopt
    >>> float(tfopt.global_norm([np.array([-2.0, 4.0]), None, np.array([1.0, -2.0])]))
    5.0
    >>> half = np.full(100, 9.9803, np.float16)
    >>> float(tfopt.global_norm([half])), float(tfopt.global_norm([half], dtype=np.float64))
    (99.75, 99.765625)
    """
    t_list, asked = each_as_slices(t_list), None if dtype is None else _float_dtype(dtype)
    if out is None and _any_recorded(t_list):
        kw = {} if asked is None else {"dtype": asked}
        return apply(GLOBAL_NORM, tuple(of_rows(t) for t in t_list if t is not None), kw)
    backend = device_backend(t_list)
    if backend is not None:
        return backend.global_norm(t_list, out, asked)
    tensors = [t for t in as_tensors(t_list, one_dtype=asked is None) if t is not None]
    own = tensors[0].dtype if tensors else np.dtype(np.float32)
    of = own if asked is None else asked
    into = None
    if out is not None:
        (into,) = results_for([np.empty((), of)], [out])
    value = rounded(*norm(tensors), of)
    if into is None:
        return value
    into[...] = value
    return out


def _float_dtype(given: Any) -> np.dtype[Any]:
    """Return the dtype of a result."""
    try:
        dtype: np.dtype[Any] = np.dtype(given)
    except TypeError:
        raise InvalidTypeError(f"dtype must be a float dtype, not {given!r}") from None
    if dtype.name not in FLOATS:
        raise InvalidTypeError(f"dtype must be one of {', '.join(FLOATS)}, not {dtype}")
    return dtype


def _of_a_recorded_call(arguments: dict[str, Any]) -> tuple[Any, Any]:
    """Return the results and the norm of a clip_by_global_norm call recorded by a trace."""
    arguments["out"] = readable(arguments["out"])
    if arguments["use_norm"] is not None:
        return arguments["out"], arguments["use_norm"]
    t_list = arguments["t_list"] if isinstance(arguments["t_list"], (list, tuple)) else []
    dtypes = [t.dtype for t in each_as_slices(t_list) if hasattr(t, "dtype")]
    into = np.zeros((), dtypes[0] if dtypes else np.float32)
    return arguments["out"], global_norm(arguments["t_list"], out=into)


@writes("out", returns=_of_a_recorded_call)
def clip_by_global_norm(
    t_list: Any,
    clip_norm: Any,
    use_norm: Any = None,
    name: str | None = None,
    *,
    out: Any = None,
    nonfinite: Nonfinite = "propagate",
) -> tuple[list[Any], Any]:
    """Scale tensors by a common factor, so that their global norm is at most a limit.

    Parameters
    ----------
    t_list : sequence of arrays, Variables, IndexedSlices, SciPy or torch sparse tensors, or None
        All of one float dtype, unless `use_norm` is given.
    clip_norm : float
        The largest norm. A negative limit is treated as 0; an infinite one clips nothing.
    use_norm : float, optional
        The global norm, if already known; at least 0.
    name : str, optional
        Accepted for compatibility with TensorFlow and ignored.
    out : list, optional
        Receives the results: for each tensor an array of its shape and dtype, slices with such
        values, or None if the tensor is None. It may be `t_list` itself; then tensors that are not
        clipped are not written.
    nonfinite : {"propagate", "raise", "skip"}
        What to do if the norm is infinite or NaN. "propagate": every element of every tensor
        becomes NaN. "raise": raise an error and write nothing. "skip": leave all tensors unchanged
        and issue a RuntimeWarning.

    Returns
    -------
    list_clipped : list
        An array for each tensor, IndexedSlices for IndexedSlices, None for None; the members of
        `out` if given.
    global_norm : NumPy scalar
        As :func:`global_norm` returns it; `use_norm` itself if given. Clipping uses the norm in
        float64, so it also works if this one is infinite because the dtype cannot represent it.

    Raises
    ------
    InvalidArgumentError
        If `clip_norm` or `use_norm` is not a scalar, the norm is not finite and `nonfinite` is
        "raise", or `out` does not match the tensors.
    InvalidTypeError
        If `t_list` is not a sequence, or its tensors do not have one float dtype.

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
        operands = tuple(of_rows(t) for t in t_list if t is not None)
        kw = {"nonfinite": nonfinite}
        *results, shared = apply(BY_GLOBAL_NORM, (*operands, clip_norm, use_norm), kw)
        remaining = iter(results)
        clipped = [t if t is None else with_values(t, next(remaining)) for t in t_list]
        return clipped, shared if use_norm is None else use_norm
    backend = device_backend(t_list)
    if backend is not None:
        there: tuple[list[Any], Any]
        there = backend.clip_by_global_norm(t_list, clip_norm, use_norm, out, nonfinite)
        return there
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


def _any_recorded(t_list: Any) -> bool:
    return isinstance(t_list, (list, tuple)) and is_recorded(*t_list)


def _scaled_together(*operands: Any, nonfinite: Nonfinite) -> tuple[Any, ...]:
    *tensors, limit, known = operands
    clipped, shared = clip_by_global_norm(tensors, limit, known, nonfinite=nonfinite)
    return (*clipped, shared)


GLOBAL_NORM = Op("GlobalNorm", lambda *tensors, **kw: global_norm(list(tensors), **kw))
BY_GLOBAL_NORM = Op("ClipByGlobalNorm", _scaled_together, many=True)
