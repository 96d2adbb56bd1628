"""The operands of operations: tensors, arrays, and objects that can be converted."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt.autodiff.ops import FUNCTIONS
from tfopt.core import engine
from tfopt.core.engine import Operand, Tensor
from tfopt.core.nest import flatten
from tfopt.indexed_slices import IndexedSlices, densify

__all__ = ["array_operand", "as_tensor", "operand"]


def operand(value: Any) -> Any:
    """Return the operand of an operation: a list of tensors stacked, slices densified.

    Raises
    ------
    ValueError
        If there is no array in it.
    """
    if isinstance(value, (Operand, np.ndarray, np.generic, bool, int, float, complex)):
        engine.refuse_masked(value)
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
    """Return the operand of a function of arrays: a Python number becomes an array."""
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
        If the value cannot be converted to an array of numbers.
    """
    if isinstance(value, Tensor):
        return value
    if type(value) is np.ndarray and not value.dtype.hasobject:
        return engine.wrapped(np.array(value))
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
