"""Operations as expressions in generated programs, where a function call would cost too much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfopt.core.engine import Node

__all__ = ["Call", "reduction"]


class Call:
    """An operation's call in a program that is being written.

    `Op.expression` is called with one, and returns Python's expression for it; None: there is none
    for such arguments.

    Parameters
    ----------
    node : Node
    args : list of str
        The inputs as they are written.
    constant : callable
        Of an object, and the name it should have; returns the name that stands for it.
    """

    def __init__(
        self, node: Node, args: list[str], constant: Callable[[Any, str | None], str]
    ) -> None:
        self.node, self.args, self.kw = node, args, node.kw or {}
        self._constant = constant

    def constant(self, value: Any, name: str | None = None) -> str:
        """Return the name that stands for an object."""
        return self._constant(value, name)

    def keyword(self, name: str) -> str:
        """Return how a keyword's value is written: by itself, or as a constant."""
        value = self.kw.get(name)
        return repr(value) if _is_literal(value) else self.constant(value)


def _is_literal(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_literal, value))
    return value is None or type(value) in (bool, int, str)


def reduction(reduce: Callable[..., Any], name: str) -> Callable[[Call], str]:
    """Return what writes a ufunc's `reduce`, whose arguments are fastest by position."""

    def expression(call: Call) -> str:
        keepdims = ", None, None, True" if call.kw.get("keepdims") else ""
        return f"{call.constant(reduce, name)}({call.args[0]}, {call.keyword('axis')}{keepdims})"

    return expression
