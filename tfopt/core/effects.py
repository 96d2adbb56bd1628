"""Handling of side effects: recorded while a function is being traced, otherwise executed at once.

A public function that changes memory is decorated with :func:`writes`, which names the parameters
that are written. The decorator ensures

- that a trace records the complete call with all its arguments, and each replay repeats it;
- that the locks requested by `use_locking` are acquired first;
- that tensors that share the memory of a variable are given copies before it changes.
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
from tfopt.core.engine import Node, Readable, Tensor, prepare_writes, raw, tracing
from tfopt.core.locks import ProcessLock, locked
from tfopt.core.nest import flatten, pack
from tfopt.core.tensor_tree import Composite, TensorTree
from tfopt.errors import InvalidArgumentError

__all__ = ["Effect", "computes", "prepare_writes", "readable", "use_variables", "writes"]

F = TypeVar("F", bound=Callable[..., Any])
#: A parameter's name, or a function of the arguments by name; None: a recorded call returns None.
Returns = str | Callable[[dict[str, Any]], Any] | None


def writes(*names: str, returns: Returns = None) -> Callable[[F], F]:
    """Decorate a function that changes its arguments, so that traces record its calls.

    Parameters
    ----------
    *names : str
        The parameters that are written: Variables, arrays, or lists of them. If they are all
        optional, a call with none of them writes nothing and is executed at once. Without names,
        the function prepares its writes itself.
    returns : str or callable, optional
        The result of a recorded call: the argument of this name, whose arrays become variables
        (:func:`readable`), or the result of a function of the dict of arguments.

    Notes
    -----
    If a parameter `use_locking` is true, the locks of everything written are acquired first.

    The wrapper is compiled from a text with the parameters of the function. One with ``*args`` and
    ``**kwargs``, which has to look for what is written, takes 0.2 to 0.4 us more: a tenth of an
    `assign` or of a small `clip_by_norm`.
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
    """Decorate a function that only reads, possibly from arrays, so that traces record its calls.

    In a trace it returns variables, to which each replay assigns the results of its call.
    """

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if tracing() is None:
            return function(*args, **kwargs)
        tree = TensorTree((args, kwargs))
        raw_args, raw_kwargs = tree.filled([raw(tensor) for tensor in tree.tensors])
        with _untraced():
            made = function(*raw_args, **raw_kwargs)  # with the values of the traced call
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
        declared = name
        if parameter.default is not kinds.empty:
            scope[f"_{k}"] = parameter.default
            declared = f"{name}=_{k}"
        parameters.append(declared)
        by_name = parameter.kind is kinds.KEYWORD_ONLY
        forwarded.append(f"{name}={name}" if by_name else name)
        listed.append(f"{name!r}: {name}")
    return ", ".join(parameters), ", ".join(forwarded), f"{{{', '.join(listed)}}}", scope


# ---- traces


def _record(
    function: Callable[..., Any],
    names: tuple[str, ...],
    returns: Returns,
    arguments: dict[str, Any],
) -> Any:
    """Record a call for replays, and return a placeholder for its result."""
    arguments = {name: _listed(value) for name, value in arguments.items()}
    for name in names:
        for value in flatten(arguments[name]):
            if isinstance(value, Tensor):
                verb = "is" if value is arguments[name] else "contains"
                raise InvalidArgumentError(
                    f"{name} {verb} a Tensor, which cannot be changed: pass a Variable or an array"
                )
    if isinstance(returns, str):
        arguments[returns] = readable(arguments[returns])
        result = arguments[returns]
    else:
        result = None if returns is None else returns(arguments)
    _add(function, (), arguments)
    return _shown(result)


class Effect:
    """A call with side effects, at its position in a trace.

    Parameters
    ----------
    method : callable
    args, kwargs
        The arguments of the call.
    """

    name = "effect"

    def __init__(self, method: Callable[..., Any], args: Any, kwargs: Any) -> None:
        self.method = method
        self.arguments = TensorTree((args, kwargs))

    def __call__(self, arrays: Sequence[Any], renamed: Mapping[Any, Any]) -> None:
        """Repeat the call with other arrays and variables than those of the trace."""
        args, kwargs = self.arguments.filled(arrays, renamed)
        self.method(*args, **kwargs)


def _add(method: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Record an effect; variables are read again after it."""
    trace = tracing()
    assert trace is not None
    effect = Effect(method, args, kwargs)
    node = Node(effect, tuple(effect.arguments.tensors), ())
    node.where = users_line()
    trace.nodes.append(node)
    trace.changed = True
    for leaf in effect.arguments.leaves:
        if isinstance(leaf, Readable):
            leaf._read()
    trace.values.clear()


def _listed(value: Any) -> Any:
    """Return an iterator as a list, which each replay can iterate over."""
    return list(value) if isinstance(value, Iterator) else value


_READABLE: weakref.WeakValueDictionary[int, Readable] = weakref.WeakValueDictionary()
_READABLE_LOCK = ProcessLock()
_variables: list[type[Any]] = []
C = TypeVar("C", bound=type[Readable])


def use_variables(cls: C) -> C:
    """Register the class of the variables that `readable` returns."""
    _variables[:] = [cls]
    return cls


def readable(value: Any) -> Any:
    """Wrap arrays in variables, so that a trace reads their values at each use, after writes.

    A trace would otherwise record an array only by its value.
    """
    if isinstance(value, (list, tuple)):
        return [readable(each) for each in value]
    if not isinstance(value, np.ndarray) or not value.flags.writeable:
        return value
    variable = _READABLE.get(id(value))
    if variable is None:
        with _READABLE_LOCK.held(), _untraced():  # to create it is not part of the function
            variable = _READABLE.get(id(value))  # or another thread has
            if variable is None:
                variable = _READABLE[id(value)] = _variables[0](value, trainable=False)
    return variable


@contextmanager
def _untraced() -> Iterator[None]:
    """Suspend tracing."""
    recorders = engine.recorders()
    try:
        engine.set_recorders(())
        yield
    finally:
        engine.set_recorders(recorders)


def _shown(value: Any) -> Any:
    """Return the usable form of a written value: slices with their current values."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_shown, value))
    if isinstance(value, Composite):
        written, *others = value._parts
        return value._with_parts(readable(written)._read(), *others)
    return value
