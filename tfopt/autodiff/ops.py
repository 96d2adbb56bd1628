"""The table of NumPy's functions: what each does to tensors.

A ufunc in the table is an operation (:class:`Op`); any other function is a handler, which takes
NumPy's arguments and carries operations out. What is not in the table is computed, and recorded
as an operation without rules, so that it fails when a gradient passes it and not before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from tfopt.autodiff import core
from tfopt.autodiff.backward import densify
from tfopt.autodiff.core import CUT, Op, Operand, Tensor, apply
from tfopt.autodiff.nest import flatten, pack
from tfopt.indexed_slices import IndexedSlices

__all__ = ["FUNCTIONS", "METHODS", "UFUNCS", "Op", "elementwise", "implements", "method"]

Handler = TypeVar("Handler", bound=Callable[..., Any])
#: A rule and the letters of what it reads, CUT, or None.
Rule = Any

UFUNCS: dict[Any, Op] = {}
FUNCTIONS: dict[Any, Callable[..., Any]] = {}
METHODS: dict[str, Callable[..., Any]] = {}


def elementwise(ufunc: np.ufunc, *rules: Rule) -> Op:
    """Put a ufunc into the table, with a rule for each input (see `Op.define`)."""
    op = core.OPERATORS.get(ufunc.__name__) or Op(ufunc.__name__, ufunc)
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


# ---- what the table does not have


def without_rule(
    name: str, function: Callable[..., Any], args: Any, kwargs: Any, rule: Rule = None
) -> Any:
    """Compute something that has no rule: with CUT, because it has no gradient.

    Tensors may be anywhere in the arguments; arrays in what is returned become tensors.
    """
    leaves = flatten((args, kwargs))
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, (Operand, IndexedSlices))]
    structure: list[Any] = []

    def compute(*arrays: Any) -> tuple[Any, ...]:
        for k, array in zip(places, arrays, strict=True):
            leaves[k] = array
        filled_args, filled_kwargs = pack((args, kwargs), leaves)
        made = function(*filled_args, **filled_kwargs)
        structure[:] = [made]
        return tuple(x for x in flatten(made) if isinstance(x, (np.ndarray, np.generic)))

    operands = tuple(densify(leaves[k]) for k in places)
    op = Op(name, compute, many=True)
    if rule is not None:
        op.define(*[rule] * len(operands))
    outs = iter(apply(op, operands))
    made = [next(outs) if isinstance(x, (np.ndarray, np.generic)) else x
            for x in flatten(structure[0])]  # fmt: skip
    return pack(structure[0], made)


def _other_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: Any) -> Any:
    if kwargs.get("out") is not None or method == "at":
        raise TypeError(
            "tensors do not change, and what is computed from them cannot be written to an `out`, "
            "which would have no gradient: assign, or use numpy()"
        )
    if method == "reduce" and ufunc in REDUCTIONS:
        reduced: dict[str, Any] = {"axis": 0, **kwargs}
        return REDUCTIONS[ufunc](*inputs, **reduced)
    if method == "__call__" and ufunc in UFUNCS and "where" not in kwargs:
        return apply(UFUNCS[ufunc], tuple(map(operand, inputs)), kwargs)
    if method == "__call__" and ufunc in FUNCTIONS:
        return FUNCTIONS[ufunc](*inputs, **kwargs)
    name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
    return without_rule(name, getattr(ufunc, method), inputs, kwargs)


#: What ``ufunc.reduce`` is.
REDUCTIONS: dict[Any, Callable[..., Any]] = {
    np.add: np.sum,
    np.multiply: np.prod,
    np.maximum: np.max,
    np.minimum: np.min,
    np.logical_and: np.all,
    np.logical_or: np.any,
}


def _other_function(function: Any, args: Any, kwargs: Any) -> Any:
    return without_rule(getattr(function, "__name__", repr(function)), function, args, kwargs)


# ---- operands


def operand(value: Any) -> Any:
    """Return what operations take: a list that holds tensors as one tensor, slices densified.

    Raises
    ------
    ValueError
        If there is no array in it.
    """
    if isinstance(value, (Operand, np.ndarray, np.generic, bool, int, float, complex)):
        return value
    if isinstance(value, IndexedSlices):
        return densify(value)
    if isinstance(value, (list, tuple)):
        if any(isinstance(leaf, (Operand, IndexedSlices)) for leaf in flatten(value)):
            return FUNCTIONS[np.stack]([operand(each) for each in value])
        return np.array(value)
    if value is None:
        raise ValueError(
            f"Attempt to convert a value ({value!r}) with an unsupported type ({type(value)}) to a "
            "Tensor."
        )
    return np.asarray(value)


def array_operand(value: Any) -> Any:
    """Return what functions of arrays take: a Python number as an array, too."""
    made = operand(value)
    return np.asarray(made) if isinstance(made, (bool, int, float, complex)) else made


def _convert(value: Any) -> Any:
    """Return what operators take, or NotImplemented."""
    if isinstance(value, (list, tuple, IndexedSlices)) or hasattr(value, "__array__"):
        return operand(value)
    return NotImplemented


def as_tensor(value: Any) -> Tensor:
    """Return a tensor of a value: a variable's is read, an array copied.

    Raises
    ------
    ValueError
        If the value is no array and cannot become one of numbers.
    """
    if isinstance(value, Tensor):
        return value
    if isinstance(value, core.Readable):
        return value._read()
    made = operand(value)
    if isinstance(made, Tensor):
        return made
    array = np.array(made)
    if array.dtype.kind == "O":
        raise ValueError(
            f"Attempt to convert a value ({value!r}) with an unsupported type ({type(value)}) to a "
            "Tensor."
        )
    return core.wrapped(array)


core.set_convert(_convert)
core.install(UFUNCS, FUNCTIONS, METHODS, _other_ufunc, _other_function)

#: Without gradients, and rightly so.
_CUT_FUNCTIONS = (
    np.all, np.any, np.argmax, np.argmin, np.argsort, np.argpartition, np.argwhere,
    np.count_nonzero, np.nonzero, np.flatnonzero, np.searchsorted, np.digitize, np.bincount,
    np.isclose, np.isin, np.isneginf, np.isposinf, np.round, np.around, np.fix,
    np.zeros_like, np.ones_like, np.empty_like, np.lexsort, np.iscomplex, np.isreal,
    np.nanargmax, np.nanargmin,
)  # fmt: skip
#: What is asked about values: the answers are Python's or NumPy's, and nothing is recorded.
_PLAIN_FUNCTIONS = (
    np.allclose, np.array_equal, np.array_equiv, np.array2string, np.array_repr, np.array_str,
    np.save, np.savez, np.savez_compressed, np.savetxt, np.copyto,
)  # fmt: skip
#: What is asked about dtypes and memory.
_TYPE_FUNCTIONS = (
    np.may_share_memory, np.shares_memory, np.result_type, np.can_cast, np.iscomplexobj,
    np.isrealobj, np.min_scalar_type, np.common_type,
)  # fmt: skip


def _cut(function: Callable[..., Any]) -> Callable[..., Any]:
    def handler(*args: Any, **kwargs: Any) -> Any:
        return without_rule(function.__name__, function, args, kwargs, CUT)

    return handler


def _plain(function: Callable[..., Any], value: Callable[[Any], Any]) -> Callable[..., Any]:
    def handler(*args: Any, **kwargs: Any) -> Any:
        leaves = flatten((args, kwargs))
        known = [value(x) if isinstance(x, Operand) else x for x in leaves]
        filled_args, filled_kwargs = pack((args, kwargs), known)
        return function(*filled_args, **filled_kwargs)

    return handler


FUNCTIONS.update({function: _cut(function) for function in _CUT_FUNCTIONS})
FUNCTIONS.update({f: _plain(f, lambda x: as_tensor(x)._value()) for f in _PLAIN_FUNCTIONS})
FUNCTIONS.update({f: _plain(f, core.peek) for f in _TYPE_FUNCTIONS})


def _size(a: Any, axis: Any = None) -> Any:
    return operand(a).size if axis is None else operand(a).shape[axis]


FUNCTIONS.update(
    {np.shape: lambda a: operand(a).shape, np.ndim: lambda a: operand(a).ndim,
     np.size: _size}
)  # fmt: skip
