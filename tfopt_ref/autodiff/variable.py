"""An array that can be changed, and that tapes watch."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt_ref.autodiff.tensor import KEYS, STATE, Operand, Tensor


class Variable(Operand):
    """An array, of whose value NumPy's functions make Tensors: of that at that time."""

    def __init__(self, initial_value: Any, name: str = "Variable", trainable: bool = True) -> None:
        self._array = np.asarray(initial_value)
        self.name, self.trainable, self.key = name, trainable, next(KEYS)

    shape = property(lambda self: self._array.shape)
    dtype = property(lambda self: self._array.dtype)

    def numpy(self) -> np.ndarray:
        """Return the array itself."""
        return self._array

    def read(self) -> Tensor:
        """Return the value as it is now, and let those who watch know."""
        tensor = Tensor(self._array.copy())
        for variables in STATE.readers:
            variables.append(self)
        for tape in STATE.tapes:
            tape.take_read(self, tensor)
        return tensor

    def assign(self, value: Any) -> Variable:
        """Write a value into the array."""
        self._array[...] = np.asarray(value)
        return self._read_by_tapes()

    def assign_add(self, delta: Any) -> Variable:
        """Add a value to the array."""
        self._array += np.asarray(delta)
        return self._read_by_tapes()

    def assign_sub(self, delta: Any) -> Variable:
        """Subtract a value from the array."""
        self._array -= np.asarray(delta)
        return self._read_by_tapes()

    def _read_by_tapes(self) -> Variable:
        self.read()  # who watches it watches what it becomes
        return self
