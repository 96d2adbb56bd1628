"""NumPy functions of tensors without a rule in the table, or not for these arguments.

They are computed, and recorded as operations without rules: only a gradient that has to pass them
is an error.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tfopt.autodiff.conversion import is_recorded, lost
from tfopt.autodiff.operands import array_operand, operand
from tfopt.autodiff.ops import (
    ACCUMULATIONS,
    CALLS,
    FUNCTIONS,
    LATER,
    METHODS,
    REDUCTIONS,
    SEGMENTS,
    UFUNCS,
    Rule,
)  # fmt: skip
from tfopt.core import engine
from tfopt.core.engine import Op, Operand, apply
from tfopt.core.nest import flatten, pack
from tfopt.indexed_slices import IndexedSlices, densify

__all__ = ["Arguments", "carried_out", "without_rule"]


def without_rule(
    name: str, function: Callable[..., Any], args: Any, kwargs: Any, rule: Rule = None,
    sized: bool = False,
) -> Any:  # fmt: skip
    """Call a function that has no rule; CUT says that it has no gradient.

    Tensors may be anywhere in the arguments; arrays in what is returned become tensors. `sized`
    says that the shapes and dtypes of the arguments decide those of the result.
    """

    def define(op: Op, count: int) -> None:
        if rule is not None:
            op.define(*[rule] * count)

    return carried_out(name, function, args, kwargs, define, sized)


class Arguments:
    """The arguments of a call, and the places of the tensors among them.

    A record holds copies of arrays and containers, because their owners may change them.

    Parameters
    ----------
    args, kwargs
    """

    def __init__(self, args: Any, kwargs: Any) -> None:
        self.structure = engine.owned((args, kwargs)) if engine.recorders() else (args, kwargs)
        self.leaves = flatten(self.structure)
        self.places = [
            k for k, leaf in enumerate(self.leaves) if isinstance(leaf, (Operand, IndexedSlices))
        ]

    def filled(self, values: Iterable[Any]) -> Any:
        """Return arguments and keywords with values in the places of the tensors."""
        given = list(self.leaves)
        for k, value in zip(self.places, values, strict=True):
            given[k] = value
        return pack(self.structure, given)


def carried_out(
    name: str, function: Callable[..., Any], args: Any, kwargs: Any,
    define: Callable[[Op, int], None], sized: bool,
) -> Any:  # fmt: skip
    """Record a call of a function as one operation, whose rules `define` sets."""
    arguments = Arguments(args, kwargs)
    first: list[Any] = []
    wanted = [True]

    def compute(*arrays: Any) -> tuple[Any, ...]:
        filled_args, filled_kwargs = arguments.filled(map(_unwritable, arrays))
        made = function(*filled_args, **filled_kwargs)
        if wanted:  # not in a replay
            first.append(made)
        return tuple(x for x in flatten(made) if isinstance(x, (np.ndarray, np.generic)))

    operands = tuple(densify(arguments.leaves[k]) for k in arguments.places)
    op = Op(name, compute, many=True, sized=sized, label=_label(function, name))
    define(op, len(operands))
    outs = iter(apply(op, operands))
    wanted.clear()
    structure = first.pop()
    trace = engine.tracing()
    made = []
    for x in flatten(structure):
        if isinstance(x, (np.ndarray, np.generic)):
            made.append(next(outs))
            continue
        if x is not None and trace is not None and any(map(trace.is_symbolic, operands)):
            raise TypeError(
                f"{op.label} returns a {type(x).__name__}, which depends on values: a function "
                "that is traced cannot recompute it. Call it outside of the function"
            )
        if not isinstance(x, _WITHOUT_GRADIENTS) and any(map(is_recorded, operands)):
            lost(f"a {type(x).__name__} in {op.label}", instead=engine.OF_OBJECTS)
        made.append(x)
    return pack(structure, made)


#: What no gradient is lost with, where a function returns it.
_WITHOUT_GRADIENTS = (type(None), bool, int, str)


def _unwritable(array: Any) -> Any:
    """Return an array so that a function cannot write into what belongs to a tensor."""
    if not isinstance(array, np.ndarray):
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def _label(function: Callable[..., Any], name: str) -> str:
    """Return what users call a function of NumPy's."""
    module = str(getattr(function, "__module__", None) or "")
    if module.startswith("numpy") and getattr(function, "__name__", "") == name:
        return f"np{module[len('numpy') :]}.{name}"
    return name


def _other_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: Any) -> Any:
    if method == "__call__" and len(inputs) != ufunc.nin:
        raise TypeError(f"{ufunc.__name__} takes {ufunc.nin} inputs, not {len(inputs)}")
    out = kwargs.pop("out", None)
    if method == "at" or (out is not None and any(part is not None for part in out)):
        raise TypeError(engine.NO_OUT)
    if method == "reduce" and ufunc in REDUCTIONS:
        return REDUCTIONS[ufunc](*inputs, **kwargs)
    if method == "__call__" and ufunc not in UFUNCS and not kwargs:
        for find in LATER:
            find(ufunc)
    if method == "accumulate" and ufunc in ACCUMULATIONS:
        return ACCUMULATIONS[ufunc](*inputs, **kwargs)
    if method == "reduceat" and len(inputs) > 1:
        kwargs.pop("indices", None)  # NumPy makes them an input, and leaves them here, too
    if method == "reduceat" and ufunc in SEGMENTS:
        return SEGMENTS[ufunc](*inputs, **kwargs)
    if method == "outer" and ufunc in UFUNCS and not kwargs:
        a, b = map(array_operand, inputs)
        return apply(UFUNCS[ufunc], (a.reshape(a.shape + (1,) * b.ndim), b))
    if method == "__call__" and ufunc in UFUNCS and not kwargs:
        return apply(UFUNCS[ufunc], tuple(map(operand, inputs)))
    if method == "__call__" and ufunc in CALLS:
        return CALLS[ufunc](*inputs, **kwargs)
    if method == "__call__" and ufunc in FUNCTIONS:
        return FUNCTIONS[ufunc](*inputs, **kwargs)
    name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
    return without_rule(name, getattr(ufunc, method), inputs, kwargs, sized=True)


def _other_function(function: Any, args: Any, kwargs: Any) -> Any:
    return without_rule(getattr(function, "__name__", repr(function)), function, args, kwargs)


#: Where the `out` of those is whose signatures Python does not know.
_OUTS: dict[Any, int] = {np.concatenate: 2, np.dot: 2}


@functools.cache
def _place_of_out(function: Any) -> int:
    """Return which of a function's positional arguments is `out`: none, if it is a large number."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return _OUTS.get(function, 1000)
    keyword = "out" in parameters and parameters["out"].kind is inspect.Parameter.KEYWORD_ONLY
    return [*parameters].index("out") if "out" in parameters and not keyword else 1000


def _writes(function: Any, args: tuple[Any, ...]) -> bool:
    """Whether a call has an output array."""
    place = _place_of_out(function)
    return place < len(args) and args[place] is not None


engine.install(UFUNCS, FUNCTIONS, METHODS, _other_ufunc, _other_function, _writes, lost)
