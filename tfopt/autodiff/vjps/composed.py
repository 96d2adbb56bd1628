"""Functions whose value is NumPy's, and whose gradients are those of a composition.

The composition is other functions that have rules, and is carried out only when a gradient passes,
on tensors that a tape of its own records: so it has gradients of every order. It takes arguments by
the names and with the defaults that NumPy's own signature gives them, and names those that it knows
what to do with: a call with others is a `LookupError` then.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfopt.autodiff.backward import cast
from tfopt.autodiff.dispatch import Arguments, carried_out, without_rule
from tfopt.autodiff.operands import as_tensor
from tfopt.autodiff.ops import FUNCTIONS, METHODS
from tfopt.autodiff.tape import GradientTape
from tfopt.autodiff.vjps.arguments import parameters
from tfopt.core import engine
from tfopt.core.engine import CUT, Tensor
from tfopt.core.nest import flatten
from tfopt.indexed_slices import densify

__all__ = ["by_name", "composed", "constant_of", "moved", "with_gradients_of"]

#: What changes where a result lies, and not what it is.
_PLACES = {"out", "subok", "device", "copy", "order", "overwrite_input"}
#: What these are where NumPy has no value for them.
_UNSET = {"keepdims": False, "where": True, "mean": None, "correction": None}


def by_name(function: Any, composition: Callable[..., Any]) -> Callable[..., Any]:
    """Give a composition the signature of a NumPy function, unless it takes ``*args`` itself."""
    taken = inspect.signature(composition).parameters
    if any(p.kind is p.VAR_POSITIONAL for p in taken.values()):
        return composition

    def named(*args: Any, **kwargs: Any) -> Any:
        accepted = parameters(function)
        try:
            given = accepted.bind(*args, **kwargs)
        except TypeError as error:  # of a ufunc, which takes more
            name = function.__name__
            raise LookupError(f"no gradient of {name} with these arguments: {error}") from None
        given.apply_defaults()
        for name, value in given.arguments.items():
            idle = value is accepted.parameters[name].default or name in _PLACES
            if name not in taken and not idle:
                raise LookupError(f"no gradient of {function.__name__} with {name}={value!r}")
        chosen = {name: given.arguments[name] for name in taken}
        unset = {name: _UNSET[name] for name in _UNSET if chosen.get(name) is np._NoValue}
        return composition(**chosen | unset)

    return named


def composed(
    function: Any, composition: Any, methods: Sequence[str] = (), sized_by: str = ""
) -> None:
    """Give a function of NumPy's the gradients of a composition.

    Parameters
    ----------
    function : callable
    composition : callable
        Of tensors, arrays and whatever else, by NumPy's names.
    methods : sequence of str
        Methods of tensors that are the same.
    sized_by : str, optional
        An argument whose values, if it is a tensor, decide the result's shape; else the shapes of
        the arguments, and what is no tensor, do.
    """
    named = by_name(function, composition)

    def handler(*args: Any, **kwargs: Any) -> Any:
        sized = not sized_by or not _is_tensor(args, kwargs, function, sized_by)
        return with_gradients_of(named, function, args, kwargs, sized=sized)

    engine.RULED.add(function.__name__)
    FUNCTIONS[function] = handler
    METHODS.update(dict.fromkeys(methods, handler))


def _is_tensor(args: Any, kwargs: Any, function: Any, name: str) -> bool:
    place = [*parameters(function).parameters].index(name)
    value = args[place] if place < len(args) else kwargs.get(name)
    return any(isinstance(leaf, engine.Operand) for leaf in flatten(value))


def with_gradients_of(
    composition: Callable[..., Any], function: Callable[..., Any], args: Any, kwargs: Any,
    name: str = "", sized: bool = True,
) -> Any:  # fmt: skip
    """Call a function, and record the gradients of a composition."""
    arguments = Arguments(args, kwargs)
    name = name or function.__name__

    def back(upstreams: Any, outs: Any, ins: Any, kw: Any, need: list[bool]) -> list[Any]:
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
                raise LookupError(f"no gradient of result {number} of {name} with these arguments")
            if g is not None:
                targets.append(as_tensor(y))
                seeds.append(cast(g, targets[-1].dtype))
        found = iter(tape.gradient(targets, wanted, seeds))
        return [densify(next(found)) if needed else None for needed in need]

    return carried_out(
        name, function, args, kwargs, lambda op, count: op.define_jointly(back, "*"), sized
    )


def constant_of(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function that has no gradient, such as one that finds positions."""
    return without_rule(function.__name__, function, args, kwargs, CUT)


def moved(function: Callable[..., Any], a: Any, *args: Any, **kwargs: Any) -> Any:
    """Move elements as a function does: move their indices, then gather the elements."""
    numbers = np.empty_like(engine.peek(a), np.intp)  # the memory may be in another order
    numbers[...] = np.arange(a.size).reshape(a.shape)
    return np.ravel(a)[function(numbers, *args, **kwargs)]
