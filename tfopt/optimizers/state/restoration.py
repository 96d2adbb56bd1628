"""The changes that loading a state makes: checked first, then applied all or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from tfopt.core.backends import backend_of
from tfopt.core.engine import prepare_writes
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.kernels.arrays.aliasing import certainly_apart, in_place
from tfopt.kernels.update.commit import Assign, Write, carry_out
from tfopt.optimizers.state.slot_storage import check_blocks
from tfopt.optimizers.state.transaction import Writes, transact
from tfopt.variable import Variable

__all__ = [
    "LoadedState",
    "Restoration",
    "as_damage",
    "check_array",
    "check_bounds",
    "check_keys",
    "check_known",
    "check_same",
    "check_variables",
    "fill",
    "fitting",
    "host_array",
    "in_memory",
    "kind_of",
    "new_array",
    "with_iterations",
]


class LoadedState(NamedTuple):
    """A state whose weights and slots have been checked.

    Attributes
    ----------
    like : object
        An optimizer with the settings in the state.
    parts : dict
        What else is in the state: nested dicts of arrays and numbers.
    names : dict of str to Variable
        The variables by their names in the state.
    slots : mapping of (str, str) to Variable
        The slots that the optimizer will have, by the names of the variable and the slot.
    """

    like: Any
    parts: dict[str, Any]
    names: dict[str, Variable]
    slots: Mapping[tuple[str, str], Variable]


class Restoration:
    """Assignments to weights and attributes that are made completely or not at all.

    Parameters
    ----------
    owners : iterable of object
        Those whose attributes functions set.

    Attributes
    ----------
    writes : list of Write
        Carried out after the assignments.
    functions : list of callable
        Called after the writes. If one raises, or is interrupted, everything is put back but what
        is on a GPU; there Ctrl-C waits for the end.
    """

    def __init__(self, owners: Iterable[Any] = ()) -> None:
        self.writes: Writes = []
        self.functions: list[Callable[[], Any]] = []
        self._owners = [*owners]
        self._assigned: list[tuple[Variable, np.ndarray]] = []
        self._launches = False

    def assign(self, variable: Variable, array: Any) -> None:
        """Add the assignment of an array of the same shape and dtype; a file is read now."""
        value: np.ndarray = in_memory(array)
        if variable.device == "cpu":
            self._assigned.append((variable, value))
        else:
            self.functions.append(partial(variable.assign, value))
            self._launches = True

    def add(self, changes: Iterable[Write | Callable[[], Any]]) -> None:
        """Add writes and functions."""
        for change in changes:
            if isinstance(change, Write):
                self.writes.append(change)
            else:
                self.functions.append(change)

    def carry_out(self) -> None:
        """Change everything, or raise and change nothing."""
        variables = [variable for variable, _ in self._assigned]
        targets = [variable.numpy() for variable in variables]
        values = [value for _, value in self._assigned]
        if not certainly_apart(targets, values):  # the new state of one may be the old of another
            values = [value.copy() for value in values]
        pairs = zip(targets, values, strict=True)
        assignments = [Assign(to, value) for to, value in pairs if not in_place(to, value)]
        writes: Writes = [*assignments, *self.writes]
        prepare_writes(variables)
        if self.functions:
            transact([self._work], writes, targets, self._owners, self._launches)
        else:
            carry_out(writes)

    def _work(self, writes: Writes) -> None:
        carry_out(writes)
        writes.clear()
        for function in self.functions:
            function()


# ---- the parts of a state


@runtime_checkable
class Stored(Protocol):
    """An array in a file (`checkpoints.Stored`), which is not in memory until it is read."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def read(self) -> np.ndarray: ...

    def read_into(self, array: np.ndarray) -> None: ...


def in_memory(tree: Any) -> Any:
    """Return nested dicts and lists with all stored arrays read into memory."""
    if isinstance(tree, Stored):
        return tree.read()
    if isinstance(tree, dict):
        return {key: in_memory(branch) for key, branch in tree.items()}
    return [in_memory(branch) for branch in tree] if isinstance(tree, list) else tree


def new_array(array: np.ndarray | Stored) -> np.ndarray:
    """Return a new array with the contents of an array of a state."""
    return array.read() if isinstance(array, Stored) else array.copy()


def fill(array: np.ndarray, value: np.ndarray | Stored) -> None:
    """Write the numbers of an array of a state to another one."""
    if isinstance(value, Stored):
        value.read_into(array)
    else:
        array[...] = value


def host_array(variable: Variable) -> np.ndarray:
    """Return a variable's array; for a variable on a GPU, a copy in host memory."""
    if variable.device == "cpu":
        return variable.numpy()
    array: np.ndarray = backend_of(variable).to_host(variable.value())
    return array


def kind_of(variable: Variable) -> dict[str, Any]:
    """Return the description of a variable in a state: its shape and dtype."""
    return {"shape": list(variable.shape), "dtype": variable.dtype.name}


# ---- checks


@contextmanager
def as_damage() -> Iterator[None]:
    """Convert generic exceptions raised while a state is read into errors about a damaged state.

    Only use it around tfopt's own code: an error in a user's subclass does not mean damage.
    """
    try:
        yield
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise InvalidArgumentError(f"the state is damaged: {error!r}") from error


def check_keys(state: Any, keys: tuple[str, ...]) -> None:
    """Raise unless a state is a dictionary with all the keys."""
    if not isinstance(state, dict) or not all(key in state for key in keys):
        raise InvalidArgumentError(
            f"a state must be a dictionary that has the keys {', '.join(keys)}"
        )


def check_known(saved_names: Any, names: dict[str, Variable]) -> None:
    """Raise if any name is not the name of a variable."""
    foreign = [name for name in saved_names if name not in names]
    if foreign:
        raise InvalidArgumentError(f"the state has variables that are not in variables: {foreign}")


def check_variables(saved: dict[str, Any], names: dict[str, Variable]) -> None:
    """Raise if a state was saved with other variables."""
    check_same("variables", names, saved)
    for name, variable in names.items():
        shape, dtype = list(variable.shape), variable.dtype.name
        if saved[name]["shape"] != shape:
            raise InvalidArgumentError(
                f"variable {name!r} has shape {shape}, in the state {saved[name]['shape']}"
            )
        if saved[name]["dtype"] != dtype:
            raise InvalidTypeError(
                f"variable {name!r} has dtype {dtype}, in the state {saved[name]['dtype']}"
            )


def check_same(what: str, ours: Any, saved: Any) -> None:
    """Raise if a state does not have the expected keys."""
    missing = [key for key in ours if key not in saved]
    foreign = [key for key in saved if key not in ours]
    if missing or foreign:
        raise InvalidArgumentError(
            f"other {what}: the state lacks {missing or 'none'}, and has {foreign or 'none'} "
            "that the optimizer lacks"
        )


def check_bounds(name: str, array: np.ndarray, bounds: tuple[float, float]) -> None:
    """Raise unless all numbers of an array are within bounds."""
    low, high = bounds
    if not np.all((array >= low) & (array <= high)):
        raise InvalidArgumentError(f"{name} must be between {low:g} and {high:g}, not {array}")


def check_array(name: str, array: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise unless `array` is an array of a shape and a dtype."""
    if not isinstance(array, (np.ndarray, Stored)):
        raise InvalidTypeError(f"{name} must be an array, not {type(array).__name__}")
    if array.shape != shape:
        raise InvalidArgumentError(f"{name} must have shape {shape}, not {array.shape}")
    if array.dtype != dtype:
        raise InvalidTypeError(f"{name} must have dtype {dtype}, not {array.dtype}")


# ---- a state as a list of arrays


def fitting(name: str, params: Sequence[Variable], weights: Any) -> list[np.ndarray]:
    """Return weights as arrays of the parameters' dtypes; check their number and shapes."""
    arrays = [np.asarray(weight) for weight in weights]
    if len(arrays) != len(params):
        raise InvalidArgumentError(
            f"You called `set_weights(weights)` on optimizer {name} with a weight list of length "
            f"{len(arrays)}, but the optimizer was expecting {len(params)} weights. "
            f"Provided weights: {str(weights)[:50]}..."
        )
    for param, array in zip(params, arrays, strict=True):
        if param.shape != array.shape:
            raise InvalidArgumentError(
                f"Optimizer weight shape {param.shape} not compatible with provided weight shape "
                f"{array.shape}"
            )
        dtype = param.dtype
        if array.dtype != dtype and "V" in (array.dtype.kind, dtype.kind):
            raise InvalidTypeError(f"{param.name} is stored as {dtype}, not {array.dtype}")
        check_blocks(param.name, array)
    with np.errstate(all="ignore"):
        return [array.astype(p.dtype) for p, array in zip(params, arrays, strict=True)]


def with_iterations(params: Sequence[Variable], weights: Any) -> Any:
    """Return a list of weights; prepend a step count of 0 if it is missing, as in older lists."""
    return [np.array(0), *weights] if len(params) == len(weights) + 1 else weights
