"""Tensors, and what happens when NumPy is applied to them.

Every operation, whoever asks for it, is carried out by `run`: NumPy's function is applied to the
arrays, the result becomes a Tensor, and a Node that says what was done is offered to the recorders,
which are tapes and traces.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from tfopt_ref.autodiff.conversion import lost
from tfopt_ref.autodiff.nest import flatten, map_leaves, pack

__all__ = [
    "KEYS",
    "LATER",
    "STATE",
    "TABLE",
    "Node",
    "Operand",
    "Tensor",
    "as_tensor",
    "constant",
    "run",
]


class State(threading.local):
    """What a thread is doing."""

    recorders: tuple[Any, ...] = ()  # tapes and traces, which are offered every operation
    watchers: tuple[Any, ...] = ()  # lists of the variables that are read or assigned
    overrides: dict[str, str] = {}  # the name of a registered gradient, by an operation's name


STATE = State()

#: The keys of tensors and variables, in the order in which they are made.
KEYS = itertools.count()

#: What is done for each of NumPy's functions; the rules fill it.
TABLE: dict[Any, Callable[..., Any]] = {}

#: What may know what is done for a function that is not in the table.
LATER: list[Callable[[Any], Callable[..., Any] | None]] = []


@contextlib.contextmanager
def setting(**values: Any) -> Iterator[None]:
    """Set parts of the thread's state for a while."""
    before = {name: getattr(STATE, name) for name in values}
    STATE.__dict__.update(values)
    try:
        yield
    finally:
        STATE.__dict__.update(before)


# ---- tensors


def _method(function: Any) -> Callable[..., Any]:
    """Return a method that is one of NumPy's functions."""

    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    method.__name__ = function.__name__
    method.__doc__ = f"Return what ``np.{function.__name__}`` makes of it."
    return method


class Operand(NDArrayOperatorsMixin):
    """What operators and NumPy's functions make Tensors of: a Tensor or a Variable."""

    __slots__ = ()
    __hash__ = object.__hash__
    key: Any
    shape: Any
    dtype: Any

    def read(self) -> Tensor:
        """Return the value as it is now."""
        raise NotImplementedError

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if any(part is not None for part in kwargs.pop("out", ())) or method == "at":
            raise TypeError("a tensor cannot be changed, and what is made of one cannot be `out`")
        parts = [_stacked(part) for part in inputs]
        if method == "outer" and not kwargs:
            a, b = parts
            parts = [np.reshape(a, np.shape(a) + (1,) * np.ndim(b)), b]
            method = "__call__"
        if method == "__call__" and kwargs.keys() == {"dtype"}:
            parts = [as_tensor(part) for part in parts]
            for part in parts:
                if not np.can_cast(part.dtype, kwargs["dtype"], "same_kind"):
                    raise TypeError(f"cannot cast {part.dtype} to {np.dtype(kwargs['dtype'])}")
            parts = [part.astype(kwargs["dtype"]) for part in parts]
            kwargs = {}
        function = ufunc if method == "__call__" else getattr(ufunc, method)
        return call(function, parts, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if kwargs.pop("out", None) is not None or writes(function, args):
            raise TypeError("a tensor cannot be changed, and what is made of one cannot be `out`")
        return call(function, args, kwargs)

    _operators = NDArrayOperatorsMixin  # in place, operators make new tensors, too
    __iadd__, __isub__, __imul__ = _operators.__add__, _operators.__sub__, _operators.__mul__
    __itruediv__, __ifloordiv__ = _operators.__truediv__, _operators.__floordiv__
    __ipow__, __imod__, __imatmul__ = _operators.__pow__, _operators.__mod__, _operators.__matmul__

    def __getitem__(self, key: Any) -> Any:
        return TABLE["getitem"](self, key)

    def astype(self, dtype: Any) -> Any:
        """Return it converted to a dtype."""
        return TABLE["astype"](self, np.dtype(dtype))

    def reshape(self, *shape: Any, **kwargs: Any) -> Any:
        """Return it in another shape."""
        return call(np.reshape, (self, shape[0] if len(shape) == 1 else shape), kwargs)

    def transpose(self, *axes: Any) -> Any:
        """Return it with its axes reversed, or in the order given."""
        return call(np.transpose, (self, (axes[0] if len(axes) == 1 else axes) or None), {})

    def __round__(self, ndigits: int | None = None) -> Any:
        return call(np.round, (self, ndigits or 0), {})

    T = property(lambda self: self.transpose())
    mT = property(lambda self: np.swapaxes(self, -1, -2))
    real = property(lambda self: np.real(self))
    imag = property(lambda self: np.imag(self))
    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: int(np.prod(self.shape)))

    all, any, argmax, argmin = map(_method, (np.all, np.any, np.argmax, np.argmin))
    argsort, clip, conj, copy = map(_method, (np.argsort, np.clip, np.conj, np.copy))
    cumprod, cumsum, diagonal, dot = map(_method, (np.cumprod, np.cumsum, np.diagonal, np.dot))
    max, mean, min, prod = map(_method, (np.max, np.mean, np.min, np.prod))
    ravel, repeat, round, squeeze = map(_method, (np.ravel, np.repeat, np.round, np.squeeze))
    flatten, std, sum, swapaxes = map(_method, (np.ravel, np.std, np.sum, np.swapaxes))
    take, trace, var = map(_method, (np.take, np.trace, np.var))
    conjugate, nonzero, ptp, sort = map(_method, (np.conj, np.nonzero, np.ptp, np.sort))

    def compress(self, condition: Any, axis: Any = None) -> Any:
        """Return what ``np.compress`` makes of it."""
        return call(np.compress, (condition, self, axis), {})

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("Scalar tensor has no `len()`")
        return int(self.shape[0])

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("Cannot iterate over a scalar tensor.")
        return (self[i] for i in range(len(self)))


class Tensor(Operand):
    """An array that nobody changes, and a number of its own by which recorders know it.

    `constant` makes one.
    """

    __slots__ = ("__weakref__", "array", "key", "lent", "scope")

    def __init__(self, array: np.ndarray, scope: Any = None, lent: Any = None) -> None:
        self.array = array.view()
        self.array.flags.writeable = False
        self.key = next(KEYS)
        self.scope = scope  # the trace it belongs to, outside of which it means nothing
        self.lent = lent  # the tensors that share the memory of a variable, if it does

    shape = property(lambda self: self.array.shape)
    dtype = property(lambda self: self.array.dtype)

    def read(self) -> Tensor:
        """Return itself, if it still means something."""
        if self.scope is not None and all(r.scope is not self.scope for r in STATE.recorders):
            raise TypeError(
                f"{self!r} is out of scope and cannot be used here. Use return values, explicit "
                "Python locals or variables to access it."
            )
        return self

    def numpy(self) -> np.ndarray:
        """Return the array, which can only be read."""
        if self.scope is not None:
            raise AttributeError("a tensor of a function that is being traced has no value: numpy")
        return self.array

    def item(self) -> Any:
        """Return the one element as a number of Python's."""
        return self.numpy().item()

    def tolist(self) -> Any:
        """Return the elements as lists of numbers of Python's."""
        return self.numpy().tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if any(recorder.knows(self) for recorder in STATE.recorders):
            lost("an array")
        return np.array(self.numpy(), dtype, copy=copy)

    def __reduce__(self) -> Any:
        return constant, (self.numpy(),)

    def __format__(self, spec: str) -> str:
        return format(self.numpy() if self.shape else self.item(), spec)

    def _number(self, kind: str) -> Any:
        if self.scope is not None:
            raise TypeError(f"Using a symbolic Tensor as a Python `{kind}` is not allowed.")
        return self.array

    def __bool__(self) -> bool:
        return bool(self._number("bool"))

    def __float__(self) -> float:
        if any(recorder.knows(self) for recorder in STATE.recorders):
            lost("a float")
        return float(self._number("float"))

    def __int__(self) -> int:
        return int(self._number("int"))

    def __complex__(self) -> complex:
        if any(recorder.knows(self) for recorder in STATE.recorders):
            lost("a complex number")
        return complex(self._number("complex"))

    def __index__(self) -> int:
        index: int = self._number("int").__index__()
        return index

    def __repr__(self) -> str:
        value = "" if self.scope is not None else f" {np.array2string(self.array)}"
        return f"<Tensor shape={self.shape} dtype={self.dtype}{value}>"


def constant(value: Any, dtype: Any = None) -> Tensor:
    """Return a Tensor with a copy of a value."""
    return Tensor(_array(value, dtype).copy())


def as_tensor(value: Any) -> Tensor:
    """Return a Tensor as it is, a variable's value, and anything else as a new Tensor."""
    return value.read() if isinstance(value, Operand) else Tensor(_array(value))


def _array(value: Any, dtype: Any = None) -> np.ndarray:
    array = np.asarray(value, dtype)
    if array.dtype == object:
        raise ValueError(
            f"Attempt to convert a value ({value}) with an unsupported type ({type(value)}) to a "
            "Tensor."
        )
    return array


def differentiable(tensor: Any) -> bool:
    """Say whether there are gradients of a tensor's dtype."""
    return tensor.dtype.kind in "fc" or tensor.dtype.name == "bfloat16"


# ---- operations


#: What these say depends on shapes and dtypes alone.
OF_SHAPES = {
    np.shape, np.ndim, np.size, np.result_type, np.can_cast, np.iscomplexobj, np.isrealobj,
    np.common_type, np.may_share_memory, np.shares_memory,
}  # fmt: skip


#: Functions that write into their first argument.
WRITERS = {np.copyto, np.put, np.put_along_axis, np.place, np.putmask, np.fill_diagonal}


def writes(function: Any, args: Any) -> bool:
    """Say whether a call is to write into an array: its first, or one given as `out`."""
    if function in WRITERS:
        return True
    try:
        parameters = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):  # of NumPy's functions written in C
        return function in (np.concatenate, np.dot) and len(args) > 2 and args[2] is not None
    positional = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
    place = positional.index("out") if "out" in positional else len(args)
    return place < len(args) and args[place] is not None


class Slot:
    """The place of an input in a call."""

    def __init__(self, number: int) -> None:
        self.number = number


class Node:
    """An operation that was carried out.

    `sources` are what the outputs are computed from and `inputs` what they have gradients to: the
    same, but for custom gradients. `template` is the call, with Slots in the places of the sources.
    """

    def __init__(
        self, op: Any, template: Any, inputs: Any, outputs: Any, structure: Any, sources: Any = None
    ) -> None:
        self.op, self.template, self.structure = op, template, structure
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.sources = self.inputs if sources is None else tuple(sources)

    @property
    def type(self) -> str:
        """The operation's name."""
        return str(self.op.name)

    def get_attr(self, name: str) -> Any:
        """Return an argument of the call that was given by name and is no tensor."""
        return self.template[1][name]

    def call(self, values: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return the call's arguments, with values for the sources."""
        return map_leaves(  # type: ignore[no-any-return]
            lambda leaf: values[leaf.number] if isinstance(leaf, Slot) else leaf, self.template
        )

    def keeping(self, inputs: set[int], outputs: bool) -> Node:
        """Return the node with nothing but the shapes of its other inputs and outputs."""
        other = Node(self.op, self.template, self.inputs, self.outputs, self.structure)
        other.inputs = tuple(
            tensor if number in inputs else stand_in(tensor)
            for number, tensor in enumerate(self.inputs)
        )
        if not outputs:
            other.outputs = tuple(map(stand_in, self.outputs))
        return other


def stand_in(tensor: Tensor) -> Tensor:
    """Return what stands for a tensor whose values are not needed: of its shape, without memory."""
    other = Tensor(np.broadcast_to(np.zeros((), tensor.dtype), tensor.shape), tensor.scope)
    other.key = tensor.key
    return other


def _stacked(part: Any) -> Any:
    """Return a list, given in the place of an array, as a tensor or an array."""
    if not isinstance(part, (list, tuple)):
        return part
    tensors = any(isinstance(leaf, Operand) for leaf in flatten(part))
    return np.stack([_stacked(p) for p in part]) if tensors else np.asarray(part)


def _numbers(part: Any) -> Any:
    """Return a list of numbers as an array, anything else as it is."""
    if not isinstance(part, list) or any(isinstance(leaf, Operand) for leaf in flatten(part)):
        return part
    return np.asarray(part)


def call(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Carry out one of NumPy's functions, with a rule or without."""
    args, kwargs = map(_numbers, args), {name: _numbers(part) for name, part in kwargs.items()}
    known = TABLE.get(function)
    for find in LATER if known is None else ():
        known = find(function)
    return known(*args, **kwargs) if known else run(TABLE[None](function), *args, **kwargs)


def run(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Carry out an operation, and tell the recorders."""
    leaves: list[Any] = flatten((list(args), kwargs))
    inputs = [leaf.read() for leaf in leaves if isinstance(leaf, Operand)]
    numbers = itertools.count()
    template = pack(
        (list(args), kwargs),
        [Slot(next(numbers)) if isinstance(leaf, Operand) else leaf for leaf in leaves],
    )
    node = Node(op, template, inputs, (), None)
    arguments, named = node.call([tensor.array for tensor in inputs])
    result = op.function(*arguments, **named)
    arrays = flatten(result)
    if not all(isinstance(array, (np.ndarray, np.generic)) for array in arrays):
        if any(x.scope is not None for x in inputs) and op.function not in OF_SHAPES:
            raise TypeError(
                f"{op.name} returns what depends on values: a function that is traced cannot "
                "compute it anew. Call it outside of the function"
            )
        return result  # np.shape's, say, which is no array
    node.structure = result
    node.outputs = tuple(made(np.asarray(array), inputs) for array in arrays)
    tensors = pack(result, node.outputs)
    record(node)
    return tensors


def made(array: np.ndarray, inputs: list[Tensor]) -> Tensor:
    """Return a result as a Tensor, which may be one more that shares a variable's memory."""
    made = Tensor(array, STATE.recorders[0].scope if STATE.recorders else None)
    for tensor in inputs:
        if tensor.lent is not None and np.may_share_memory(array, tensor.array):
            made.lent = tensor.lent
            made.lent.add(made)
    return made


def record(node: Node) -> None:
    """Offer a node to all recorders, with the gradient that is to be taken for its own."""
    if not STATE.recorders:
        return
    node.structure = map_leaves(lambda leaf: None, node.structure)
    if node.type in STATE.overrides:
        node.op = node.op.overridden(STATE.overrides[node.type])
    for recorder in STATE.recorders:
        recorder.take(node)
