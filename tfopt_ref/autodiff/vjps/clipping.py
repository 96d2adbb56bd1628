"""Rules of clipping, and the decorator by which its functions get them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt_ref.autodiff.nest import flatten, map_leaves
from tfopt_ref.autodiff.ops import Op, Rows, Rule, closed, opened
from tfopt_ref.autodiff.tensor import STATE, Operand, Tensor

__all__ = ["recorded"]


def recorded(*rules: Rule) -> Callable[[Any], Any]:
    """Let a function of arrays, without `out`, make tensors of tensors.

    Of variables, too, while something is recording.
    """

    def decorator(function: Callable[..., Any]) -> Callable[..., Any]:
        def on_arrays(*args: Any, **kwargs: Any) -> Any:
            made = opened(function(*closed(list(args)), **closed(kwargs)))
            return map_leaves(lambda x: np.asarray(x) if isinstance(x, (int, float)) else x, made)

        op = Op(on_arrays, *rules, name=function.__name__)

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            call = opened((args, kwargs))
            kinds = Operand if STATE.recorders else Tensor
            tensors = any(isinstance(leaf, kinds) for leaf in flatten(call))
            if kwargs.get("out") is not None or not tensors:
                return function(*args, **kwargs)
            return closed(op(*call[0], **call[1]))

        return wrapped

    return decorator


def _values(t: Any) -> Any:
    return t.values if isinstance(t, Rows) else t


def _like(t: Any, grad: Any) -> Any:
    """Return a gradient in the structure of its argument: rows' numbers have none."""
    return (
        Rows(grad, None, map_leaves(lambda n: None, t.dense_shape)) if isinstance(t, Rows) else grad
    )


# ---- by value


def _value_t(
    g: Any, y: Any, t: Any, clip_value_min: Any, clip_value_max: Any, name: Any = None
) -> Any:
    values, g = _values(t), _values(g)
    above = values > clip_value_max
    return _like(
        t, np.where(above | (np.where(above, clip_value_max, values) < clip_value_min), 0, g)
    )


def _value_low(
    g: Any, y: Any, t: Any, clip_value_min: Any, clip_value_max: Any, name: Any = None
) -> Any:
    t, g = _values(t), _values(g)
    return np.where(np.minimum(t, clip_value_max) < clip_value_min, g, 0)


def _value_high(
    g: Any, y: Any, t: Any, clip_value_min: Any, clip_value_max: Any, name: Any = None
) -> Any:
    t, g = _values(t), _values(g)
    return np.where((t > clip_value_max) & ~(clip_value_max < clip_value_min), g, 0)


BY_VALUE = (_value_t, _value_low, _value_high)

# ---- by norm

_scale = Op(
    lambda t, axes: 0.5 ** np.frexp(np.max(np.abs(t), axes, keepdims=True, initial=0))[1],
    None,
    name="power_of_two",
)


def _unit(t: Any, axes: Any) -> tuple[Any, Any]:
    """Return slices divided by their norms, and the norms; zeros stay zeros."""
    scale = _scale(t, axes)  # whose squares neither overflow nor vanish
    scaled = t.astype(np.float64) * scale
    root = np.sqrt(np.sum(scaled * scaled, axes, keepdims=True))
    return np.where(root == 0, 0, scaled / root), root / scale


def _norm_t(
    g: Any,
    y: Any,
    t: Any,
    clip_norm: Any,
    axes: Any = None,
    name: Any = None,
    *,
    nonfinite: Any = "",
) -> Any:
    values, g = _values(t), _values(g)
    axes = None if axes is None else tuple(np.atleast_1d(axes))
    unit, norm = _unit(values, axes)
    limit = np.maximum(clip_norm, 0)
    along = np.sum(unit * g, axes, keepdims=True)
    across = np.where(norm == 0, 0, limit / norm * (g - unit * along))
    return _like(t, np.where(~(norm < limit) & (limit != np.inf), across, g))


def _norm_limit(
    g: Any,
    y: Any,
    t: Any,
    clip_norm: Any,
    axes: Any = None,
    name: Any = None,
    *,
    nonfinite: Any = "",
) -> Any:
    values, g = _values(t), _values(g)
    axes = None if axes is None else tuple(np.atleast_1d(axes))
    unit, norm = _unit(values, axes)
    counts = ~(norm < clip_norm) & (clip_norm >= 0) & (clip_norm != np.inf)
    return np.where(counts, unit * g, 0)


BY_NORM = (_norm_t, _norm_limit)

# ---- by the norm of many tensors


def _global_norm(g: Any, y: Any, t_list: Any, name: Any = None) -> Any:
    return [
        None if t is None else _like(t, np.where(y == 0, 0, g * _values(t) / y)) for t in t_list
    ]


def _globally(g: Any, y: Any, t_list: Any, clip_norm: Any, use_norm: Any) -> tuple[Any, Any, Any]:
    """Return the factor of all tensors, and what goes back to the limit and to the norm."""
    (grads, to_norm), norm = g, y[1] if use_norm is None else use_norm
    limit = np.maximum(clip_norm, 0)
    clipped = norm > limit
    along = sum(
        np.sum(_values(t) * _values(grad))
        for t, grad in zip(t_list, grads, strict=True)
        if t is not None
    )
    factor = np.where(clipped, limit / norm, 1)
    back_to_norm = np.where(clipped, -along * limit / norm / norm, 0)
    if isinstance(to_norm, Operand):
        back_to_norm = back_to_norm + to_norm
    return factor, np.where(clipped & (clip_norm >= 0), along / norm, 0), back_to_norm


def _global_t(
    g: Any, y: Any, t_list: Any, clip_norm: Any, use_norm: Any = None, name: Any = None, *,
    nonfinite: Any = "",
) -> Any:  # fmt: skip
    factor, _, to_norm = _globally(g, y, t_list, clip_norm, use_norm)
    if use_norm is None:
        parts = _global_norm(to_norm, y[1], t_list)
    else:
        parts = [None if t is None else _like(t, np.zeros_like(_values(t))) for t in t_list]
    return [
        None if t is None else _like(t, _values(grad) * factor + _values(part))
        for t, grad, part in zip(t_list, g[0], parts, strict=True)
    ]


def _global_limit(
    g: Any, y: Any, t_list: Any, clip_norm: Any, use_norm: Any = None, name: Any = None, *,
    nonfinite: Any = "",
) -> Any:  # fmt: skip
    return _globally(g, y, t_list, clip_norm, use_norm)[1]


def _global_used(
    g: Any, y: Any, t_list: Any, clip_norm: Any, use_norm: Any = None, name: Any = None, *,
    nonfinite: Any = "",
) -> Any:  # fmt: skip
    return _globally(g, y, t_list, clip_norm, use_norm)[2]


BY_GLOBAL_NORM = (_global_t, _global_limit, _global_used)
GLOBAL_NORM = (_global_norm,)
