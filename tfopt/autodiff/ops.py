"""The table of NumPy's functions: what each does to tensors.

A ufunc in the table is an operation (:class:`Op`); any other function is a handler, which takes
NumPy's arguments and carries operations out. What is not in the table is computed, and recorded
as an operation without rules, so that it fails when a gradient passes it and not before.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from tfopt.autodiff.conversion import lost
from tfopt.core import engine
from tfopt.core.engine import CUT, Op, Operand, Tensor, apply
from tfopt.core.nest import flatten, pack
from tfopt.indexed_slices import IndexedSlices, densify

__all__ = ["FUNCTIONS", "METHODS", "UFUNCS", "Op", "elementwise", "implements", "method"]

Handler = TypeVar("Handler", bound=Callable[..., Any])
#: A rule and the letters of what it reads, CUT, or None.
Rule = Any

UFUNCS: dict[Any, Op] = {}
FUNCTIONS: dict[Any, Callable[..., Any]] = {}
METHODS: dict[str, Callable[..., Any]] = {}


def elementwise(ufunc: np.ufunc, *rules: Rule) -> Op:
    """Put a ufunc into the table, with a rule for each input (see `Op.define`)."""
    op = engine.OPERATORS.get(ufunc.__name__) or Op(ufunc.__name__, ufunc)
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
    name: str, function: Callable[..., Any], args: Any, kwargs: Any, rule: Rule = None,
    sized: bool = False,
) -> Any:  # fmt: skip
    """Compute something that has no rule: with CUT, because it has no gradient.

    Tensors may be anywhere in the arguments; arrays in what is returned become tensors. `sized`
    says that the shapes and dtypes of the arguments decide those of the result.
    """

    def define(op: Op, count: int) -> None:
        if rule is not None:
            op.define(*[rule] * count)

    return carried_out(name, function, args, kwargs, define, sized)


class Arguments:
    """The arguments of a call, and the places of the tensors among them.

    Parameters
    ----------
    args, kwargs
    """

    def __init__(self, args: Any, kwargs: Any) -> None:
        self.structure = args, kwargs
        self.leaves = flatten(self.structure)
        self.places = [
            k for k, leaf in enumerate(self.leaves) if isinstance(leaf, (Operand, IndexedSlices))
        ]

    def filled(self, values: Iterable[Any]) -> Any:
        """Return arguments and keywords with others in the places of the tensors."""
        given = list(self.leaves)
        for k, value in zip(self.places, values, strict=True):
            given[k] = value
        return pack(self.structure, given)


def carried_out(
    name: str, function: Callable[..., Any], args: Any, kwargs: Any,
    define: Callable[[Op, int], None], sized: bool,
) -> Any:  # fmt: skip
    """Compute something by an operation of its own, which is given its rules."""
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
    op = Op(name, compute, many=True)
    op.sized, op.label = sized, _label(function, name)
    define(op, len(operands))
    outs = iter(apply(op, operands))
    wanted.clear()
    structure = first.pop()
    trace = engine.tracing()
    made = []
    for x in flatten(structure):
        if isinstance(x, (np.ndarray, np.generic)):
            made.append(next(outs))
        elif x is not None and trace is not None and any(map(trace.is_symbolic, operands)):
            raise TypeError(
                f"{op.label} returns a {type(x).__name__}, which depends on values: a function "
                "that is traced cannot compute it anew. Call it outside of the function"
            )
        else:
            made.append(x)
    return pack(structure, made)


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
    out = kwargs.pop("out", None)
    if method == "at" or (out is not None and any(part is not None for part in out)):
        raise TypeError(engine.NO_OUT)
    if method == "reduce" and ufunc in REDUCTIONS:
        reduced: dict[str, Any] = {"axis": 0, **kwargs}
        return REDUCTIONS[ufunc](*inputs, **reduced)
    if method == "__call__" and ufunc not in UFUNCS and not kwargs:
        for find in LATER:
            find(ufunc)
    if method == "accumulate" and ufunc in ACCUMULATIONS:
        return ACCUMULATIONS[ufunc](*inputs, **kwargs)
    if method == "outer" and ufunc in UFUNCS and not kwargs:
        a, b = map(array_operand, inputs)
        return apply(UFUNCS[ufunc], (a.reshape(a.shape + (1,) * b.ndim), b))
    if method == "__call__" and ufunc in UFUNCS and not kwargs.keys() - {"dtype"}:
        dtype = kwargs.get("dtype")
        given = inputs if dtype is None else [
            array_operand(x).astype(dtype, casting="same_kind") for x in inputs
        ]  # fmt: skip
        return apply(UFUNCS[ufunc], tuple(map(operand, given)))
    if method == "__call__" and ufunc in FUNCTIONS:
        return FUNCTIONS[ufunc](*inputs, **kwargs)
    name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
    return without_rule(name, getattr(ufunc, method), inputs, kwargs, sized=True)


#: What ``ufunc.reduce`` is.
REDUCTIONS: dict[Any, Callable[..., Any]] = {
    np.add: np.sum,
    np.multiply: np.prod,
    np.maximum: np.max,
    np.minimum: np.min,
    np.logical_and: np.all,
    np.logical_or: np.any,
}


#: What may know rules of a ufunc that is not in the table, and put it there.
LATER: list[Callable[[np.ufunc], Op | None]] = []

#: What ``ufunc.accumulate`` is.
ACCUMULATIONS: dict[Any, Callable[..., Any]] = {}


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
    """Whether a call names an array that is to get the result."""
    place = _place_of_out(function)
    return place < len(args) and args[place] is not None


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
    if isinstance(value, engine.Readable):
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
    return engine.wrapped(array)


engine.set_convert(_convert)
engine.install(UFUNCS, FUNCTIONS, METHODS, _other_ufunc, _other_function, _writes, lost)

#: Without gradients, and rightly so.
_CUT_FUNCTIONS = (
    np.all, np.any, np.argmax, np.argmin, np.argsort, np.argpartition,
    np.count_nonzero, np.searchsorted, np.digitize,
    np.isclose, np.isin, np.isneginf, np.isposinf, np.round, np.around, np.fix,
    np.zeros_like, np.ones_like, np.empty_like, np.lexsort, np.iscomplex, np.isreal,
    np.nanargmax, np.nanargmin, np.linalg.matrix_rank,
)  # fmt: skip
#: The same, of what values decide the number of.
_FOUND_FUNCTIONS = (np.argwhere, np.nonzero, np.flatnonzero)
#: What writes into its first argument.
_WRITERS = (np.copyto, np.put, np.put_along_axis, np.place, np.putmask, np.fill_diagonal)
#: What is asked about values: the answers are Python's or NumPy's, and nothing is recorded.
_PLAIN_FUNCTIONS = (
    np.allclose, np.array_equal, np.array_equiv, np.array2string, np.array_repr, np.array_str,
    np.save, np.savez, np.savez_compressed, np.savetxt,
)  # fmt: skip
#: What is asked about dtypes and memory.
_TYPE_FUNCTIONS = (
    np.may_share_memory, np.shares_memory, np.result_type, np.can_cast, np.iscomplexobj,
    np.isrealobj, np.min_scalar_type, np.common_type,
)  # fmt: skip


def _cut(function: Callable[..., Any], sized: bool) -> Callable[..., Any]:
    def handler(*args: Any, **kwargs: Any) -> Any:
        return without_rule(function.__name__, function, args, kwargs, CUT, sized)

    return handler


def _refused(*args: Any, **kwargs: Any) -> Any:
    raise TypeError(engine.NO_OUT)


def _plain(function: Callable[..., Any], value: Callable[[Any], Any]) -> Callable[..., Any]:
    def handler(*args: Any, **kwargs: Any) -> Any:
        leaves = flatten((args, kwargs))
        known = [value(x) if isinstance(x, Operand) else x for x in leaves]
        filled_args, filled_kwargs = pack((args, kwargs), known)
        return function(*filled_args, **filled_kwargs)

    return handler


FUNCTIONS.update({function: _cut(function, True) for function in _CUT_FUNCTIONS})
FUNCTIONS.update({function: _cut(function, False) for function in _FOUND_FUNCTIONS})
FUNCTIONS.update(dict.fromkeys(_WRITERS, _refused))
FUNCTIONS.update({f: _plain(f, lambda x: as_tensor(x)._value()) for f in _PLAIN_FUNCTIONS})
FUNCTIONS.update({f: _plain(f, engine.peek) for f in _TYPE_FUNCTIONS})


def _size(a: Any, axis: Any = None) -> Any:
    return operand(a).size if axis is None else operand(a).shape[axis]


FUNCTIONS.update(
    {np.shape: lambda a: operand(a).shape, np.ndim: lambda a: operand(a).ndim,
     np.size: _size}
)  # fmt: skip
