"""An optimizer's whole state as a dictionary."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Any

import numpy as np

from tfopt_ref.errors import InvalidArgumentError
from tfopt_ref.optimizers.naming import named
from tfopt_ref.optimizers.pairs import memory_of
from tfopt_ref.optimizers.saved_config import like, saved_config, settings_of
from tfopt_ref.optimizers.state import State
from tfopt_ref.optimizers.state_parts import (
    as_damage,
    check_array,
    check_keys,
    check_known,
    check_same,
    check_variables,
    kind_of,
)
from tfopt_ref.variable import Variable

__all__ = ["Checkpointed"]

_VERSION = 1
_OF_ALL = ("version", "variables")
_OF_EACH = ("class_name", "config", "weights", "slots", "order", "parts")


class Checkpointed(State):
    """State that can be taken out as a whole, and put into an optimizer made like this one.

    What a subclass keeps beside slots and weights, `_state_parts` and `_restoring` take along.
    """

    _counts_steps = True  # whether the first weight is the number of steps

    # ---- what a subclass may override

    def _state_parts(self, names: dict[str, Variable]) -> dict[str, Any]:
        """Return what there is beside weights and slots: nested dicts of arrays and numbers.

        `names` has the variables of the dictionary by their names in it.
        """
        return {}

    def _restoring(
        self, parts: dict[str, Any], names: dict[str, Variable], slots: Container[tuple[str, str]]
    ) -> list[Callable[[], None]]:
        """Check parts, change nothing, and return what puts them in place once all fits.

        A subclass takes its own out of `parts` and passes on the rest. `slots` are the names, of
        variable and slot, of those that will be in place.
        """
        if parts:
            raise InvalidArgumentError(f"{self.name} has no part named {', '.join(parts)}")
        return []

    def _inner(self) -> dict[str, Checkpointed]:
        """Return the optimizers that this one is around, by the names of their parts."""
        return {}

    def _known(self) -> list[Variable]:
        """Return the variables that there is some state of."""
        return list(self._owners)

    def _saved_config(self) -> dict[str, Any]:
        """Return the arguments that steps to come depend on."""
        return saved_config(self)

    def _like(self, config: dict[str, Any]) -> Any:
        """Return an optimizer that is made of what `_saved_config` returned."""
        return like(self, config)

    def _adopt(self, other: Any) -> None:
        """Take over the settings of an optimizer that `_like` has made."""
        vars(self).update(settings_of(other))

    # ---- out

    def state_dict(self, variables: Any = None) -> dict[str, Any]:
        """Return the whole state: steps taken, slots, hyperparameters, and what rows owe."""
        names = self._names(variables)
        kinds = {name: kind_of(variable) for name, variable in names.items()}
        return {"version": _VERSION, "variables": kinds, **self._state(names)}

    def _state(self, names: dict[str, Variable]) -> dict[str, Any]:
        """Return the state of this one, and as parts of it that of those it is around."""
        keys = {memory_of(variable): name for name, variable in names.items()}
        places = {id(slot): [keys[memory], name] for memory, name, slot in self._all_slots()}
        others = self._other_weights()
        labels = {id(weight): key for key, weight in others.items()}
        inside = {key: inner._state(names) for key, inner in self._inner().items()}
        return {
            "class_name": type(self).__name__,
            "config": self._saved_config(),
            "weights": {key: weight.numpy() for key, weight in others.items()},
            "slots": {
                keys[memory]: {name: slot.numpy() for name, slot in slots.items()}
                for memory, slots in self._slots.items()
            },
            "order": [
                places.get(id(weight)) or labels[id(weight)]
                for weight in self._weights
                if id(weight) in places or id(weight) in labels
            ],
            "parts": {**inside, **self._state_parts(names)},
        }

    # ---- in

    def load_state_dict(self, state: dict[str, Any], variables: Any = None) -> None:
        """Make the state the one of a dictionary; steps go on from there, bit for bit."""
        check_keys(state, (*_OF_ALL, *_OF_EACH))
        names = self._names(variables)
        with as_damage():
            if state["version"] != _VERSION:
                raise InvalidArgumentError(
                    f"the state has version {state['version']}, not {_VERSION}"
                )
            check_variables(state["variables"], names)
        restoring = self._restoring_all(state, names)
        for restore in restoring:
            restore()

    def _restoring_all(
        self, state: dict[str, Any], names: dict[str, Variable]
    ) -> list[Callable[[], None]]:
        """Check the state of this one and of those it is around; return what takes it over."""
        check_keys(state, _OF_EACH)
        with as_damage():
            if state["class_name"] != type(self).__name__:
                raise InvalidArgumentError(
                    f"the state was saved by {state['class_name']}, not by {type(self).__name__}"
                )
            others = self._checked_weights(state["weights"])
        other = self._like(state["config"])
        with as_damage():
            slots = self._checked_slots(state, names, other)
            parts = dict(state["parts"])
        inside = [
            restore
            for key, inner in self._inner().items()
            for restore in inner._restoring_all(parts.pop(key, None), names)
        ]
        restoring = self._restoring(parts, names, slots)

        def restore_own() -> None:
            self._adopt(other)
            for key, weight in others.items():
                weight.assign(state["weights"][key])
            self._put(state["order"], others, slots, names)

        return [*inside, restore_own, *restoring]

    def _put(
        self,
        order: list[Any],
        others: dict[str, Variable],
        slots: dict[tuple[str, str], np.ndarray],
        names: dict[str, Variable],
    ) -> None:
        before, self._slots, self._owners = self._slots, {}, []
        self._weights = [] if self._counts_steps else self._weights[:1]
        for place in order:
            if isinstance(place, str):
                self._weights.append(others[place])
                continue
            name, slot = place
            variable, array = names[name], slots[name, slot]
            there = before.get(memory_of(variable), {}).get(slot)
            if there is None:
                self._new_slot(variable, slot, array)
            else:
                self._keep_slot(variable, slot, there.assign(array))

    # ---- checks

    def _names(self, variables: Any) -> dict[str, Variable]:
        """Return variables by their names; by default those that there is some state of.

        Refuse them if another one has slots.
        """
        if variables is None:
            variables = list({memory_of(known): known for known in self._known()}.values())
        names = named(variables)
        given = {memory_of(variable) for variable in names.values()}
        for owner in self._all_owners():
            if memory_of(owner) not in given:
                raise InvalidArgumentError(
                    f"the optimizer has slots of {owner!r}, which is not among the variables"
                )
        return names

    def _all_owners(self) -> Iterator[Variable]:
        yield from self._owners
        for inner in self._inner().values():
            yield from inner._all_owners()

    def _all_slots(self) -> list[tuple[Any, str, Variable]]:
        return [(key, *slot) for key, slots in self._slots.items() for slot in slots.items()]

    def _other_weights(self) -> dict[str, Variable]:
        """Return the weights that are no slots, by their names in a state."""
        slots = {id(slot) for _, _, slot in self._all_slots()}
        count, *others = [weight for weight in self._weights if id(weight) not in slots]
        counted = {"iterations": count} if self._counts_steps else {}
        return counted | {other.name.rpartition("/")[2]: other for other in others}

    def _checked_weights(self, saved: dict[str, Any]) -> dict[str, Variable]:
        others = self._other_weights()
        check_same("weights", others, saved)
        for key, weight in others.items():
            check_array(key, saved[key], weight.shape, weight.dtype)
        return others

    def _checked_slots(
        self,
        state: dict[str, Any],
        names: dict[str, Variable],
        other: Any,
    ) -> dict[tuple[str, str], np.ndarray]:
        check_known(state["slots"], names)
        given = {(name, slot) for name, slots in state["slots"].items() for slot in slots}
        listed = [tuple(place) for place in state["order"] if not isinstance(place, str)]
        others = [place for place in state["order"] if isinstance(place, str)]
        if given != set(listed) or len(given) != len(listed):
            lacking = ", ".join("/".join(place) for place in sorted(given ^ set(listed)))
            raise InvalidArgumentError(f"the state's slots are not those it lists: {lacking}")
        counted, first = (state["order"][:1], ["iterations"]) if self._counts_steps else ([], [])
        if counted != first or sorted(others) != sorted(state["weights"]):
            raise InvalidArgumentError("the state's weights are not those it lists")
        found = {}
        for name, slot in listed:
            variable, array = names[name], state["slots"][name][slot]
            there = self._slots.get(memory_of(variable), {}).get(slot)
            known = other._slot_shapes(variable)
            shape = known.get(slot, np.shape(array)) if there is None else there.shape
            check_array(f"{name}/{slot}", array, shape, self._slot_dtype(variable))
            found[name, slot] = array.copy()
        return found
