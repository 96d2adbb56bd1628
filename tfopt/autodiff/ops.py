"""The table of NumPy's functions: the operation of each on tensors.

A ufunc in the table is an operation (:class:`Op`); any other function is a handler, which takes
NumPy's arguments and carries operations out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from tfopt.core import engine
from tfopt.core.engine import Op

__all__ = [
    "ACCUMULATIONS",
    "CALLS",
    "FUNCTIONS",
    "LATER",
    "METHODS",
    "REDUCTIONS",
    "SEGMENTS",
    "UFUNCS",
    "Op",
    "elementwise",
    "implements",
    "method",
]

Handler = TypeVar("Handler", bound=Callable[..., Any])
#: A rule and the letters of what it reads, CUT, or None.
Rule = Any

UFUNCS: dict[Any, Op] = {}
FUNCTIONS: dict[Any, Callable[..., Any]] = {}
METHODS: dict[str, Callable[..., Any]] = {}
#: What ``ufunc.reduce`` is.
REDUCTIONS: dict[Any, Callable[..., Any]] = {}
#: What a ufunc is that is called with keywords.
CALLS: dict[Any, Callable[..., Any]] = {}

#: What may know rules of a ufunc that is not in the table, and put it there.
LATER: list[Callable[[np.ufunc], Op | None]] = []

#: What ``ufunc.accumulate`` is.
ACCUMULATIONS: dict[Any, Callable[..., Any]] = {}

#: What ``ufunc.reduceat`` is.
SEGMENTS: dict[Any, Callable[..., Any]] = {}


def elementwise(ufunc: np.ufunc, *rules: Rule, out_by_name: bool = False) -> Op:
    """Put a ufunc into the table, with a rule for each input (see `Op.define`)."""
    known = engine.OPERATORS.get(ufunc.__name__)
    op = known or Op(ufunc.__name__, ufunc, out_by_name=out_by_name)
    op.define(*rules)
    UFUNCS[ufunc] = op
    return op


def implements(*functions: Any) -> Callable[[Handler], Handler]:
    """Make a function the handler of NumPy's functions."""

    def decorator(handler: Handler) -> Handler:
        FUNCTIONS.update(dict.fromkeys(functions, handler))
        return handler

    return decorator


def method(*names: str) -> Callable[[Handler], Handler]:
    """Make a function a method of tensors and variables."""

    def decorator(handler: Handler) -> Handler:
        METHODS.update(dict.fromkeys(names, handler))
        return handler

    return decorator
