"""An optimizer's whole state as a dictionary, and as a file."""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Callable, Container
from typing import Any

import numpy as np

from tfopt.errors import InvalidArgumentError
from tfopt.optimizers.hyper import rate_config
from tfopt.optimizers.naming import named
from tfopt.optimizers.pairs import memory_of
from tfopt.optimizers.schedules import LearningRateSchedule
from tfopt.optimizers.settings import Settings
from tfopt.optimizers.state_parts import (
    by_name,
    check_array,
    check_same,
    check_variables,
    dtype_of,
    host_array,
    kind_of,
)
from tfopt.variable import Variable

__all__ = ["Checkpointed"]

_VERSION = 1
_KEYS = ("version", "class_name", "config", "variables", "weights", "slots", "order", "parts")
#: Attributes that the constructor sets and a configuration does not hold, or not for another.
_OWN = ("name", "use_locking", "gradient_aggregator", "gradient_transformers")


class Checkpointed(Settings):
    """State that can be taken out as a whole, and put into an optimizer made like this one.

    What a subclass keeps beside slots and weights, `_state_parts` and `_restoring` take along.
    """

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

    def _slot_shapes(self, variable: Variable) -> dict[str, tuple[int, ...]]:
        """Return the shapes that slots of a variable are known to have."""
        return {}

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
        names = named(self._owners if variables is None else variables)
        keys = self._keys(names)
        places = {id(slot): [keys[memory], name] for memory, name, slot in self._all_slots()}
        others = by_name([weight for weight in self._weights if id(weight) not in places])
        labels = {id(weight): key for key, weight in others.items()}
        return {
            "version": _VERSION,
            "class_name": type(self).__name__,
            "config": self._saved_config(),
            "variables": {name: kind_of(variable) for name, variable in names.items()},
            "weights": {key: host_array(weight) for key, weight in others.items()},
            "slots": {
                name: {
                    slot: host_array(array)
                    for slot, array in self._slots.get(memory_of(variable), {}).items()
                }
                for name, variable in names.items()
            },
            "order": [places.get(id(weight)) or labels[id(weight)] for weight in self._weights],
            "parts": self._state_parts(names),
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

    def load_state_dict(self, state: dict[str, Any], variables: Any = None) -> None:
        """Make the state the one of a dictionary; steps go on from there, bit for bit.

        Parameters
        ----------
        state : dict
            As `state_dict` returned it. Its arrays are copied.
        variables : dict, list or tuple of variables, nested or not, optional
            As in `state_dict`, with the same names: not the same arrays, but of their shapes and
            dtypes. A new optimizer needs them to know whose the slots are.

        Raises
        ------
        InvalidArgumentError
            If it is of another class, of other variables or shapes, or lacks something.
        InvalidTypeError
            If a dtype is another one. In any case nothing has changed.

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
        self._restore(state, variables, np.copy)

    def load(self, path: str | os.PathLike[str], variables: Any = None) -> None:
        """Make the state the one of a file that `save` wrote.

        Parameters
        ----------
        path : path-like
        variables
            As in `load_state_dict`.

        Raises
        ------
        CheckpointError
            If the file is damaged, cut short or none of tfopt's. Nothing has changed.
        InvalidArgumentError
            As in `load_state_dict`.
        OSError
            If it cannot be read.
        """
        from tfopt import checkpoints

        self._restore(checkpoints.load(path), variables, lambda array: array)

    def _restore(
        self,
        state: dict[str, Any],
        variables: Any,
        keep: Callable[[np.ndarray], np.ndarray],
    ) -> None:
        """Check a state, then take it over; `keep` says what becomes of the arrays of new slots."""
        if not isinstance(state, dict) or not all(key in state for key in _KEYS):
            raise InvalidArgumentError(f"a state dictionary has the keys {', '.join(_KEYS)}")
        if state["version"] != _VERSION:
            raise InvalidArgumentError(f"a state of version {state['version']}, not {_VERSION}")
        if state["class_name"] != type(self).__name__:
            raise InvalidArgumentError(
                f"the state is one of {state['class_name']}, not of {type(self).__name__}"
            )
        names = named(self._owners if variables is None else variables)
        self._keys(names)
        check_variables(state["variables"], names)
        others = self._other_weights(state)
        like = self._like(state["config"])
        slots = self._checked_slots(state, names, like, keep)
        parts = self._restoring(dict(state["parts"]), names, slots)
        vars(self).update(_settings(like))
        for key, weight in others.items():
            weight.assign(state["weights"][key])
        self._put(state["order"], others, slots, names)
        for restore in parts:
            restore()

    def _put(
        self,
        order: list[Any],
        others: dict[str, Variable],
        slots: dict[tuple[str, str], np.ndarray],
        names: dict[str, Variable],
    ) -> None:
        before, self._slots, self._owners, self._weights = self._slots, {}, [], []
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

    def _all_slots(self) -> list[tuple[Any, str, Variable]]:
        return [(key, *slot) for key, slots in self._slots.items() for slot in slots.items()]

    def _keys(self, names: dict[str, Variable]) -> dict[Any, str]:
        """Return the names by what identifies the variables, if all with slots have one."""
        keys = {memory_of(variable): name for name, variable in names.items()}
        for owner in self._owners:
            if memory_of(owner) not in keys:
                raise InvalidArgumentError(
                    f"the optimizer has slots of {owner!r}, which is not among the variables"
                )
        return keys

    def _other_weights(self, state: dict[str, Any]) -> dict[str, Variable]:
        slots = {id(slot) for _, _, slot in self._all_slots()}
        others = by_name([weight for weight in self._weights if id(weight) not in slots])
        check_same("weights", others, state["weights"])
        for key, weight in others.items():
            check_array(key, state["weights"][key], weight.shape, weight.dtype)
        return others

    def _checked_slots(
        self,
        state: dict[str, Any],
        names: dict[str, Variable],
        like: Any,
        keep: Callable[[np.ndarray], np.ndarray],
    ) -> dict[tuple[str, str], np.ndarray]:
        check_same("variables with slots", names, state["slots"])
        given = {(name, slot) for name, slots in state["slots"].items() for slot in slots}
        listed = [tuple(place) for place in state["order"] if not isinstance(place, str)]
        others = [place for place in state["order"] if isinstance(place, str)]
        if given != set(listed) or len(given) != len(listed):
            lacking = ", ".join("/".join(place) for place in sorted(given ^ set(listed)))
            raise InvalidArgumentError(f"the state's slots are not those it lists: {lacking}")
        if others[:1] != ["iterations"] or sorted(others) != sorted(state["weights"]):
            raise InvalidArgumentError("the state's weights are not those it lists")
        found = {}
        for name, slot in listed:
            variable, array = names[name], state["slots"][name][slot]
            there = self._slots.get(memory_of(variable), {}).get(slot)
            known = like._slot_shapes(variable)
            shape = known.get(slot, np.shape(array)) if there is None else there.shape
            check_array(f"{name}/{slot}", array, shape, dtype_of(variable))
            new = there is None and variable.device == "cpu"
            found[name, slot] = keep(array) if new else array
        return found

    # ---- hyperparameters

    def _saved_config(self) -> dict[str, Any]:
        """Return the configuration; a function that is no schedule is left out of it."""
        config = _without_function(self).get_config()
        if _is_function(self):
            config["learning_rate"] = None
        return {key: _plain(value) for key, value in config.items()}

    def _like(self, config: dict[str, Any]) -> Any:
        """Return an optimizer with the hyperparameters of a saved configuration."""
        own: Any = self
        if config.get("learning_rate") is None and not _is_function(self):
            raise InvalidArgumentError(
                "the state is one of an optimizer whose learning rate is a function: give this "
                "one the function first"
            )
        keeps = config.get("learning_rate") in (None, _rate(self))
        rate = own.learning_rate if keeps else config["learning_rate"]
        try:
            return type(own).from_config({**config, "learning_rate": rate})
        except TypeError as error:
            if isinstance(error, InvalidArgumentError):
                raise
            raise InvalidArgumentError(f"the state's configuration does not fit: {error}") from None


def _is_function(optimizer: Any) -> bool:
    rate = optimizer.learning_rate
    if not isinstance(rate, LearningRateSchedule):
        return callable(rate)
    return type(rate).get_config is LearningRateSchedule.get_config  # it has no configuration


def _without_function(optimizer: Any) -> Any:
    if not _is_function(optimizer):
        return optimizer
    other = copy.copy(optimizer)
    other.learning_rate = 1.0
    return other


def _rate(optimizer: Any) -> Any:
    return None if _is_function(optimizer) else _plain(rate_config(optimizer.learning_rate))


def _settings(like: Any) -> dict[str, Any]:
    """Return the attributes that the constructors of an optimizer's classes take."""
    names = {name for cls in type(like).__mro__ for name in inspect.signature(cls).parameters}
    return {key: value for key, value in vars(like).items() if key in names and key not in _OWN}


def _plain(value: Any) -> Any:
    """Return what a configuration holds with Python's numbers, lists and dicts alone."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value.item() if isinstance(value, np.generic) else value
