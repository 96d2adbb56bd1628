"""The parameters of functions that are called again and again, without `inspect.signature`."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any, NamedTuple

__all__ = ["Parameters"]


class Parameters(NamedTuple):
    """The parameters of a function that can be given by name.

    Parameters
    ----------
    by_name : tuple of str
        In order. Positional-only ones are included, since a call that names one fails anyway.
    keyword_only : frozenset of str
    var_keyword : bool
        Whether it takes any other keyword, too.
    """

    by_name: tuple[str, ...]
    keyword_only: frozenset[str]
    var_keyword: bool

    @classmethod
    def of(cls, f: Callable[..., Any]) -> Parameters:
        """Return the parameters of a function: of a plain one from its code, which is fast."""
        function = f.__func__ if type(f) is MethodType else f
        if type(function) is FunctionType and not function.__dict__:
            code = function.__code__
            first, n = int(function is not f), code.co_argcount
            names = code.co_varnames[: n + code.co_kwonlyargcount]
            only = frozenset(names[n:])
            return cls(names[first:], only, bool(code.co_flags & inspect.CO_VARKEYWORDS))
        try:
            if f not in _INSPECTED:
                _INSPECTED[f] = _inspected(f)
            return _INSPECTED[f]
        except TypeError:  # no hash, or no weak references
            return _inspected(f)


_INSPECTED: weakref.WeakKeyDictionary[Any, Parameters] = weakref.WeakKeyDictionary()


def _inspected(f: Callable[..., Any]) -> Parameters:
    parameters = inspect.signature(f).parameters
    kinds = inspect.Parameter
    by_name = [name for name, p in parameters.items() if p.kind not in _VARIADIC]
    return Parameters(
        tuple(by_name),
        frozenset(name for name, p in parameters.items() if p.kind is kinds.KEYWORD_ONLY),
        any(p.kind is kinds.VAR_KEYWORD for p in parameters.values()),
    )


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
