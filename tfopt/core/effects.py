"""The gate that every write passes: recorded in a function that is being traced, else made at once.

A public function that changes memory is decorated with :func:`writes`, which says the parameters
that are written. So no such function has to remember by itself

- that a trace records the whole call, with all its arguments, and each replay makes it;
- that locks, if `use_locking` asks for them, are taken before anything else is done;
- that tensors which lie in the memory of a variable are given copies before it changes.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from tfopt.core import engine
from tfopt.core.callers import users_line
from tfopt.core.engine import Node, Readable, Tensor, raw, tracing
from tfopt.core.locks import locked
from tfopt.core.nest import flatten, pack
from tfopt.core.opened import Opened
from tfopt.errors import InvalidArgumentError
from tfopt.indexed_slices import IndexedSlices

__all__ = ["Effect", "computes", "prepare_writes", "readable", "use_variables", "writes"]

F = TypeVar("F", bound=Callable[..., Any])
#: A parameter's name, or a function of the arguments by name; None: a recorded call returns None.
Returns = str | Callable[[dict[str, Any]], Any] | None


def writes(*names: str, returns: Returns = None) -> Callable[[F], F]:
    """Let the calls of a function that changes its arguments pass the gate.

    Parameters
    ----------
    *names : str
        The parameters that are written: Variables, arrays, or lists of them. If they are all
        optional, a call that gives none of them writes nothing, and is made at once. Without names
        the function prepares its writes itself.
    returns : str or callable, optional
        What a recorded call returns: the argument of this name, whose arrays become variables
        (:func:`readable`), or what a function makes of the arguments by name.

    Notes
    -----
    A parameter `use_locking` asks for the locks of all that is written, before anything is done.
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        parameters, forwarded, listed, scope = _as_text(signature)
        name = function.__name__
        written = f"({''.join(f'{each}, ' for each in names)})"
        lines = [f"def {name}({parameters}):"]
        call = f"return function({forwarded})"
        if names and all(signature.parameters[each].default is None for each in names):
            lines += [f"    if {' is '.join([*names, 'None'])}:", f"        {call}"]
        lines += [
            "    if tracing() is not None:",
            f"        return record(gate[0], {names!r}, returns, {listed})",
        ]
        if "use_locking" in signature.parameters:
            lines += [
                "    if use_locking:",
                f"        with locked(*flatten({written})):",
                f"            prepare_writes({written})",
                f"            {call}",
            ]
        if names:
            lines.append(f"    prepare_writes({written})")
        lines.append(f"    {call}")
        scope |= {
            "__name__": function.__module__, "flatten": flatten, "function": function,
            "locked": locked, "prepare_writes": prepare_writes, "record": _record,
            "returns": returns, "tracing": tracing,
        }  # fmt: skip
        exec("\n".join(lines), scope)
        wrapped = functools.wraps(function)(scope[name])
        scope["gate"] = [wrapped]
        return wrapped  # type: ignore[return-value]

    return decorate


def computes(function: F) -> F:
    """Let a trace record the calls of a function that only reads, from arrays and its object, too.

    What it returns in a trace are variables, which each replay gives the values of its own call.
    """

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if tracing() is None:
            return function(*args, **kwargs)
        opened = Opened((args, kwargs))
        given, named = opened.closed([raw(tensor) for tensor in opened.tensors])
        with _untraced():
            made = function(*given, **named)  # by the values of the call that is traced
        kept = [np.array(x) if isinstance(x, _NUMBERS) else x for x in flatten(made)]
        results = [readable(x) for x in kept]
        _add(_compute, (function, args, kwargs, results), {})
        return pack(made, results)

    return wrapped  # type: ignore[return-value]


_NUMBERS = (np.ndarray, np.generic, float)


def _compute(function: Callable[..., Any], args: Any, kwargs: Any, results: list[Any]) -> None:
    prepare_writes(results)
    for result, value in zip(results, flatten(function(*args, **kwargs)), strict=True):
        if isinstance(result, Readable):
            result._array[...] = value


def _as_text(signature: inspect.Signature) -> tuple[str, str, str, dict[str, Any]]:
    """Return a signature's parameters, a call that passes them on, and a dict of them, as text."""
    kinds = inspect.Parameter
    parameters, forwarded, listed, scope = [], [], [], {}
    star = False
    for k, parameter in enumerate(signature.parameters.values()):
        name = parameter.name
        if parameter.kind is kinds.KEYWORD_ONLY and not star:
            star = True
            parameters.append("*")
        given = name
        if parameter.default is not kinds.empty:
            scope[f"_{k}"] = parameter.default
            given = f"{name}=_{k}"
        parameters.append(given)
        by_name = parameter.kind is kinds.KEYWORD_ONLY
        forwarded.append(f"{name}={name}" if by_name else name)
        listed.append(f"{name!r}: {name}")
    return ", ".join(parameters), ", ".join(forwarded), f"{{{', '.join(listed)}}}", scope


# ---- what is written


def prepare_writes(operands: Any) -> None:
    """Let the arrays of variables be written to: tensors that lie in them are given copies."""
    for operand in operands:
        if isinstance(operand, Readable):
            operand._before_write()
        elif isinstance(operand, (list, tuple)):
            prepare_writes(operand)


# ---- traces


def _record(
    function: Callable[..., Any], names: tuple[str, ...], returns: Returns, given: dict[str, Any]
) -> Any:
    """Write a call down for the replays, and return what stands for its result."""
    given = {name: _listed(value) for name, value in given.items()}
    for name in names:
        for value in flatten(given[name]):
            if isinstance(value, Tensor):
                found = "is" if value is given[name] else "has"
                raise InvalidArgumentError(
                    f"{name} {found} a Tensor, which does not change: write into a Variable or an "
                    "array"
                )
    if isinstance(returns, str):
        given[returns] = readable(given[returns])
        made = given[returns]
    else:
        made = None if returns is None else returns(given)
    _add(function, (), given)
    return _shown(made)


class Effect:
    """A call that changes variables, at its place in a trace.

    Parameters
    ----------
    method : callable
    args, kwargs
        What it was called with.
    """

    name = "effect"

    def __init__(self, method: Callable[..., Any], args: Any, kwargs: Any) -> None:
        self.method = method
        self.opened = Opened((args, kwargs))

    def __call__(self, arrays: Sequence[Any], renamed: Mapping[Any, Any]) -> None:
        """Call it with other arrays, and with other variables than those of the trace."""
        args, kwargs = self.opened.closed(arrays, renamed)
        self.method(*args, **kwargs)


def _add(method: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Write an effect down; variables are read anew after it."""
    trace = tracing()
    assert trace is not None
    effect = Effect(method, args, kwargs)
    node = Node(effect, tuple(effect.opened.tensors), ())
    node.where = users_line()
    trace.nodes.append(node)
    trace.changed = True
    for leaf in effect.opened.leaves:
        if isinstance(leaf, Readable):
            leaf._read()
    trace.values.clear()


def _listed(value: Any) -> Any:
    """Return what an iterator yields as a list, which each replay can go through."""
    return list(value) if isinstance(value, Iterator) else value


_READABLE: weakref.WeakValueDictionary[int, Readable] = weakref.WeakValueDictionary()
_variables: list[type[Any]] = []
C = TypeVar("C", bound=type[Readable])


def use_variables(cls: C) -> C:
    """Have arrays become variables of a class, whose own methods pass the gate."""
    _variables[:] = [cls]
    return cls


def readable(value: Any) -> Any:
    """Return arrays as variables, which a trace reads when they are used, after they are written.

    A trace knows an array by its value alone.
    """
    if isinstance(value, (list, tuple)):
        return [readable(each) for each in value]
    if not isinstance(value, np.ndarray) or not value.flags.writeable:
        return value
    known = _READABLE.get(id(value))
    if known is None:
        with _untraced():  # the function makes none
            known = _READABLE[id(value)] = _variables[0](value, trainable=False)
    return known


@contextmanager
def _untraced() -> Iterator[None]:
    """Do something that the trace is not to see."""
    recorders = engine.recorders()
    try:
        engine.set_recorders(())
        yield
    finally:
        engine.set_recorders(recorders)


def _shown(value: Any) -> Any:
    """Return what was written as what may be used of it: rows as they are now."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_shown, value))
    if isinstance(value, IndexedSlices):
        return IndexedSlices(readable(value.values)._read(), value.indices, value.dense_shape)
    return value
