"""Clipping as operations of tapes: each function with the rules of its arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt_ref import clip_ops
from tfopt_ref.autodiff.nest import flatten, map_leaves
from tfopt_ref.autodiff.ops import Op, Rule
from tfopt_ref.autodiff.tensor import STATE, Operand, Tensor


def recorded(function: Callable[..., Any], *rules: Rule) -> Callable[..., Any]:
    """Return a function of arrays as a function that takes and returns tensors.

    While a tape records, it takes variables, too.
    """

    def on_arrays(*args: Any, **kwargs: Any) -> Any:
        made = function(*args, **kwargs)
        return map_leaves(lambda x: np.asarray(x) if isinstance(x, (int, float)) else x, made)

    op = Op(on_arrays, *rules, name=function.__name__)

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        kinds = Operand if STATE.tapes else Tensor
        tensors = any(isinstance(leaf, kinds) for leaf in flatten((args, kwargs)))
        return op(*args, **kwargs) if tensors else function(*args, **kwargs)

    return wrapped


# ---- one tensor: the formulas of `clip_ops`

_by_value, _by_norm = Op(clip_ops.clip_by_value_grad), Op(clip_ops.clip_by_norm_grad)


def _value(place: int) -> Rule:
    return lambda g, y, t, clip_value_min, clip_value_max: _by_value(
        g, t, clip_value_min, clip_value_max
    )[place]


def _norm(place: int) -> Rule:
    return lambda g, y, t, clip_norm, axes=None: _by_norm(g, t, clip_norm, axes)[place]


clip_by_value = recorded(clip_ops.clip_by_value, _value(0), _value(1), _value(2))
clip_by_norm = recorded(clip_ops.clip_by_norm, _norm(0), _norm(1))


def clip_by_average_norm(t: Any, clip_norm: Any) -> Any:
    """Scale a tensor down to clip_norm if its norm divided by its number of elements is larger."""
    return clip_by_norm(t, clip_norm * np.size(t))


# ---- by the norm of many tensors


def _global_norm(g: Any, y: Any, t_list: Any) -> Any:
    return [None if t is None else np.where(y == 0, 0, g * t / y) for t in t_list]


global_norm = recorded(clip_ops.global_norm, _global_norm)


def _globally(g: Any, y: Any, t_list: Any, clip_norm: Any, use_norm: Any) -> tuple[Any, Any, Any]:
    """Return the factor of all tensors, and the gradients of the limit and of the norm."""
    (grads, to_norm), norm = g, y[1] if use_norm is None else use_norm
    limit = np.maximum(clip_norm, 0)
    clipped = norm > limit
    along = sum(np.sum(t * h) for t, h in zip(t_list, grads, strict=True) if t is not None)
    factor = np.where(clipped, limit / norm, 1)
    back_to_norm = np.where(clipped, -along * limit / norm / norm, 0)
    if isinstance(to_norm, Operand):
        back_to_norm = back_to_norm + to_norm
    return factor, np.where(clipped & (clip_norm >= 0), along / norm, 0), back_to_norm


def _global_t(g: Any, y: Any, t_list: Any, clip_norm: Any, use_norm: Any = None) -> Any:
    factor, _, to_norm = _globally(g, y, t_list, clip_norm, use_norm)
    scaled = [None if t is None else h * factor for t, h in zip(t_list, g[0], strict=True)]
    if use_norm is not None:
        return scaled
    parts = _global_norm(to_norm, y[1], t_list)
    return [None if h is None else h + part for h, part in zip(scaled, parts, strict=True)]


def _global_limit(g: Any, y: Any, t_list: Any, clip_norm: Any, use_norm: Any = None) -> Any:
    return _globally(g, y, t_list, clip_norm, use_norm)[1]


def _global_used(g: Any, y: Any, t_list: Any, clip_norm: Any, use_norm: Any = None) -> Any:
    return _globally(g, y, t_list, clip_norm, use_norm)[2]


clip_by_global_norm = recorded(clip_ops.clip_by_global_norm, _global_t, _global_limit, _global_used)
