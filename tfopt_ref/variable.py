"""An array with a name and a lock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt_ref.errors import InvalidArgumentError, InvalidTypeError

__all__ = ["Variable"]


class Variable:
    """An array that an optimizer updates in place; an array given is wrapped, not copied."""

    def __init__(
        self,
        initial_value: Any,
        name: str | None = None,
        dtype: Any = None,
        constraint: Callable[[Any], Any] | None = None,
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
            raise InvalidTypeError(f"a Variable holds numbers, not {array.dtype}")
        self._array = array
        self.name = "Variable" if name is None else name
        self._constraint = constraint
        self.lock = threading.RLock()

    shape = property(lambda self: self._array.shape)
    dtype = property(lambda self: self._array.dtype)
    constraint = property(lambda self: self._constraint)
    device = "cpu"

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if self._array.dtype.kind == "V":  # bfloat16, of which the interface knows the size alone
            raise AttributeError("__array_interface__")
        interface: dict[str, Any] = self._array.__array_interface__
        return interface

    def value(self) -> np.ndarray:
        """Return the array itself."""
        return self._array

    def numpy(self) -> np.ndarray:
        """Return the array itself, not a copy."""
        return self._array

    def assign(self, value: Any) -> Variable:
        """Write a value of the same shape into the array."""
        self._array[...] = self._fitting(value)
        return self

    def assign_add(self, delta: Any) -> Variable:
        """Add a value of the same shape to the array."""
        self._array += self._fitting(delta)
        return self

    def assign_sub(self, delta: Any) -> Variable:
        """Subtract a value of the same shape from the array."""
        self._array -= self._fitting(delta)
        return self

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
        return np.array(self._array, dtype, copy=copy)

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, key: Any) -> Any:
        return self._array[key]

    def __int__(self) -> int:
        return int(self._array)

    def __float__(self) -> float:
        return float(self._array)

    def __repr__(self) -> str:
        return f"<Variable {self.name!r} shape={self.shape} dtype={self.dtype}>"
