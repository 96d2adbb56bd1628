"""The parts of a saved state: what describes them, and whether they fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tfopt.core.backends import backend_of
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.optimizers.base.weights import dtype_of
from tfopt.variable import Variable, prepare_writes

__all__ = [
    "as_damage",
    "check_array",
    "check_keys",
    "check_known",
    "check_same",
    "check_variables",
    "host_array",
    "in_memory",
    "kind_of",
    "new_array",
    "put",
]


@runtime_checkable
class Stored(Protocol):
    """An array of a file, `checkpoints.Stored`, which is in memory once it is read."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def read(self) -> np.ndarray: ...

    def read_into(self, array: np.ndarray) -> None: ...


def in_memory(tree: Any) -> Any:
    """Return nested dicts and lists with all arrays read."""
    if isinstance(tree, Stored):
        return tree.read()
    if isinstance(tree, dict):
        return {key: in_memory(branch) for key, branch in tree.items()}
    return [in_memory(branch) for branch in tree] if isinstance(tree, list) else tree


def new_array(array: np.ndarray | Stored) -> np.ndarray:
    """Return an array of a state as a new one."""
    return array.read() if isinstance(array, Stored) else array.copy()


def put(array: np.ndarray | Stored, slot: Variable) -> None:
    """Make an array of a state the value of a slot."""
    if isinstance(array, Stored) and slot.device == "cpu":
        prepare_writes([slot])
        array.read_into(slot.numpy())
    else:
        slot.assign(in_memory(array))


def host_array(variable: Variable) -> np.ndarray:
    """Return a variable's array; of one on a GPU, a copy in the host's memory."""
    if variable.device == "cpu":
        return variable.numpy()
    return backend_of(variable).to_host(variable.value())


def kind_of(variable: Variable) -> dict[str, Any]:
    """Return what a state says of a variable."""
    return {"shape": list(variable.shape), "dtype": dtype_of(variable).name}


@contextmanager
def as_damage() -> Iterator[None]:
    """Report what goes wrong while a state is read, and has no message of its own, as damage.

    Around what is written here alone: an error in a subclass of a user's is no damage.
    """
    try:
        yield
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise InvalidArgumentError(f"the state is damaged: {error!r}") from error


def check_keys(state: Any, keys: tuple[str, ...]) -> None:
    """Refuse what is no dictionary, or lacks a key."""
    if not isinstance(state, dict) or not all(key in state for key in keys):
        raise InvalidArgumentError(f"the dictionary of a state has the keys {', '.join(keys)}")


def check_known(given: Any, names: dict[str, Variable]) -> None:
    """Refuse names of variables that there are not."""
    foreign = [name for name in given if name not in names]
    if foreign:
        raise InvalidArgumentError(f"the state has variables that are not in variables: {foreign}")


def check_variables(saved: dict[str, Any], names: dict[str, Variable]) -> None:
    """Refuse a state of other variables."""
    check_same("variables", names, saved)
    for name, variable in names.items():
        shape, dtype = list(variable.shape), dtype_of(variable).name
        if saved[name]["shape"] != shape:
            raise InvalidArgumentError(
                f"variable {name!r} has shape {shape}, in the state {saved[name]['shape']}"
            )
        if saved[name]["dtype"] != dtype:
            raise InvalidTypeError(
                f"variable {name!r} has dtype {dtype}, in the state {saved[name]['dtype']}"
            )


def check_same(what: str, ours: Any, saved: Any) -> None:
    """Refuse a state that has other keys."""
    missing = [key for key in ours if key not in saved]
    foreign = [key for key in saved if key not in ours]
    if missing or foreign:
        raise InvalidArgumentError(
            f"other {what}: the state lacks {missing or 'none'}, and has {foreign or 'none'} "
            "that the optimizer lacks"
        )


def check_array(name: str, array: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse what is no array of a shape and a dtype."""
    if not isinstance(array, (np.ndarray, Stored)):
        raise InvalidTypeError(f"{name} must be an array, not {type(array).__name__}")
    if array.shape != shape:
        raise InvalidArgumentError(f"{name} must have shape {shape}, not {array.shape}")
    if array.dtype != dtype:
        raise InvalidTypeError(f"{name} must have dtype {dtype}, not {array.dtype}")
