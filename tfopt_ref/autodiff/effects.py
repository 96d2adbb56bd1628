"""The gate that every write passes: recorded in a function that is being traced, else made at once.

Before variables are written, the tensors that share their memory are given copies.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np

from tfopt_ref.autodiff.indexed_slices import IndexedSlices
from tfopt_ref.autodiff.nest import flatten, map_leaves, pack
from tfopt_ref.autodiff.tensor import STATE, Tensor, setting
from tfopt_ref.errors import InvalidArgumentError

__all__ = [
    "computes",
    "gated",
    "is_tracing",
    "prepare_writes",
    "readable",
    "use_variables",
    "writes",
]

F = TypeVar("F", bound=Callable[..., Any])
#: A parameter's name, or a function of the arguments by name; None: a recorded call returns None.
Returns = str | Callable[[dict[str, Any]], Any] | None


def writes(*names: str, returns: Returns = None) -> Callable[[F], F]:
    """Say that a function writes into the arguments of these names, variables, arrays or lists.

    A call that has None for all of them writes nothing; without names a function prepares its
    writes itself. `returns` says what a call that a trace records returns.
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return gated(wrapped, function, signature.bind(*args, **kwargs), names, returns)

        return wrapped  # type: ignore[return-value]

    return decorate


def computes(function: F) -> F:
    """Let a trace record a function that only reads: each replay computes its results anew."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if not is_tracing():
            return function(*args, **kwargs)
        with setting(recorders=()):
            given = map_leaves(_value, (list(args), kwargs))
            made = function(*given[0], **given[1])  # by the values of the call that is traced
        numbers = (np.ndarray, np.generic, float)
        results = [
            readable(np.array(leaf)) if isinstance(leaf, numbers) else leaf
            for leaf in flatten(made)
        ]
        STATE.recorders[0].take_effect(_compute, (function, args, kwargs, results), {})
        return pack(made, results)

    return wrapped  # type: ignore[return-value]


def _value(leaf: Any) -> Any:
    return leaf.array if isinstance(leaf, Tensor) else leaf


def _compute(function: Callable[..., Any], args: Any, kwargs: Any, results: list[Any]) -> None:
    given = map_leaves(_value, (list(args), kwargs))
    prepare_writes(results)
    for result, value in zip(results, flatten(function(*given[0], **given[1])), strict=True):
        if hasattr(result, "before_write"):
            result.numpy()[...] = value


def is_tracing() -> bool:
    """Say whether a function is being traced."""
    return bool(STATE.recorders) and STATE.recorders[0].scope is not None


def gated(
    public: Callable[..., Any],
    function: Callable[..., Any],
    given: inspect.BoundArguments,
    names: Iterable[str],
    returns: Returns,
) -> Any:
    """Make a call that writes, or write it down: as one of the public function, for replays."""
    written = {name: given.arguments.get(name) for name in names}
    if written and all(value is None for value in written.values()):
        return function(*given.args, **given.kwargs)
    if not is_tracing():
        prepare_writes(written.values())
        return function(*given.args, **given.kwargs)
    for name, value in written.items():
        if any(isinstance(leaf, Tensor) for leaf in flatten([value])):
            raise InvalidArgumentError(
                f"{name} is a Tensor, which does not change: write into a Variable or an array"
            )
    for name, value in given.arguments.items():
        if isinstance(value, Iterator):  # which each replay goes through
            given.arguments[name] = list(value)
    if isinstance(returns, str):
        result = given.arguments[returns] = readable(given.arguments[returns])
    else:
        result = returns(given.arguments) if returns else None
    STATE.recorders[0].take_effect(public, given.args, given.kwargs)
    return map_leaves(_shown, result)


def prepare_writes(operands: Iterable[Any]) -> None:
    """Give tensors that share the memory of variables copies of their own."""
    for operand in flatten(list(operands)):
        if hasattr(operand, "before_write"):
            operand.before_write()


_variables: list[type[Any]] = []
C = TypeVar("C", bound=type[Any])


def use_variables(cls: C) -> C:
    """Have arrays become variables of a class, whose own methods pass the gate."""
    _variables[:] = [cls]
    return cls


def readable(value: Any) -> Any:
    """Return arrays as variables, which a trace reads when they are used, not when it sees them."""

    def as_variable(leaf: Any) -> Any:
        return _variables[0](leaf, trainable=False) if _is_written_array(leaf) else leaf

    with setting(recorders=()):  # the function makes none
        return map_leaves(as_variable, value)


def _is_written_array(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.flags.writeable


def _shown(leaf: Any) -> Any:
    """Return what was written as what may be used of it: rows as they are now."""
    if isinstance(leaf, IndexedSlices):
        return IndexedSlices(readable(leaf.values).read(), leaf.indices, leaf.dense_shape)
    return leaf
