"""An optimizer's state: the step count, and the slots of variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt.core.backends import backend_of
from tfopt.core.effects import writes
from tfopt.errors import InvalidArgumentError
from tfopt.optimizers.base.gradients import as_variable, memory_of, now_at
from tfopt.optimizers.base.tree import Places
from tfopt.optimizers.base.weights import dtype_of, fitting
from tfopt.variable import Variable

__all__ = ["State"]

_NAMED_VALUES = {"zeros": 0, "ones": 1}


class State:
    """What every step changes beside variables, in the order in which it was made.

    Parameters
    ----------
    name : str
        Begins the names of all parts.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._weights = [
            Variable(np.zeros((), np.int64), name=f"{name}/iterations", trainable=False)
        ]
        self._slots: dict[tuple[Any, ...], dict[str, Variable]] = {}
        self._owners: list[Variable] = []  # keeps each slot's variable, hence its address, alive
        self._places = Places()

    def __getstate__(self) -> dict[str, Any]:
        # what identifies variables by their memory would not find those of a copy
        slots = [(owner, self._slots[memory_of(owner)]) for owner in self._owners]
        return {**vars(self), "_slots": slots}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._slots = {memory_of(owner): slots for owner, slots in state["_slots"]}

    @property
    def iterations(self) -> Variable:
        """The number of steps taken, int64.

        It can be set to a Variable, which is then counted up: before slots are made.
        """
        return self._weights[0]

    @iterations.setter
    def iterations(self, variable: Variable) -> None:
        if self._slots:
            raise RuntimeError(
                "Cannot set `iterations` to a new Variable after the Optimizer weights have been "
                "created"
            )
        count = as_variable(variable)
        if count.shape != () or count.dtype != np.int64:
            raise InvalidArgumentError(
                f"iterations must be an int64 scalar, not {count.dtype} of shape {count.shape}"
            )
        self._weights[0] = count

    # ---- slots

    def add_slot(
        self,
        var: Any,
        slot_name: str,
        initializer: str | float | np.ndarray | Callable[..., Any] = "zeros",
        shape: tuple[int, ...] | None = None,
    ) -> Variable:
        """Return the slot of a variable; make it if there is none.

        Parameters
        ----------
        var : Variable or ndarray
        slot_name : str
        initializer : {"zeros", "ones"}, number, array_like or callable
            The first value; a function is called with the shape and the dtype. Of a slot that
            there is, nothing changes.
        shape : tuple of int, optional
            Of the slot; the variable's by default. The dtype is always the variable's.

        Returns
        -------
        slot : Variable
            The last one of `weights`, if it is new.

        Raises
        ------
        InvalidArgumentError
            If the first value does not have the slot's shape, or `shape` is not the one of the slot
            that there is, or that the optimizer gives to it.
        """
        variable = as_variable(var)
        slots = self._slots.get(memory_of(variable), {})
        known = slots[slot_name].shape if slot_name in slots else None
        known = self._slot_shapes(variable).get(slot_name, known)
        if known is not None and shape is not None and tuple(shape) != known:
            raise InvalidArgumentError(
                f"the slot {slot_name} of {variable.name} has shape {known}, not {tuple(shape)}"
            )
        if slot_name not in slots:
            own = variable.shape if shape is None else shape
            array = _first_array(own, self._slot_dtype(variable), initializer, slot_name)
            return self._new_slot(variable, slot_name, array)
        return slots[slot_name]

    def _slot_shapes(self, variable: Variable) -> dict[str, tuple[int, ...]]:
        """Return the shapes that slots of a variable are known to have."""
        return {}

    def _slot_dtype(self, variable: Variable) -> np.dtype[Any]:
        """Return the dtype of a variable's slots."""
        return dtype_of(variable)

    def _new_slot(self, variable: Variable, slot_name: str, array: np.ndarray) -> Variable:
        """Make a slot of an array of the host; one of a variable on a GPU is copied there."""
        there = variable.device == "gpu"
        own = backend_of(variable).filled_like(variable.value(), array) if there else array
        slot = Variable(own, f"{self.name}/{variable.name}/{slot_name}", trainable=False)
        return self._keep_slot(variable, slot_name, slot)

    def _keep_slot(self, variable: Variable, slot_name: str, slot: Variable) -> Variable:
        slots = self._slots.setdefault(memory_of(variable), {})
        if not slots:
            self._owners.append(variable)
        slots[slot_name] = slot
        self._weights.append(slot)
        return slot

    def _mark(self) -> Any:
        """Return what `_withdraw` is given if a step that begins now fails."""
        return len(self._weights)

    def _withdraw(self, mark: Any) -> None:
        """Take back the slots that a step has made, as it has failed."""
        made = set(map(id, self._weights[mark:]))
        if not made:
            return
        for slots in self._slots.values():
            for name in [name for name, slot in slots.items() if id(slot) in made]:
                del slots[name]
        self._slots = {key: slots for key, slots in self._slots.items() if slots}
        self._owners = [owner for owner in self._owners if memory_of(owner) in self._slots]
        del self._weights[mark:]

    def _holders(self) -> list[Any]:
        """Return the objects whose attributes `_move_state` sets."""
        return [self]

    def _check_move(self, moved: dict[Any, Variable]) -> None:
        """Refuse to move the state of variables to others (`_move_state`) that have their own."""
        for new in moved.values():
            if memory_of(new) in self._slots and memory_of(new) not in moved:
                raise InvalidArgumentError(
                    f"{new.name} replaces another array, but has slots of its own already"
                )

    def _move_state(self, moved: dict[Any, Variable]) -> None:
        """Make the slots of variables, by their memory, those of others of their shapes."""
        self._slots = {now_at(key, moved): slots for key, slots in self._slots.items()}
        self._owners = [moved.get(memory_of(owner), owner) for owner in self._owners]

    def get_slot(self, var: Any, slot_name: str) -> Variable:
        """Return the slot of a variable.

        Raises
        ------
        KeyError
            If the variable has no such slot; slots are made by the first step.
        """
        return self._slots[memory_of(as_variable(var))][slot_name]

    def get_slot_names(self) -> list[str]:
        """Return the names of the slots that have been made, in the order of the first of each."""
        return list(dict.fromkeys(name for slots in self._slots.values() for name in slots))

    # ---- weights

    @property
    def weights(self) -> list[Variable]:
        """The state: the step count, then the slots in the order in which they were made."""
        return list(self._weights)

    def variables(self) -> list[Variable]:
        """Return `weights`, as TensorFlow's method does."""
        return self.weights

    def get_weights(self) -> list[np.ndarray]:
        """Return copies of the state's arrays, in the order of `weights`."""
        return [
            weight.numpy().copy()
            if weight.device == "cpu"
            else backend_of(weight).to_host(weight.value())
            for weight in self._weights
        ]

    @writes()
    def set_weights(self, weights: Any) -> None:
        """Set the state to arrays as `get_weights` returns them.

        Parameters
        ----------
        weights : list of array_like
            As many as `weights`, which the first step makes, and of their shapes; converted to
            their dtypes.

        Raises
        ------
        InvalidArgumentError
            If they are not; nothing has changed.
        """
        for weight, array in zip(
            self._weights, fitting(self.name, self._weights, weights), strict=True
        ):
            weight.assign(array)


def _first_array(
    shape: tuple[int, ...], dtype: np.dtype[Any], initializer: Any, slot_name: str
) -> np.ndarray:
    array = np.empty(shape, dtype)
    array[...] = _first_value(initializer, array, slot_name)
    return array


def _first_value(initializer: Any, array: np.ndarray, slot_name: str) -> Any:
    if isinstance(initializer, str):
        if initializer not in _NAMED_VALUES:
            raise InvalidArgumentError(
                f'a slot\'s initializer may be named "zeros" or "ones", not {initializer!r}'
            )
        return _NAMED_VALUES[initializer]
    value = initializer(array.shape, array.dtype) if callable(initializer) else initializer
    if np.shape(value) not in ((), array.shape):
        raise InvalidArgumentError(
            f"{slot_name} has shape {array.shape}, its first value {np.shape(value)}"
        )
    return value
