"""The parts of a saved state: their representation and checks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tfopt.core.backends import backend_of
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.optimizers.state.variables import dtype_of
from tfopt.variable import Variable

__all__ = [
    "as_damage",
    "check_array",
    "check_bounds",
    "check_keys",
    "check_known",
    "check_same",
    "check_variables",
    "host_array",
    "in_memory",
    "kind_of",
    "new_array",
]


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


def host_array(variable: Variable) -> np.ndarray:
    """Return a variable's array; for a variable on a GPU, a copy in host memory."""
    if variable.device == "cpu":
        return variable.numpy()
    array: np.ndarray = backend_of(variable).to_host(variable.value())
    return array


def kind_of(variable: Variable) -> dict[str, Any]:
    """Return the description of a variable in a state: its shape and dtype."""
    return {"shape": list(variable.shape), "dtype": dtype_of(variable).name}


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
