"""Gradients by name: registered, cut, and put in the place of others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from tfopt_ref.autodiff.tensor import STATE, TABLE, setting

__all__ = [
    "NoGradient",
    "NotDifferentiable",
    "RegisterGradient",
    "gradient_override_map",
    "no_gradient",
]

#: Functions of a node and its upstream gradients, by name; None cuts.
REGISTRY: dict[str, Callable[..., Any] | None] = {}
_places: dict[str, str] = {}


class RegisterGradient:
    """Decorator that registers a function of an operation and its upstreams as a gradient."""

    def __init__(self, op_type: str) -> None:
        self._name = _checked(op_type)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Register the function, and return it."""
        code = getattr(function, "__code__", None)
        place = f"{code.co_filename}:{code.co_firstlineno}" if code else "?"
        _register(self._name, function, f"{getattr(function, '__name__', function)} {place}")
        return function


def no_gradient(op_type: str) -> None:
    """Say that nothing goes back through operations of a name."""
    _register(_checked(op_type), None, "None no_gradient")


NoGradient = NotDifferentiable = no_gradient


def _checked(op_type: Any) -> str:
    if not isinstance(op_type, str):
        raise TypeError("op_type must be a string")
    return op_type


def _register(name: str, function: Callable[..., Any] | None, place: str) -> None:
    built_in = {getattr(op, "name", None) for op in TABLE.values() if hasattr(op, "rules")}
    if name in REGISTRY or name in built_in:
        raise KeyError(
            f"Registering two gradient with name '{name}'! (Previous registration was in "
            f"{_places.get(name, 'the table of rules')})"
        )
    REGISTRY[name], _places[name] = function, place


@contextlib.contextmanager
def gradient_override_map(op_type_map: dict[str, str]) -> Iterator[None]:
    """Let operations, carried out in a ``with``, have the registered gradients of other names."""
    if not isinstance(op_type_map, dict) or not all(
        isinstance(name, str) for pair in op_type_map.items() for name in pair
    ):
        raise TypeError("op_type_map must be a dictionary mapping strings to strings")
    with setting(overrides={**STATE.overrides, **op_type_map}):
        yield
