"""The parts of a saved state: what describes them, and whether they fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tfopt_ref.errors import InvalidArgumentError, InvalidTypeError
from tfopt_ref.variable import Variable

__all__ = [
    "as_damage",
    "check_array",
    "check_keys",
    "check_known",
    "check_same",
    "check_variables",
    "kind_of",
]


def kind_of(variable: Variable) -> dict[str, Any]:
    """Return what a state says of a variable."""
    return {"shape": list(variable.shape), "dtype": variable.dtype.name}


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
    if not isinstance(array, np.ndarray):
        raise InvalidTypeError(f"{name} must be an array, not {type(array).__name__}")
    if array.shape != shape:
        raise InvalidArgumentError(f"{name} must have shape {shape}, not {array.shape}")
    if array.dtype != dtype:
        raise InvalidTypeError(f"{name} must have dtype {dtype}, not {array.dtype}")
