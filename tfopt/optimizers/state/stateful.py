"""The state of optimizers: slots and other weights, and how it is saved."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from tfopt.core.effects import writes
from tfopt.errors import InvalidArgumentError
from tfopt.imports import imported
from tfopt.kernels.update.commit import Write
from tfopt.optimizers.arguments import call_of
from tfopt.optimizers.settings import Setting, text
from tfopt.optimizers.state.has_slots import HasSlots
from tfopt.optimizers.state.restoration import LoadedState, Restoration, fitting
from tfopt.optimizers.state.state_dict import check_weights, load_state, other_weights, state_of
from tfopt.optimizers.state.tree import Places
from tfopt.variable import Variable

__all__ = ["COUNTED", "Stateful"]

COUNTED = (0, 2**63 - 2)  # the bounds of an int64 that can be incremented


class Stateful(HasSlots, ABC):
    """Base class of objects with slots and other weights (`SlotStore`) and a configuration.

    Parameters
    ----------
    name : str
        Prefix of the slots' names.

    Attributes
    ----------
    name : str
    """

    _counts_steps = True  # whether the first weight is the number of steps
    #: The bounds of weights that are not slots, by their names in a state.
    _weight_bounds: ClassVar[dict[str, tuple[float, float]]] = {"iterations": COUNTED}

    name = Setting(text)

    def __init__(self, name: str) -> None:
        self._version = object()  # another one after each change that a bound step depends on
        self.name = name
        super().__init__()
        self._places = Places()

    # ---- weights

    @property
    def weights(self) -> list[Variable]:
        """The state: inner optimizers', the step count, then slots in the order of creation."""
        inside = [weight for inner in self._inner().values() for weight in inner.weights]
        return inside + self._store.weights

    @property
    def _weights(self) -> list[Variable]:
        """The list itself, to which subclasses written for OptimizerV2 append weights."""
        return self._store.weights

    def variables(self) -> list[Variable]:
        """Return `weights`; TensorFlow has a method of this name."""
        return self.weights

    def get_weights(self) -> list[np.ndarray]:
        """Return copies of the state's arrays, in the order of `weights`."""
        inside = [array for inner in self._inner().values() for array in inner.get_weights()]
        return inside + self._store.arrays()

    @writes()
    def set_weights(self, weights: Any) -> None:
        """Set the state to arrays in the format of `get_weights`.

        Parameters
        ----------
        weights : list of array_like
            Their number and shapes must be those of `weights`, which the first step creates; they
            are converted to the dtypes of these.

        Raises
        ------
        InvalidArgumentError
            If the number or a shape differs; nothing has changed.

        Notes
        -----
        Deferred updates (``sparse="catch_up"``) are discarded; call `flush` first to apply them.
        """
        restoration = Restoration()
        self._set_weights(restoration, weights)
        restoration.carry_out()

    def _set_weights(self, restoration: Restoration, weights: Any) -> None:
        """Check arrays in the format of `get_weights`, and add what sets the state to them."""
        own = self._store.weights
        arrays = fitting(self.name, own, weights)
        by_id = {id(weight): array for weight, array in zip(own, arrays, strict=True)}
        check_weights(self, {key: by_id[id(w)] for key, w in other_weights(self).items()})
        for weight, array in zip(own, arrays, strict=True):
            restoration.assign(weight, array)

    # ---- the complete state

    def state_dict(self, variables: Any = None) -> dict[str, Any]:
        """Return the complete state: step count, slots, hyperparameters and deferred updates.

        Parameters
        ----------
        variables : (nested) dict, list or tuple of variables, optional
            All variables that the optimizer has updated, named by their keys and indices. By
            default they are numbered in the order in which the optimizer first saw them.

        Returns
        -------
        dict
            Nested dicts and lists of arrays, numbers and strings. The arrays are the state itself,
            not copies (except those on a GPU): use ``copy.deepcopy`` for a snapshot.

        Raises
        ------
        InvalidArgumentError
            If the optimizer has slots of a variable that is not in `variables`.

        Notes
        -----
        The state does not contain the values of the variables. With ``sparse="catch_up"`` it
        contains the deferred updates, so the variables need not be up to date when they are saved.
        It does not contain a learning rate that is a function or a variable.

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
        return state_of(self, variables)

    def save(self, path: str | os.PathLike[str], variables: Any = None) -> None:
        """Write the state to a file with :func:`tfopt.checkpoints.save`.

        Parameters
        ----------
        path : path-like
            Ends in ``.safetensors`` or ``.npz``. An existing file is replaced only once the new
            one is completely on disk.
        variables
            As in `state_dict`.

        Raises
        ------
        InvalidArgumentError
            If the name has another ending, or as in `state_dict`.
        OSError
            If the file cannot be written; an existing file is left unchanged.
        """
        imported("tfopt.checkpoints").save(path, self.state_dict(variables))

    @writes()
    def load_state_dict(self, state: dict[str, Any], variables: Any = None) -> None:
        """Restore the state from a dictionary; later steps are the same bit for bit.

        Parameters
        ----------
        state : dict
            As returned by `state_dict`; its arrays are copied. Or as returned by
            `checkpoints.opened`.
        variables : (nested) dict, list or tuple of variables, optional
            As in `state_dict`, with the same names, shapes and dtypes; the arrays may be others. A
            new optimizer needs them to assign the slots. In the first `step` of this structure,
            too, arrays may be others again, for example if the weights are read afterwards.

        Raises
        ------
        InvalidArgumentError
            If the state belongs to another class or to other variables or shapes, or is incomplete.
        InvalidTypeError
            If a dtype differs. In both cases nothing has changed.
        CheckpointError, OSError
            If a file cannot be read again after it has been opened and checked, or if its contents
            have changed since. Then, too, nothing has changed.

        Notes
        -----
        The state is first checked and read, and then restored as a whole, or not at all if Ctrl-C
        comes before. An array of a file is read directly into a new slot; one of an existing slot
        is read into memory until then.

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
        load_state(self, state, variables)

    def load(self, path: str | os.PathLike[str], variables: Any = None) -> None:
        """Restore the state from a file written by `save`.

        The complete file is checked first; then the arrays are read.

        Parameters
        ----------
        path : path-like
        variables
            As in `load_state_dict`.

        Raises
        ------
        CheckpointError
            If the file is damaged, truncated or not written by tfopt; nothing has changed.
        OSError
            If the file cannot be read.
        InvalidArgumentError
            As in `load_state_dict`, including the errors described there for files.
        """
        with imported("tfopt.checkpoints").opened(path) as state:
            self.load_state_dict(state, variables)

    # ---- methods that a subclass with more state overrides

    def _state_parts(self, names: dict[str, Variable]) -> dict[str, Any]:
        """Return other state of variables, by their names: nested dicts of arrays and numbers."""
        return {}

    def _restoring(
        self, parts: dict[str, Any], names: dict[str, Variable], slots: Container[tuple[str, str]]
    ) -> list[Callable[[], None]]:
        """Check parts without changing anything, and return functions that restore them.

        A subclass removes its own entries from `parts` and passes on the rest. `slots` contains the
        (variable, slot) names of all slots in the state. The functions are called after everything
        else has been restored; if one raises or is interrupted, all of that and all attributes are
        put back.
        """
        if parts:
            raise InvalidArgumentError(f"{self.name} has no part named {', '.join(parts)}")
        return []

    def _inner(self) -> Mapping[str, Any]:
        """Return the inner optimizers, by the names of their parts in a state."""
        return {}

    def _tree(self) -> Iterator[Any]:
        """Yield all inner optimizers, the innermost first, and this one."""
        for inner in self._inner().values():
            yield from inner._tree()
        yield self

    def _known(self) -> list[Variable]:
        """Return the variables of which this optimizer itself has state."""
        return list(self._store.owners)

    @abstractmethod
    def _saved_config(self) -> dict[str, Any]:
        """Return the constructor arguments that later steps depend on."""

    @abstractmethod
    def _like(self, config: dict[str, Any]) -> Any:
        """Return an optimizer constructed from the result of `_saved_config`."""

    @abstractmethod
    def _changes_to_adopt(self, loaded: LoadedState) -> list[Write | Callable[[], Any]]:
        """Return what copies the settings of an optimizer made by `_like`, and restores parts.

        A subclass removes its own entries from the parts, and changes nothing else. The writes are
        made together with those of the slots.
        """

    def _holders(self) -> list[Any]:
        """Return the objects whose attributes are set when its state is loaded or moved."""
        return [self, self._store, self._places]

    def _all_holders(self) -> list[Any]:
        """Return these objects of inner optimizers, too."""
        return [holder for each in self._tree() for holder in each._holders()]

    # ---- configuration

    @abstractmethod
    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments of this optimizer, without its state."""

    @classmethod
    @abstractmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Return an optimizer constructed from the result of `get_config`."""

    def __repr__(self) -> str:
        return call_of(self, self._given())

    def _given(self) -> dict[str, Any]:
        """Return the values of constructor arguments that are no attributes, to be shown."""
        return {}
