"""An array with a name and a lock, which tapes watch."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt_ref.autodiff.conversion import lost
from tfopt_ref.autodiff.effects import is_tracing, use_variables, writes
from tfopt_ref.autodiff.tensor import KEYS, STATE, Operand, Tensor
from tfopt_ref.errors import InvalidArgumentError, InvalidTypeError

__all__ = ["Variable", "get_variable_by_name"]

_named: weakref.WeakSet[Variable] = weakref.WeakSet()


@use_variables
class Variable(Operand):
    """An array that an optimizer updates in place; an array given is wrapped, not copied.

    NumPy's functions make Tensors of it. What they read is its value at that time: a write copies
    what tapes and tensors still need of the value before, if there is any.
    """

    def __init__(
        self,
        initial_value: Any,
        name: str | None = None,
        dtype: Any = None,
        constraint: Callable[[Any], Any] | None = None,
        trainable: bool = True,
    ) -> None:
        wrapped = isinstance(initial_value, np.ndarray)
        array = initial_value if wrapped else np.array(initial_value, dtype)
        if wrapped and dtype is not None and array.dtype != dtype:
            raise InvalidTypeError(
                f"the array is {array.dtype}, not {np.dtype(dtype)}; convert it first"
            )
        if not array.flags.writeable:
            raise InvalidArgumentError("a Variable cannot wrap a read-only array")
        if array.dtype.kind not in "fciub" and array.dtype.name != "bfloat16":
            raise InvalidTypeError(f"a Variable must hold numbers, not {array.dtype}")
        self._array = array
        self.name = "Variable" if name is None else name
        self._constraint = constraint
        self.lock = threading.RLock()
        self.trainable = bool(trainable)
        self.key = next(KEYS)
        self._lent: weakref.WeakSet[Tensor] = weakref.WeakSet()  # tensors that share the array
        self._current: Callable[[], Tensor | None] = lambda: None  # the value read last, if alive
        for recorder in STATE.recorders:
            recorder.take_new(self)
        if name is not None:
            _named.add(self)

    shape = property(lambda self: self._array.shape)
    dtype = property(lambda self: self._array.dtype)
    constraint = property(lambda self: self._constraint)
    device = "cpu"

    @property
    def __array_interface__(self) -> dict[str, Any]:
        # of bfloat16 the interface knows the size alone; in a trace, __array__ says what is wrong
        if self._array.dtype.kind == "V" or is_tracing():
            raise AttributeError("__array_interface__")
        if self._is_watched():
            lost("an array")
        interface: dict[str, Any] = self._array.__array_interface__
        return interface

    def value(self) -> np.ndarray:
        """Return the array itself."""
        return self.numpy()

    def numpy(self) -> np.ndarray:
        """Return the array itself, not a copy."""
        if is_tracing():
            raise InvalidTypeError(
                f"a function is being traced, and the value of {self.name} is another one at each "
                "call: use the variable itself"
            )
        return self._array

    # ---- reading and writing

    def read(self) -> Tensor:
        """Return the value as it is now, and let those who watch know."""
        trace = STATE.recorders[0] if STATE.recorders else None
        tensor = self._current() if trace is None or trace.scope is None else trace.reading(self)
        if tensor is None:
            tensor = Tensor(self._array, lent=self._lent)
            self._lent.add(tensor)
            self._current = weakref.ref(tensor)
        for watched in STATE.watchers:
            watched.append(self)
        for recorder in STATE.recorders:
            recorder.take_read(self, tensor)
        return tensor

    def before_write(self) -> None:
        """Give tensors that share the array copies of their own."""
        for tensor in list(self._lent):
            tensor.array, tensor.lent = tensor.array.copy(), None
        self._lent.clear()
        self._current = lambda: None

    def _written(self) -> Variable:
        if STATE.recorders or STATE.watchers:
            self.read()  # whoever watches the variable watches what it becomes
        return self

    @writes("self", returns="self")
    def assign(self, value: Any) -> Variable:
        """Write a value of the same shape into the array."""
        fitting = self._fitting(value)
        self._array[...] = fitting
        return self._written()

    @writes("self", returns="self")
    def assign_add(self, delta: Any) -> Variable:
        """Add a value of the same shape to the array."""
        fitting = self._fitting(delta)
        self._array += fitting
        return self._written()

    @writes("self", returns="self")
    def assign_sub(self, delta: Any) -> Variable:
        """Subtract a value of the same shape from the array."""
        fitting = self._fitting(delta)
        self._array -= fitting
        return self._written()

    @writes("self")
    def constrain(self) -> None:
        """Assign what the constraint makes of the value, if there is one."""
        if self.constraint is not None:
            self.assign(self.constraint(self._array))

    def _fitting(self, value: Any) -> np.ndarray:
        array = np.asarray(value)
        if array.shape != self.shape:
            raise InvalidArgumentError(
                f"cannot assign shape {list(array.shape)} to {self.name} "
                f"of shape {list(self.shape)}"
            )
        if not np.can_cast(array.dtype, self.dtype, "same_kind"):
            raise InvalidTypeError(
                f"cannot assign {array.dtype} to {self.name} of dtype {self.dtype}"
            )
        return array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.numpy(), dtype, copy=copy)

    def __bool__(self) -> bool:
        return bool(self.numpy())

    def __int__(self) -> int:
        return int(self.numpy())

    def _is_watched(self) -> bool:
        return any(recorder.would_watch(self) for recorder in STATE.recorders)

    def __float__(self) -> float:
        if self._is_watched():
            lost("a float")
        return float(self.numpy())

    def __complex__(self) -> complex:
        if self._is_watched():
            lost("a complex number")
        return complex(self.numpy())

    def __reduce__(self) -> Any:
        parts = type(self), self._array, self.name, self._constraint, self.trainable
        return _again, parts

    def __repr__(self) -> str:
        return f"<Variable {self.name!r} shape={self.shape} dtype={self.dtype}>"


def get_variable_by_name(name: str) -> Variable | None:
    """Return the trainable variable that was given a name."""
    found = [variable for variable in list(_named) if variable.name == name]
    if not found:
        raise ValueError(f"Unsuccessful at finding variable {name}.")
    trainable = sorted((v for v in found if v.trainable), key=lambda v: v.key)
    if len(trainable) > 1:
        raise ValueError(
            f"Unsuccessful at finding trainable variable {name}. Number of candidates: "
            f"{len(trainable)}. Candidates: {trainable}"
        )
    return trainable[0] if trainable else None


def _again(cls: type[Variable], array: Any, name: str, *rest: Any) -> Variable:
    """Return a copy's Variable, which is not the one that its name stands for."""
    variable = cls(array, None, None, *rest)
    variable.name = name
    return variable
