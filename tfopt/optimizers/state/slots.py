"""The slots of variables and the other weights of an optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tfopt.core.backends import backend_of
from tfopt.core.line_alignment import empty_at_a_line
from tfopt.errors import InvalidArgumentError
from tfopt.kernels.update.commit import Attributes
from tfopt.optimizers.state.by_variable import ByVariable
from tfopt.storage import BLOCK, BLOCKS, quantize
from tfopt.variable import Variable

__all__ = ["SlotStore", "first_array"]

_NAMED_VALUES = {"zeros": 0, "ones": 1}


class SlotStore:
    """The weights of an optimizer, in the order of their creation.

    Attributes
    ----------
    weights : list of Variable
        Slots, and weights that do not belong to a variable.
    """

    def __init__(self) -> None:
        self._version = object()  # another one after each change
        self.weights: list[Variable] = []
        self._slots: ByVariable[dict[str, Variable]] = ByVariable()  # each by name

    # ---- reading

    @property
    def owners(self) -> list[Variable]:
        """The variables that have slots, in the order of their first slots."""
        return [*self._slots]

    @property
    def slots(self) -> Iterable[tuple[Variable, dict[str, Variable]]]:
        """The owners and their slots, by name."""
        return self._slots.items()

    def of(self, variable: Variable) -> dict[str, Variable]:
        """Return the slots of a variable by name."""
        slots: dict[str, Variable] = self._slots.get(variable, {})
        return slots

    @property
    def others(self) -> list[Variable]:
        """The weights that are not slots."""
        slots = {id(slot) for each in self._slots.values() for slot in each.values()}
        return [weight for weight in self.weights if id(weight) not in slots]

    def names(self) -> list[str]:
        """Return the names of slots, in the order of their first occurrence."""
        return list(dict.fromkeys(name for slots in self._slots.values() for name in slots))

    def arrays(self) -> list[np.ndarray]:
        """Return copies of the weights' arrays."""
        return [
            weight.numpy().copy()
            if weight.device == "cpu"
            else backend_of(weight).to_host(weight.value())
            for weight in self.weights
        ]

    # ---- writing

    def count_with(self, count: Variable) -> None:
        """Replace the first weight, which counts steps."""
        self.weights = [count, *self.weights[1:]]
        self._version = object()

    def add(self, variable: Variable, slot_name: str, slot: Variable) -> Variable:
        """Add a slot, as the last of the weights."""
        self.weights.append(slot)  # first: `withdraw` removes what belongs to these
        if variable not in self._slots:
            self._slots[variable] = {}
        self._slots[variable][slot_name] = slot
        self._version = object()
        return slot

    def write_to_replace(self, new: Mapping[int, Variable]) -> Attributes:
        """Return the write that replaces slots, by their `id`, by others."""
        slots = ByVariable(
            (owner, {name: new.get(id(slot), slot) for name, slot in each.items()})
            for owner, each in self._slots.items()
        )
        weights = [new.get(id(weight), weight) for weight in self.weights]
        return Attributes(self, {"_slots": slots, "weights": weights})

    def withdraw(self, mark: int) -> None:
        """Remove the weights after the first `mark`, which a failed step has created."""
        created = set(map(id, self.weights[mark:]))
        if not created:
            return
        for slots in self._slots.values():
            for name in [name for name, slot in slots.items() if id(slot) in created]:
                del slots[name]
        self._slots = ByVariable((owner, slots) for owner, slots in self._slots.items() if slots)
        del self.weights[mark:]
        self._version = object()

    def check_move(self, moved: ByVariable[Variable]) -> None:
        """Refuse to move slots (`move`) to variables that already have some."""
        for new in moved.values():
            if new in self._slots and new not in moved:
                raise InvalidArgumentError(
                    f"{new.name} replaces another array, but already has slots"
                )

    def move(self, moved: ByVariable[Variable]) -> None:
        """Move the slots of variables to others of the same shapes."""
        self._slots = self._slots.moved(moved)
        self._version = object()


def first_array(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    initializer: str | float | np.ndarray | Callable[..., Any],
    slot_name: str,
    make: Callable[..., np.ndarray] = empty_at_a_line,
) -> np.ndarray:
    """Return the initial array of a slot, made of its shape and dtype; see `Stateful.add_slot`."""
    if dtype in BLOCKS:
        numbers = np.empty(shape[0] * BLOCK, np.float32)
        numbers[...] = _first_value(initializer, numbers, slot_name)
        array = make(shape, dtype)
        array[...] = quantize(numbers, dtype)
        return array
    array = make(shape, dtype)
    array[...] = _first_value(initializer, array, slot_name)
    return array


def _first_value(initializer: Any, array: np.ndarray, slot_name: str) -> Any:
    if isinstance(initializer, str):
        if initializer not in _NAMED_VALUES:
            raise InvalidArgumentError(
                f'a slot\'s initializer must be "zeros", "ones", a number, an array or a function, '
                f"not {initializer!r}"
            )
        return _NAMED_VALUES[initializer]
    value = initializer(array.shape, array.dtype) if callable(initializer) else initializer
    if np.shape(value) not in ((), array.shape):
        raise InvalidArgumentError(
            f"{slot_name} has shape {array.shape}, but its initializer has shape {np.shape(value)}"
        )
    return value
