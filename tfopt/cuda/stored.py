"""Storage and rounding of variables whose step mixes dtypes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_int, c_int64, c_uint64, c_void_p
from typing import Any, NamedTuple

import numpy as np

from tfopt.cuda.device_array import BLOCK_DTYPES, DeviceArray, as_device_array
from tfopt.cuda.memory import new_like, write
from tfopt.errors import InvalidTypeError
from tfopt.kernels.arrays.coerce import BLOCK_FORMATS, FIRST_BLOCK_FORMAT
from tfopt.kernels.update.step_table import Kernel
from tfopt.storage import DYNAMIC8, POSITIVE_DYNAMIC8, dynamic_map
from tfopt.updates.rule_steps import Rounding
from tfopt.variable import Variable

__all__ = ["Passed", "Stored", "stored_of"]

#: The storage types of layout.pxd, by the names of dtypes.
_STORAGE = {"float32": 0, "float16": 1, "bfloat16": 2}
_STORAGE |= {name: FIRST_BLOCK_FORMAT + k for k, (name, *_) in enumerate(BLOCK_FORMATS)}
_CODES = {name: codes for name, _, codes, _ in BLOCK_FORMATS}
_IN_TABLES = {name for name, *_, dtype in BLOCK_FORMATS if dtype in (DYNAMIC8, POSITIVE_DYNAMIC8)}
#: On each device, the numbers of these codes, and what is in the middle between two.
_tables: dict[int, Any] = {}


class Passed(ctypes.Structure):
    """How variables are stored, as the library takes it; as in device_step.h."""

    _fields_ = (
        ("storage", c_int * 5),
        ("rounds", c_int),
        ("seed", c_uint64),
        ("step", c_uint64),
        ("numbers", POINTER(c_int64)),
        ("dynamic", c_void_p),
    )


class Stored(NamedTuple):
    """How variables of a step are stored: each in the same way."""

    storage: tuple[int, ...]  # of the variable, the slots and the gradient
    rounding: Rounding
    places: Sequence[int]  # of the variables in the step, if they are rounded stochastically
    tables: int | None  # their address on the GPU, if there are codes of them

    def passed(self) -> Passed:
        """Return the arguments of the library's function."""
        seed, step = self.rounding or (0, 0)
        numbers = (c_int64 * len(self.places))(*self.places)
        rounds = self.rounding is not None
        storage = (c_int * 5)(*self.storage)
        return Passed(storage, rounds, seed, step, numbers, self.tables)


def stored_of(
    kernel: Kernel,
    arrays: list[DeviceArray],
    device: int,
    rounding: Rounding,
    places: Sequence[int],
    like: Any,
) -> Stored | None:
    """Return how a variable is stored; None if the kernels of its dtype take the step.

    Parameters
    ----------
    kernel : Kernel
    arrays : list of DeviceArray
        The variable, its slots and its gradient.
    device : int
    rounding : tuple of int, optional
    places : sequence of int
        Of the variables in the step.
    like : array
        Of a library that allocates tables if they are needed.

    Raises
    ------
    InvalidTypeError
        If a slot is stored in codes that the rule's steps on a GPU do not have.
    """
    var, *slots, _ = arrays
    rounds = rounding is not None and any(array.dtype == "bfloat16" for array in arrays[:-1])
    if not rounds and all(slot.dtype == var.dtype for slot in slots):
        return None
    for name, slot in zip(kernel.rule.slots, slots, strict=True):
        if slot.dtype in BLOCK_DTYPES and _CODES[slot.dtype] != kernel.rule.codes.get(name):
            raise InvalidTypeError(
                f"{kernel.name} has no steps on a GPU with {name} stored as {slot.dtype}"
            )
    tables = None
    if any(slot.dtype in _IN_TABLES for slot in slots):
        tables = as_device_array(_tables_on(device, like), "tables").address
    storage = tuple(_STORAGE[array.dtype] for array in arrays)
    return Stored(storage, rounding if rounds else None, places, tables)


def _tables_on(device: int, like: Any) -> Any:
    """Return the tables of dynamic codes on a device, made once with the library of an array."""
    if device not in _tables:
        like = like.value() if isinstance(like, Variable) else like
        columns = []
        for dtype in (DYNAMIC8, POSITIVE_DYNAMIC8):
            numbers = dynamic_map(dtype)
            columns += [numbers, (numbers[:-1] + numbers[1:]) / np.float32(2), [np.nan]]
        made = new_like(like, (sum(map(len, columns)),), np.dtype(np.float32))
        write(made, np.concatenate(columns).astype(np.float32))
        _tables[device] = made
    return _tables[device]
