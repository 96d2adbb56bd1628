"""Arguments of NumPy's functions, as NumPy itself reads them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache, partial
from inspect import Signature, signature
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from tfopt.autodiff.operands import array_operand
from tfopt.autodiff.ops import FUNCTIONS
from tfopt.core.engine import Op, Operand, apply

__all__ = [
    "axes_of", "axis_of", "frozen", "into_zeros", "is_operation", "known", "only_read", "order_of",
    "parameters", "shell",
]  # fmt: skip


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
    """Return the order of the axes after a NumPy function has moved them."""
    if not kwargs and _INT.issuperset(map(type, args)):
        return _order(function, ndim, *args)
    kwargs = {name: known(value) for name, value in kwargs.items()}
    order: tuple[int, ...] = function(_axes(ndim), *map(known, args), **kwargs).shape
    return order


_INT = {int}


#: What functions take of which Python does not know it, before NumPy 2.4.
_UNKNOWN: dict[Any, Callable[..., Any]] = {
    np.bincount: lambda x, /, weights=None, minlength=0: None,
    np.vdot: lambda a, b, /: None, np.inner: lambda a, b, /: None,
}  # fmt: skip


@cache
def parameters(function: Any) -> Signature:
    """Return the signature of a NumPy function; for ufuncs, without their machinery."""
    if isinstance(function, np.ufunc):
        one: Any = lambda x, /: None  # noqa: E731
        return signature(one if function.nin == 1 else lambda x1, x2, /, *, axis=-1: None)
    try:
        return signature(function)
    except ValueError:
        return signature(_UNKNOWN[function])


def is_operation(function: Any, op: Op) -> Callable[..., Any]:
    """Let an operation handle a NumPy function whose arguments are all arrays."""
    count = len(parameters(function).parameters)

    def handler(*args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != count:
            args = parameters(function).bind(*args, **kwargs).args
        return apply(op, tuple(map(array_operand, args)))

    FUNCTIONS[function] = handler
    return handler


def only_read(function: Callable[..., Any], name: str, value: Any) -> None:
    """Fix the argument that would let a function write into its operand."""
    FUNCTIONS[function] = partial(_reading, FUNCTIONS[function], parameters(function), name, value)


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
    """Return elements where a function moves them, and zeros elsewhere."""
    numbers = 1 + np.arange(a.size).reshape(a.shape)
    return np.concatenate([np.zeros(1, a.dtype), np.ravel(a)])[function(numbers, *args)]
