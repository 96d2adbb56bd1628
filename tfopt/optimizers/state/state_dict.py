"""Conversion of an optimizer's complete state to and from a dictionary.

The state of a wrapper contains the states of its inner optimizers as parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tfopt.errors import InvalidArgumentError
from tfopt.kernels.update.commit import Attributes
from tfopt.optimizers.state.by_variable import ByVariable
from tfopt.optimizers.state.key_paths import named
from tfopt.optimizers.state.restoration import (
    LoadedState,
    Restoration,
    as_damage,
    check_array,
    check_bounds,
    check_keys,
    check_known,
    check_same,
    check_variables,
    host_array,
    in_memory,
    kind_of,
    new_array,
)
from tfopt.optimizers.state.slot_storage import check_blocks
from tfopt.optimizers.state.slots import SlotStore
from tfopt.variable import Variable

if TYPE_CHECKING:
    from tfopt.optimizers.state.stateful import Stateful

__all__ = ["check_weights", "load_state", "other_weights", "state_of"]

Place = tuple[str, str]  # the names of a variable and of its slot

_VERSION = 1
_OF_ALL = ("version", "variables")
_OF_EACH = ("class_name", "config", "weights", "slots", "order", "parts")


# ---- saving


def state_of(optimizer: Stateful, variables: Any) -> dict[str, Any]:
    """Return the complete state; see `Stateful.state_dict`."""
    names = _names(optimizer, variables, optimizer._places.at)
    kinds = {name: kind_of(variable) for name, variable in names.items()}
    return {"version": _VERSION, "variables": kinds, **_state(optimizer, names)}


def _state(optimizer: Stateful, names: dict[str, Variable]) -> dict[str, Any]:
    """Return the state of an optimizer, with those of its inner optimizers as parts."""
    store = optimizer._store
    keys = ByVariable((variable, name) for name, variable in names.items())
    places = {
        id(slot): [keys[owner], name]
        for owner, slots in store.slots
        for name, slot in slots.items()
    }
    others = other_weights(optimizer)
    labels = {id(weight): key for key, weight in others.items()}
    inside = {key: _state(inner, names) for key, inner in optimizer._inner().items()}
    return {
        "class_name": type(optimizer).__name__,
        "config": optimizer._saved_config(),
        "weights": {key: host_array(weight) for key, weight in others.items()},
        "slots": {
            keys[owner]: {name: host_array(slot) for name, slot in slots.items()}
            for owner, slots in store.slots
        },
        "order": [places.get(id(weight)) or labels[id(weight)] for weight in store.weights],
        "parts": {**inside, **optimizer._state_parts(names)},
    }


# ---- loading


def load_state(optimizer: Stateful, state: dict[str, Any], variables: Any) -> None:
    """Restore the state from a dictionary; see `Stateful.load_state_dict`."""
    check_keys(state, (*_OF_ALL, *_OF_EACH))
    names = _names(optimizer, variables)
    with as_damage():
        if state["version"] != _VERSION:
            raise InvalidArgumentError(f"the state has version {state['version']}, not {_VERSION}")
        check_variables(state["variables"], names)
    restoration = Restoration(optimizer._all_holders())
    _prepare(restoration, optimizer, state, names)
    restoration.add([] if variables is None else [optimizer._places.write_to_place(variables)])
    restoration.carry_out()


def _prepare(
    restoration: Restoration, optimizer: Stateful, state: Any, names: dict[str, Variable]
) -> None:
    """Check the state of an optimizer and its inner ones, and add what restores it."""
    check_keys(state, _OF_EACH)
    with as_damage():
        if state["class_name"] != type(optimizer).__name__:
            raise InvalidArgumentError(
                f"the state was saved by {state['class_name']}, not by {type(optimizer).__name__}"
            )
        saved = in_memory(state["weights"])
        others = _checked_weights(optimizer, saved)
    other = optimizer._like(state["config"])
    with as_damage():
        arrays = _checked_slots(optimizer, state, names, other)
        parts = dict(state["parts"])
    for key, inner in optimizer._inner().items():
        _prepare(restoration, inner, parts.pop(key, None), names)
    for key, weight in others.items():
        restoration.assign(weight, saved[key])
    slots = _restored_slots(restoration, optimizer, arrays, names)
    restoration.add([_arranged(optimizer._store, state["order"], {**others, **slots}, names)])
    parts = in_memory(parts)
    restoration.add(optimizer._changes_to_adopt(LoadedState(other, parts, names, slots)))
    restoration.add(optimizer._restoring(parts, names, slots))


def _restored_slots(
    restoration: Restoration,
    optimizer: Stateful,
    arrays: dict[Place, Any],
    names: dict[str, Variable],
) -> dict[Place, Variable]:
    """Return the slots of a state: existing ones, which are assigned to, and new ones."""
    slots = {}
    for (name, key), array in arrays.items():
        slot = optimizer._store.of(names[name]).get(key)
        if slot is None:
            slot = optimizer._made_slot(names[name], key, array)
        else:
            restoration.assign(slot, array)
        slots[name, key] = slot
    return slots


def _arranged(
    store: SlotStore, order: list[Any], weights: dict[Any, Variable], names: dict[str, Variable]
) -> Attributes:
    """Return the write that puts weights and slots into the saved order."""
    new = SlotStore()
    for place in order:
        if isinstance(place, str):
            new.weights.append(weights[place])
        else:
            name, slot = place
            new.add(names[name], slot, weights[name, slot])
    return Attributes(store, vars(new))


# ---- checks


def _names(
    optimizer: Stateful, variables: Any, last_at: Mapping[str, Variable] | None = None
) -> dict[str, Variable]:
    """Return variables by name; by default those that have state.

    An array that has replaced another one since the last step, when the variables were those in
    `last_at`, stands for it. Raise if any other variable has slots.
    """
    if variables is None:
        known = [variable for each in optimizer._tree() for variable in each._known()]
        variables = [*ByVariable((variable, None) for variable in known)]
    names = named(variables)
    owners = ByVariable(pair for each in optimizer._tree() for pair in each._store.slots)
    for name, variable in names.items():
        last = last_at.get(name) if last_at else None
        if last is not None and variable not in owners and kind_of(last) == kind_of(variable):
            names[name] = last
    listed = ByVariable((variable, name) for name, variable in names.items())
    for owner in owners:
        if owner not in listed:
            raise InvalidArgumentError(
                f"the optimizer has slots of {owner.name!r}, {owner.dtype} of shape "
                f"{list(owner.shape)}, which is not among the variables"
            )
    return names


def other_weights(optimizer: Stateful) -> dict[str, Variable]:
    """Return the weights that are not slots, by their names in a state."""
    others = optimizer._store.others
    counted = {"iterations": others.pop(0)} if optimizer._counts_steps else {}
    return counted | {other.name.rpartition("/")[2]: other for other in others}


def _checked_weights(optimizer: Stateful, saved: dict[str, Any]) -> dict[str, Variable]:
    others = other_weights(optimizer)
    check_same("weights", others, saved)
    for key, weight in others.items():
        check_array(key, saved[key], weight.shape, weight.dtype)
    check_weights(optimizer, saved)
    return others


def check_weights(optimizer: Stateful, weights: dict[str, np.ndarray]) -> None:
    """Raise if a weight that is not a slot, by its name in a state, is out of its bounds."""
    for key, bounds in optimizer._weight_bounds.items():
        check_bounds(key, weights[key], bounds)


def _checked_slots(
    optimizer: Stateful, state: dict[str, Any], names: dict[str, Variable], other: Any
) -> dict[Place, Any]:
    check_known(state["slots"], names)
    saved = {(name, slot) for name, slots in state["slots"].items() for slot in slots}
    listed = [tuple(place) for place in state["order"] if not isinstance(place, str)]
    others = [place for place in state["order"] if isinstance(place, str)]
    if saved != set(listed) or len(saved) != len(listed):
        differing = ", ".join("/".join(place) for place in sorted(saved ^ set(listed)))
        raise InvalidArgumentError(f"the state's slots do not match its order: {differing}")
    counted, first = (state["order"][:1], ["iterations"]) if optimizer._counts_steps else ([], [])
    if counted != first or sorted(others) != sorted(state["weights"]):
        raise InvalidArgumentError("the state's weights do not match its order")
    checked = {}
    for name, slot in listed:
        variable, array = names[name], state["slots"][name][slot]
        existing = optimizer._store.of(variable).get(slot)
        shapes = other._slot_shapes(variable)
        shape = shapes.get(slot, np.shape(array)) if existing is None else existing.shape
        dtype = (other if existing is None else optimizer)._slot_dtype(variable, slot)
        check_array(f"{name}/{slot}", array, shape, dtype)
        if dtype.kind == "V":
            check_blocks(f"{name}/{slot}", in_memory(array))
        new = existing is None and variable.device == "cpu" and optimizer._allocate is None
        checked[name, slot] = new_array(array) if new else array
    return checked
