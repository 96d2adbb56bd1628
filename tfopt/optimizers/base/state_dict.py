"""An optimizer's whole state as a dictionary, and as a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any

import numpy as np

from tfopt.core.effects import writes
from tfopt.errors import InvalidArgumentError
from tfopt.optimizers.base.gradients import memory_of
from tfopt.optimizers.base.key_paths import named
from tfopt.optimizers.base.saved_config import like, saved_config, settings_of
from tfopt.optimizers.base.settings import Settings
from tfopt.optimizers.base.state_parts import (
    as_damage,
    check_array,
    check_keys,
    check_known,
    check_same,
    check_variables,
    host_array,
    in_memory,
    kind_of,
    new_array,
    put,
)
from tfopt.variable import Variable

__all__ = ["Checkpointed"]

Place = tuple[str, str]  # the names of a variable and of its slot

_VERSION = 1
_OF_ALL = ("version", "variables")
_OF_EACH = ("class_name", "config", "weights", "slots", "order", "parts")


class Checkpointed(Settings):
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
        self, parts: dict[str, Any], names: dict[str, Variable], slots: Container[Place]
    ) -> list[Callable[[], None]]:
        """Check parts, change nothing, and return what puts them in place once all fits.

        A subclass takes its own out of `parts` and passes on the rest. `slots` are the names, of
        variable and slot, of those that will be in place.
        """
        if parts:
            raise InvalidArgumentError(f"{self.name} has no part named {', '.join(parts)}")
        return []

    def _inner(self) -> Mapping[str, Checkpointed]:
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
        """Return the whole state: steps taken, slots, hyperparameters, and what rows owe.

        Parameters
        ----------
        variables : dict, list or tuple of variables, nested or not, optional
            All that the optimizer has updated; keys and places name them. By default they are
            numbered in the order in which it came to know them.

        Returns
        -------
        dict
            Nested dicts and lists of arrays, numbers and strings. The arrays are the state itself,
            which goes on changing: ``copy.deepcopy`` keeps a moment. (Those on a GPU are copied.)

        Raises
        ------
        InvalidArgumentError
            If the optimizer has slots of a variable that is not among them.

        Notes
        -----
        The values of the variables are not part of it. With ``sparse="catch_up"`` the steps that
        rows have not taken yet are, so the variables need not be up to date when they are saved.
        A learning rate that is a function, and no schedule, is not part of it either.

        Examples
        --------
        >>> import numpy as np
        >>> from tfopt.optimizers import Adam
        >>> w = np.ones(2)
        >>> opt = Adam(0.5)
        >>> _ = opt.apply_gradients([(w, w)])
        >>> state = opt.state_dict({"w": w})
        >>> int(state["weights"]["iterations"]), list(state["slots"]["w"])
        (1, ['m', 'v'])
        """
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
            "weights": {key: host_array(weight) for key, weight in others.items()},
            "slots": {
                keys[memory]: {name: host_array(slot) for name, slot in slots.items()}
                for memory, slots in self._slots.items()
            },
            "order": [
                places.get(id(weight)) or labels[id(weight)]
                for weight in self._weights
                if id(weight) in places or id(weight) in labels
            ],
            "parts": {**inside, **self._state_parts(names)},
        }

    def save(self, path: str | os.PathLike[str], variables: Any = None) -> None:
        """Write the state into a file, as :func:`tfopt.checkpoints.save` does.

        Parameters
        ----------
        path : path-like
            It ends in ``.safetensors`` or ``.npz``. What was there stays whole until all of the
            new file is on disk.
        variables
            As in `state_dict`.

        Raises
        ------
        InvalidArgumentError
            If the name ends in something else, or as in `state_dict`.
        OSError
            If the file cannot be written: what was there is as it was.
        """
        from tfopt import checkpoints

        checkpoints.save(path, self.state_dict(variables))

    # ---- in

    @writes()
    def load_state_dict(self, state: dict[str, Any], variables: Any = None) -> None:
        """Make the state the one of a dictionary; steps go on from there, bit for bit.

        Parameters
        ----------
        state : dict
            As `state_dict` returned it; its arrays are copied. Or as `checkpoints.opened` gives it;
            they are read to where they are to be.
        variables : dict, list or tuple of variables, nested or not, optional
            As in `state_dict`, with the same names: not the same arrays, but of their shapes and
            dtypes. A new optimizer needs them to know whose the slots are.

        Raises
        ------
        InvalidArgumentError
            If it is of another class, of other variables or shapes, or lacks something.
        InvalidTypeError
            If a dtype is another one. In any case nothing has changed.
        CheckpointError, OSError
            If a file that has been opened and checked cannot be read again, or has other bytes than
            before. Only then may some of the optimizer's arrays be new, and others not.

        Examples
        --------
        >>> import numpy as np
        >>> from tfopt.optimizers import Adam
        >>> w = np.ones(2)
        >>> opt = Adam(0.5)
        >>> _ = opt.apply_gradients([(w, w)])
        >>> other = Adam()
        >>> other.load_state_dict(opt.state_dict([w]), [w])
        >>> int(other.iterations), other.learning_rate
        (1, 0.5)
        """
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

    def load(self, path: str | os.PathLike[str], variables: Any = None) -> None:
        """Make the state the one of a file that `save` wrote.

        All of the file is checked, and whether it fits; then slots are read to where they are.

        Parameters
        ----------
        path : path-like
        variables
            As in `load_state_dict`.

        Raises
        ------
        CheckpointError
            If the file is damaged, cut short or none of tfopt's. Nothing has changed.
        OSError
            If it cannot be read.
        InvalidArgumentError
            As in `load_state_dict`; and what else is said there of files.
        """
        from tfopt import checkpoints

        with checkpoints.opened(path) as state:
            self.load_state_dict(state, variables)

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
            saved = in_memory(state["weights"])
            others = self._checked_weights(saved)
        other = self._like(state["config"])
        with as_damage():
            slots = self._checked_slots(state, names, other)
            parts = dict(state["parts"])
        inside = [
            restore
            for key, inner in self._inner().items()
            for restore in inner._restoring_all(parts.pop(key, None), names)
        ]
        restoring = self._restoring(in_memory(parts), names, slots)

        def restore_own() -> None:
            there = self._overwritten(slots, names)
            self._adopt(other)
            for key, weight in others.items():
                weight.assign(saved[key])
            self._put(state["order"], {**others, **there}, slots, names)

        return [*inside, restore_own, *restoring]

    def _overwritten(
        self, slots: dict[Place, Any], names: dict[str, Variable]
    ) -> dict[Place, Variable]:
        """Write over the slots that there are, and return them; a file may fail to be read here."""
        there = {}
        for (name, key), array in slots.items():
            slot = self._slots.get(memory_of(names[name]), {}).get(key)
            if slot is not None:
                put(array, slot)
                there[name, key] = slot
        return there

    def _put(
        self,
        order: list[Any],
        kept: dict[Any, Variable],
        slots: dict[Place, Any],
        names: dict[str, Variable],
    ) -> None:
        """Have weights and slots in an order: those that are kept, and new ones."""
        self._slots, self._owners = {}, []
        self._weights = [] if self._counts_steps else self._weights[:1]
        for place in order:
            if isinstance(place, str):
                self._weights.append(kept[place])
                continue
            name, slot = place
            if (name, slot) in kept:
                self._keep_slot(names[name], slot, kept[name, slot])
            else:
                self._new_slot(names[name], slot, in_memory(slots[name, slot]))

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
    ) -> dict[Place, Any]:
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
            new = there is None and variable.device == "cpu"
            found[name, slot] = new_array(array) if new else array
        return found
