"""A mutable array that tapes watch."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt_ref.autodiff.tensor import KEYS, STATE, Operand, Tensor


class Variable(Operand):
    """A mutable array; NumPy's functions take its current value and return Tensors."""

    def __init__(self, initial_value: Any, name: str = "Variable", trainable: bool = True) -> None:
        self._array = np.asarray(initial_value)
        self.name, self.trainable, self.key = name, trainable, next(KEYS)

    shape = property(lambda self: self._array.shape)
    dtype = property(lambda self: self._array.dtype)

    def numpy(self) -> np.ndarray:
        """Return the array itself."""
        return self._array

    def read(self) -> Tensor:
        """Return the current value, and report the read to the watching tapes."""
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
        self.read()  # tapes that watch it then watch the new value
        return self
