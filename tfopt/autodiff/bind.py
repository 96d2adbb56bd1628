"""Callables, including methods, whose calls another function carries out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

__all__ = ["Bind"]

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")

Decorated = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class Bind(Generic[P, R]):
    """A function whose calls go through another one, also as a method.

    Parameters
    ----------
    f : callable
        As a method it is bound first, so that `self` is not one of the arguments.
    d : callable
        Called as ``d(f, args, kwargs)``.

    Notes
    -----
    TensorFlow's class of the same name (tensorflow/python/ops/custom_gradient.py).

    Examples
    --------
    >>> from tfopt import Bind
    >>> @Bind.decorator
    ... def twice(f, args, kwargs):
    ...     return 2 * f(*args, **kwargs)
    >>> @twice
    ... def three():
    ...     return 3
    >>> three()
    6
    """

    def __init__(self, f: Callable[P, Any], d: Decorated) -> None:
        functools.update_wrapper(self, f)
        self._f: Any = f
        self._d: Any = d

    @classmethod
    def decorator(cls, d: Decorated) -> Callable[[Callable[Q, Any]], Bind[Q, Any]]:
        """Return a decorator whose functions are called through `d`."""
        made: Any = cls
        return lambda f: made(f, d)

    @overload
    def __get__(self, instance: None, owner: Any) -> Self: ...
    @overload
    def __get__(self: Bind[Concatenate[Any, Q], R], instance: object, owner: Any) -> Bind[Q, R]: ...
    def __get__(self, instance: Any, owner: Any) -> Any:
        if instance is None:
            return self
        method = self._f.__get__(instance, owner) if hasattr(self._f, "__get__") else self._f
        bound = type(self).__new__(type(self))
        bound.__dict__ = {**self.__dict__, "_f": method, "__wrapped__": method}
        return bound

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        # since Python 3.13 `classmethod` hands the class over instead of binding
        if args and isinstance(args[0], type) and hasattr(self._f, "__get__"):
            bound: Any = self.__get__(args[0], type(args[0]))
            result: R = bound(*args[1:], **kwargs)
        else:
            result = self._d(self._f, args, kwargs)
        return result
