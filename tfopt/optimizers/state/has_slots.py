"""The slots of an optimizer: their creation, lookup and places."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tfopt.core.backends import backend_of
from tfopt.core.effects import writes
from tfopt.errors import InvalidArgumentError
from tfopt.kernels.update.commit import Attributes, carry_out
from tfopt.optimizers.settings import HasSettings
from tfopt.optimizers.state.allocation import Allocate, allocated, as_allocate, moved
from tfopt.optimizers.state.restoration import fill, in_memory
from tfopt.optimizers.state.slots import SlotStore, first_array
from tfopt.optimizers.state.variables import as_variable
from tfopt.variable import Variable

__all__ = ["HasSlots"]


class HasSlots(HasSettings):
    """Base class of objects with slots of variables."""

    #: What makes the arrays of slots; None for memory.
    _allocate: Allocate | None = None
    name: Any

    def __init__(self) -> None:
        self._allocate = None
        self._store = SlotStore()

    def _tree(self) -> Iterator[Any]:
        raise NotImplementedError

    def add_slot(
        self,
        var: Any,
        slot_name: str,
        initializer: str | float | np.ndarray | Callable[..., Any] = "zeros",
        shape: tuple[int, ...] | None = None,
    ) -> Variable:
        """Return a slot of a variable; create it if it does not exist.

        Parameters
        ----------
        var : Variable or ndarray
        slot_name : str
        initializer : {"zeros", "ones"}, number, array_like or callable
            The initial value; a function is called with the shape and the dtype. An existing slot
            is left unchanged.
        shape : tuple of int, optional
            The shape of the slot; by default the variable's. The dtype is always the variable's.

        Returns
        -------
        slot : Variable
            A new slot becomes the last of `weights`.

        Raises
        ------
        InvalidArgumentError
            If the initial value does not have the slot's shape, or if `shape` differs from that of
            the existing slot or from the one that the optimizer prescribes.
        """
        variable = as_variable(var)
        slots = self._store.of(variable)
        expected = slots[slot_name].shape if slot_name in slots else None
        expected = self._slot_shapes(variable).get(slot_name, expected)
        if expected is not None and shape is not None and tuple(shape) != expected:
            raise InvalidArgumentError(
                f"the slot {slot_name} of {variable.name} has shape {expected}, not {tuple(shape)}"
            )
        if slot_name in slots:
            return slots[slot_name]
        dtype = self._slot_dtype(variable, slot_name)
        shapes = (shape, expected, variable.shape)
        first_shape = next(tuple(each) for each in shapes if each is not None)
        make = self._making(variable, slot_name)
        array = first_array(first_shape, dtype, initializer, slot_name, make)
        return self._store.add(variable, slot_name, self._slot_of(variable, slot_name, array))

    @writes()
    def allocate_slots(self, where: str | os.PathLike[str] | Allocate | None) -> None:
        """Allocate the slots elsewhere: those there are move, and new ones are made there.

        So a table and its slots may be larger than memory. With a folder, each slot is a file in
        it, mapped into memory, without a name, and gone when the slot is.

        Parameters
        ----------
        where : path-like, callable or None
            A folder; or a function of the names of the variable and the slot, the shape and the
            dtype, which returns a C-contiguous array that may be written, and gives memory of its
            own to each call. None: memory. Slots on a GPU stay there.

        Raises
        ------
        InvalidArgumentError, InvalidTypeError
            If a function returns no such array. Then nothing has changed.
        OSError
            If a file cannot be made, or the disk is full. Then nothing has changed.

        Notes
        -----
        It is no part of a configuration or state: slots of copies, and of pickled and loaded
        optimizers, are in memory unless this method is called for them, too. `load` fills new
        slots from the file, without a copy in memory.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from tfopt.optimizers import Adam
        >>> opt, table = Adam(0.1, sparse="lazy"), np.zeros((1000, 64), np.float32)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     opt.allocate_slots(folder)
        ...     _ = opt.step(table, np.ones_like(table))
        >>> type(opt.get_slot(table, "m").numpy()).__name__
        'memmap'
        """
        allocate = as_allocate(where)
        changes: list[Any] = []
        for each in self._tree():
            vars(each).setdefault("_allocate", None)  # those of earlier pickles have none
            new = {
                id(slot): each._slot_of(owner, name, moved(allocate, owner.name, name, slot))
                for owner, slots in each._store.slots
                for name, slot in slots.items()
                if slot.device == "cpu"
            }
            changes += [
                each._store.write_to_replace(new),
                Attributes(each, {"_allocate": allocate}),
            ]
        carry_out(changes)

    def _making(self, variable: Variable, slot_name: str) -> Callable[..., np.ndarray]:
        """Return a function of a shape and a dtype that makes the array of a slot."""
        allocate = self._allocate if variable.device == "cpu" else None
        return partial(allocated, allocate, variable.name, slot_name)

    def _made_slot(self, variable: Variable, slot_name: str, array: Any) -> Variable:
        """Return a slot with the numbers of a host array, or of one in a file."""
        if self._allocate is None or variable.device == "gpu":
            return self._slot_of(variable, slot_name, in_memory(array))
        own = self._making(variable, slot_name)(array.shape, array.dtype)
        fill(own, array)
        return self._slot_of(variable, slot_name, own)

    def _slot_of(self, variable: Variable, slot_name: str, array: np.ndarray) -> Variable:
        """Return a slot of a host array; for a variable on a GPU the array is copied there."""
        on_device = variable.device == "gpu"
        value = backend_of(variable).filled_like(variable.value(), array) if on_device else array
        return Variable(value, f"{self.name}/{variable.name}/{slot_name}", trainable=False)

    def _slot_shapes(self, variable: Variable) -> dict[str, tuple[int, ...]]:
        """Return the prescribed shapes of the slots of a variable."""
        return {}

    def _slot_dtype(self, variable: Variable, slot_name: str) -> np.dtype[Any]:
        """Return the dtype of a slot of a variable."""
        dtype: np.dtype[Any] = variable.dtype
        return dtype

    def get_slot(self, var: Any, slot_name: str) -> Variable:
        """Return the slot of a variable.

        Raises
        ------
        KeyError
            If the variable has no such slot; the first step creates the slots.
        """
        variable = as_variable(var)
        slots = self._slots_of(variable)
        if slot_name not in slots:
            raise KeyError(
                f"{self.name} has no slot {slot_name!r} of {variable.name}: its slots are "
                f"{', '.join(slots)}"
                if slots
                else f"{self.name} has no slots of {variable.name}: its first step makes them"
            )
        return slots[slot_name]

    def _slots_of(self, variable: Variable) -> dict[str, Variable]:
        return self._store.of(variable)

    def get_slot_names(self) -> list[str]:
        """Return the names of the existing slots, in the order of their first occurrence."""
        return self._store.names()
