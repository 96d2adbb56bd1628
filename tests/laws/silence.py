"""Calls whose arguments are changed one at a time, to detect ignored arguments."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import tfopt

__all__ = ["Call", "bits", "outcome", "perturbed"]


class Call(NamedTuple):
    """A function, a factory of its arguments, and other values for arguments where needed.

    Arguments that are `idle` are left out. What `seen` returns of the arguments and the result is
    compared: the result, if it is not given.
    """

    function: Callable[..., Any]
    arguments: Callable[[], dict[str, Any]]
    others: dict[str, Any] = {}
    seen: Callable[[dict[str, Any], Any], Any] = lambda _, result: result
    idle: tuple[str, ...] = ()


def bits(value: Any) -> Any:
    """Return a value that compares equal only if all bits are equal."""
    if isinstance(value, (list, tuple)):
        return [bits(one) for one in value]
    if isinstance(value, dict):
        return {key: bits(one) for key, one in value.items()}
    if isinstance(value, tfopt.IndexedSlices):
        return bits([value.values, value.indices, value.dense_shape])
    if isinstance(value, (tfopt.Tensor, tfopt.Variable)):
        value = value.numpy()
    if isinstance(value, (np.ndarray, np.generic, float)):
        array = np.asarray(value)
        return array.shape, array.dtype.name, array.tobytes()
    return value


def outcome(call: Call, **changed: Any) -> Any:
    """Return the effects of a call on its arguments, or the message of its error."""
    given = {**call.arguments(), **changed}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = call.function(**given)
        except (AssertionError, LookupError, RuntimeError, TypeError, ValueError) as error:
            return "refused", type(error).__name__
    return bits(call.seen(given, result))


def perturbed(value: Any) -> Any:
    """Return a different value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, np.integer)):
        return value + 1
    if isinstance(value, float):
        return 0.75 * value + 0.1
    if isinstance(value, (list, tuple)):
        return type(value)([*map(perturbed, value[:1]), *value[1:]])
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu":
        return value[::-1].copy()
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return value / 2 + np.asarray(0.125, value.dtype)
    raise TypeError(f"say which other value to give in place of {value!r}")
