"""Functions whose value is NumPy's, and whose gradients are those of a composition.

The composition is other functions that have rules, and is carried out only when a gradient passes,
on tensors that a tape of its own records: so it has gradients of every order, and takes what it
says it takes. Anything else that NumPy's function takes is a `LookupError` then.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from tfopt.autodiff.backward import cast
from tfopt.autodiff.dispatch import Arguments, carried_out, without_rule
from tfopt.autodiff.operands import as_tensor
from tfopt.autodiff.ops import FUNCTIONS, METHODS
from tfopt.autodiff.tape import GradientTape
from tfopt.core import engine
from tfopt.core.engine import CUT, Tensor
from tfopt.core.nest import flatten
from tfopt.indexed_slices import densify

__all__ = ["composed", "constant_of", "moved", "with_gradients_of"]

Composition = TypeVar("Composition", bound=Callable[..., Any])


def composed(
    *functions: Any, methods: Sequence[str] = (), sized_by: tuple[int, str] | None = None
) -> Callable[[Composition], Composition]:
    """Give functions the gradients of a composition, which takes the same arguments.

    Parameters
    ----------
    *functions : callable
        NumPy's.
    methods : sequence of str
        Methods of tensors that are the same.
    sized_by : tuple of (int, str), optional
        The place and the name of an argument whose values, if it is a tensor, decide the result's
        shape; else the shapes of the arguments, and what is no tensor, do.
    """

    def decorator(composition: Composition) -> Composition:
        for function in functions:
            engine.RULED.add(function.__name__)
            handler = _handler(function, composition, sized_by)
            FUNCTIONS[function] = handler
            METHODS.update(dict.fromkeys(methods, handler))
        return composition

    return decorator


def _handler(
    function: Callable[..., Any],
    composition: Callable[..., Any],
    sized_by: tuple[int, str] | None,
) -> Callable[..., Any]:
    def handler(*args: Any, **kwargs: Any) -> Any:
        sized = sized_by is None or not _is_tensor(args, kwargs, *sized_by)
        return with_gradients_of(composition, function, args, kwargs, sized=sized)

    return handler


def _is_tensor(args: Any, kwargs: Any, place: int, name: str) -> bool:
    value = args[place] if place < len(args) else kwargs.get(name)
    return any(isinstance(leaf, engine.Operand) for leaf in flatten(value))


def with_gradients_of(
    composition: Callable[..., Any], function: Callable[..., Any], args: Any, kwargs: Any,
    name: str = "", sized: bool = True,
) -> Any:  # fmt: skip
    """Carry a function out, with the gradients of a composition."""
    arguments = Arguments(args, kwargs)
    name = name or function.__name__

    def back(upstreams: Any, outs: Any, ins: Any, kw: Any, need: list[bool]) -> list[Any]:
        _check_taken(name, composition, *arguments.structure)
        inputs = [np.copy(x if isinstance(x, Tensor) else engine.wrapped(x)) for x in ins]
        need = [engine.is_differentiable(x) and n for x, n in zip(inputs, need, strict=True)]
        wanted = [x for x, needed in zip(inputs, need, strict=True) if needed]
        given_args, given_kwargs = arguments.filled(inputs)
        with GradientTape() as tape:
            tape.watch(wanted)
            results = flatten(composition(*given_args, **given_kwargs))
        targets, seeds = [], []
        for number, (y, g) in enumerate(zip(results, upstreams, strict=True)):
            if g is not None and y is None:
                raise LookupError(f"no gradient of result {number} of {name}, called so")
            if g is not None:
                targets.append(as_tensor(y))
                seeds.append(cast(g, targets[-1].dtype))
        found = iter(tape.gradient(targets, wanted, seeds))
        return [densify(next(found)) if needed else None for needed in need]

    return carried_out(
        name, function, args, kwargs, lambda op, count: op.define_jointly(back, "*"), sized
    )


def _check_taken(name: str, composition: Callable[..., Any], args: Any, kwargs: Any) -> None:
    try:
        inspect.signature(composition).bind(*args, **kwargs)
    except TypeError as error:
        raise LookupError(f"no gradient of {name} when it is called so: {error}") from None


def constant_of(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Carry out what has no gradient: what finds places, say."""
    return without_rule(function.__name__, function, args, kwargs, CUT)


def moved(function: Callable[..., Any], a: Any, *args: Any, **kwargs: Any) -> Any:
    """Return elements as a function moves them: found by what it makes of their numbers."""
    numbers = np.empty_like(engine.peek(a), np.intp)  # the memory may be in another order
    numbers[...] = np.arange(a.size).reshape(a.shape)
    return np.ravel(a)[function(numbers, *args, **kwargs)]
