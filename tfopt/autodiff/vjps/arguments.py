"""Arguments of NumPy's functions, as NumPy itself reads them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache, partial
from inspect import signature
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from tfopt.autodiff.ops import FUNCTIONS
from tfopt.core.engine import Operand

__all__ = ["axes_of", "axis_of", "frozen", "into_zeros", "known", "only_read", "order_of", "shell"]


def known(value: Any) -> Any:
    """Return the array of a tensor that decides shapes: in a trace it has to be a constant."""
    return np.asarray(value) if isinstance(value, Operand) else value


def axis_of(a: Any, axis: Any) -> int:
    """Return the number of an axis, counted from the first."""
    return normalize_axis_index(axis, a.ndim)


def axes_of(a: Any, axis: Any) -> list[int]:
    """Return the numbers of axes; of a scalar, which NumPy takes an axis 0 for, there are none."""
    if axis is None or not a.ndim:
        return list(range(a.ndim))
    axis = int(axis) if isinstance(axis, np.bool_) else axis
    return list(normalize_axis_tuple(axis, a.ndim))


def shell(a: Any) -> Any:
    """Return an array of the shape and the dtype of another that takes no memory."""
    return np.broadcast_to(np.zeros((), a.dtype), a.shape)


@cache
def _axes(ndim: int) -> Any:
    """Return an array, of nothing, the lengths of whose axes are their numbers."""
    return np.empty(range(ndim))


@lru_cache(256)
def _order(function: Callable[..., Any], ndim: int, *args: Any) -> tuple[int, ...]:
    order: tuple[int, ...] = function(_axes(ndim), *args).shape
    return order


def order_of(function: Callable[..., Any], ndim: int, *args: Any, **kwargs: Any) -> tuple[int, ...]:
    """Return the order into which a function of NumPy's brings axes."""
    if not kwargs and _INT.issuperset(map(type, args)):
        return _order(function, ndim, *args)
    kwargs = {name: known(value) for name, value in kwargs.items()}
    order: tuple[int, ...] = function(_axes(ndim), *map(known, args), **kwargs).shape
    return order


_INT = {int}


def only_read(function: Callable[..., Any], name: str, value: Any) -> None:
    """Have an argument with which a function may write into its operand allow no such thing."""
    FUNCTIONS[function] = partial(_reading, FUNCTIONS[function], signature(function), name, value)


def _reading(handler: Any, accepted: Any, name: str, value: Any, *args: Any, **kwargs: Any) -> Any:
    if len(args) > 1 or name in kwargs:
        bound = accepted.bind(*args, **kwargs)
        if bound.arguments.get(name, value) is not value:
            bool(bound.arguments[name])  # of an array that is an error in NumPy, too
            bound.arguments[name] = value
        args, kwargs = bound.args, bound.kwargs
    return handler(*args, **kwargs)


def frozen(value: Any) -> Any:
    """Return a list, which its owner may change, as a tuple."""
    return tuple(map(frozen, value)) if isinstance(value, list) else value


def into_zeros(function: Any, a: Any, *args: Any) -> Any:
    """Return elements as a function moves them, among zeros."""
    numbers = 1 + np.arange(a.size).reshape(a.shape)
    return np.concatenate([np.zeros(1, a.dtype), np.ravel(a)])[function(numbers, *args)]
