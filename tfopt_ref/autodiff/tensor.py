"""Tensors, and NumPy's functions of them.

`run` carries out every operation: NumPy's function is applied to the arrays, the result becomes a
Tensor, and a Node that describes the operation is offered to the tapes.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from tfopt_ref.autodiff.nest import flatten, map_leaves, pack


class _State(threading.local):
    """The state of a thread."""

    tapes: tuple[Any, ...] = ()  # that are offered every operation
    readers: tuple[list[Any], ...] = ()  # lists that get the variables that are read


STATE = _State()


@contextlib.contextmanager
def offered(*tapes: Any) -> Iterator[None]:
    """Report operations only to these tapes, in a ``with``."""
    before, STATE.tapes = STATE.tapes, tapes
    try:
        yield
    finally:
        STATE.tapes = before


#: The keys of tensors and variables, in the order of their creation.
KEYS = itertools.count()

#: The operation of each of NumPy's functions; the modules of rules fill the table.
TABLE: dict[Any, Callable[..., Any]] = {}


# ---- tensors


class Operand(NDArrayOperatorsMixin):
    """The base of Tensor and Variable: operators and NumPy's functions of them make Tensors."""

    __slots__ = ()
    __hash__ = object.__hash__
    key: Any
    shape: Any
    dtype: Any

    def read(self) -> Tensor:
        """Return the current value."""
        raise NotImplementedError

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        kwargs.pop("out", None)
        kwargs.pop("indices", None)  # which are an input already
        return call(
            ufunc if method == "__call__" else getattr(ufunc, method), map(_stacked, inputs), kwargs
        )

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return call(function, args, kwargs)

    _operators = NDArrayOperatorsMixin  # in place, operators make new tensors, too
    __iadd__, __isub__, __imul__ = _operators.__add__, _operators.__sub__, _operators.__mul__
    __itruediv__, __ifloordiv__ = _operators.__truediv__, _operators.__floordiv__
    __ipow__, __imod__, __imatmul__ = _operators.__pow__, _operators.__mod__, _operators.__matmul__

    def __getitem__(self, key: Any) -> Any:
        return TABLE["getitem"](self, key)

    def astype(self, dtype: Any) -> Any:
        """Return the tensor converted to a dtype."""
        return TABLE["astype"](self, np.dtype(dtype))

    def reshape(self, *shape: Any, **kwargs: Any) -> Any:
        """Return the tensor in another shape."""
        return call(np.reshape, (self, shape[0] if len(shape) == 1 else shape), kwargs)

    def transpose(self, *axes: Any) -> Any:
        """Return the tensor with its axes reversed or in the given order."""
        return call(np.transpose, (self, (axes[0] if len(axes) == 1 else axes) or None), {})

    def flatten(self, order: Any = "C") -> Any:
        """Return the elements as a vector."""
        return call(np.ravel, (self, order), {})

    def __round__(self, ndigits: int | None = None) -> Any:
        return call(np.round, (self, ndigits or 0), {})

    T = property(lambda self: self.transpose())
    mT = property(lambda self: np.swapaxes(self, -1, -2))
    real = property(lambda self: np.real(self))
    imag = property(lambda self: np.imag(self))
    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: int(np.prod(self.shape)))

    def __getattr__(self, name: str) -> Any:
        """Return one of NumPy's functions as a method."""
        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(name)
        return lambda *args, **kwargs: getattr(np, name)(self, *args, **kwargs)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def item(self) -> Any:
        """Return the only element as a Python number."""
        return self.read().array.item()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.read().array, dtype, copy=copy)

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec)


for kind in (bool, float, int, complex):
    setattr(Operand, f"__{kind.__name__}__", lambda self, kind=kind: kind(self.read().array))


class Tensor(Operand):
    """An immutable array with a number that identifies it to tapes.

    `constant` makes one.
    """

    def __init__(self, array: np.ndarray) -> None:
        self.array = array.view()
        self.array.flags.writeable = False
        self.key = next(KEYS)

    shape = property(lambda self: self.array.shape)
    dtype = property(lambda self: self.array.dtype)

    def read(self) -> Tensor:
        """Return itself."""
        return self

    def numpy(self) -> np.ndarray:
        """Return the array, which can only be read."""
        return self.array

    def tolist(self) -> Any:
        """Return the elements as lists of Python numbers."""
        return self.array.tolist()

    def __index__(self) -> int:
        return self.array.__index__()

    def __repr__(self) -> str:
        value = np.array2string(self.array)
        return f"<Tensor shape={self.shape} dtype={self.dtype} {value}>"


def constant(value: Any, dtype: Any = None) -> Tensor:
    """Return a Tensor with a copy of a value."""
    return Tensor(np.array(value, dtype))


def as_tensor(value: Any) -> Tensor:
    """Return a Tensor unchanged, the value of a variable, or anything else as a new Tensor."""
    return value.read() if isinstance(value, Operand) else Tensor(np.asarray(value))


def differentiable(tensor: Any) -> bool:
    """Return whether tensors of this dtype have gradients."""
    return tensor.dtype.kind in "fc" or tensor.dtype.name == "bfloat16"


# ---- operations


class Slot:
    """The place of an input in a call."""

    def __init__(self, number: int) -> None:
        self.number = number


class Node:
    """An operation that was carried out.

    The outputs are computed from `sources`, and have gradients with respect to `inputs`; both are
    the same, except for custom gradients. `template` is the call with Slots in place of the
    sources.
    """

    def __init__(
        self, op: Any, template: Any, inputs: Any, outputs: Any, structure: Any, sources: Any = None
    ) -> None:
        self.op, self.template, self.structure = op, template, structure
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.sources = self.inputs if sources is None else tuple(sources)

    @property
    def type(self) -> str:
        """The name of the operation."""
        return str(self.op.name)

    def call(self, values: Any) -> Any:
        """Return the arguments and keywords of the call, with values for the sources."""
        return map_leaves(
            lambda leaf: values[leaf.number] if isinstance(leaf, Slot) else leaf, self.template
        )


def _stacked(part: Any) -> Any:
    """Return a list that was passed for an array as a tensor or an array."""
    if not isinstance(part, (list, tuple)):
        return part
    tensors = any(isinstance(leaf, Operand) for leaf in flatten(part))
    return np.stack([_stacked(p) for p in part]) if tensors else np.asarray(part)


def _numbers(part: Any) -> Any:
    """Return a list of numbers as an array, and anything else unchanged."""
    if not isinstance(part, list) or any(isinstance(leaf, Operand) for leaf in flatten(part)):
        return part
    return np.asarray(part)


def call(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Carry out one of NumPy's functions, whether it has a rule or not."""
    known = TABLE.get(function) or (lambda *args, **kw: run(TABLE[None](function), *args, **kw))
    return known(*map(_numbers, args), **kwargs)


def run(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Carry out an operation, and report it to the tapes."""
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
        return result  # such as that of np.shape, which is not an array
    node.structure = result
    node.outputs = tuple(Tensor(np.asarray(array)) for array in arrays)
    tensors = pack(result, node.outputs)
    record(node)
    return tensors


def record(node: Node) -> None:
    """Offer a node to all tapes."""
    node.structure = map_leaves(lambda leaf: None, node.structure)
    for tape in STATE.tapes:
        tape.take(node)
