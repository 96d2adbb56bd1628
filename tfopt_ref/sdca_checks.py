"""What the arguments of SDCA's ops must fulfil before anything is computed."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfopt_ref.autodiff.variable import Variable
from tfopt_ref.checks import as_array
from tfopt_ref.errors import InvalidArgumentError, InvalidTypeError
from tfopt_ref.sdca_losses import LOSSES

__all__ = [
    "check_duals",
    "check_labels",
    "check_loss",
    "check_partitions",
    "check_state",
    "integers",
    "members",
    "numbers",
    "order_of",
    "penalties",
    "seed_of",
]


def listed(shape: Sequence[int]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"


# ---- settings


def check_loss(loss_type: Any) -> None:
    """Refuse what is no loss's name."""
    if not isinstance(loss_type, str) or loss_type not in LOSSES:
        allowed = ", ".join(f'"{name}"' for name in LOSSES)
        raise InvalidArgumentError(
            f"Value for attr 'loss_type' of {loss_type!r} is not in the list of allowed values: "
            f"{allowed}"
        )


def check_partitions(value: Any, name: str) -> None:
    """Refuse what is no integer of 32 bits that is at least 1."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidTypeError(f"Expected int for argument '{name}' not {value!r}.") from None
    if number < 1:
        raise InvalidArgumentError(
            f"Value for attr '{name}' of {number} must be at least minimum 1"
        )
    if number >= 2**31:
        raise InvalidArgumentError(f"Attr {name} has value {number} out of range for an int32")


def penalties(l1: Any, l2: Any, dtype: np.dtype) -> tuple[float, float]:
    """Return l2 and l1 / l2, of a dtype."""
    with np.errstate(over="ignore", under="ignore"):
        rounded_l1, rounded_l2 = (
            dtype.type(real(value, name)) for name, value in (("l1", l1), ("l2", l2))
        )
        if not 0 <= rounded_l1 < math.inf:
            raise InvalidArgumentError(f"l1 must be a number that is at least 0, not {l1}")
        if not 0 < rounded_l2 < math.inf:
            raise InvalidArgumentError(
                f"l2 must be a number greater than 0, not {l2}: the dual problem needs it"
            )
        return float(rounded_l2), float(rounded_l1 / rounded_l2)


def real(value: Any, name: str) -> float:
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise InvalidTypeError(f"Expected float for argument '{name}' not {value!r}.") from None
    except OverflowError:
        return math.inf


def order_of(order: Any, n: int) -> np.ndarray:
    """Return the numbers of the examples to visit."""
    given = np.asarray(order)
    if given.ndim != 1:
        raise InvalidArgumentError(f"order must be a vector, got shape {listed(given.shape)}")
    if given.size and given.dtype.kind not in "iu":
        raise InvalidTypeError(f"order must be integers, not {given.dtype}")
    if any(not 0 <= i < n for i in given):
        raise InvalidArgumentError(f"order must name examples, from 0 to {n - 1}")
    return given.astype(np.int64)


def seed_of(seed: Any) -> int:
    """Return an integer of 64 bits without a sign."""
    try:
        number = operator.index(seed)
    except TypeError:
        raise InvalidTypeError(f"seed must be an integer, not {seed!r}") from None
    if not 0 <= number < 2**64:
        raise InvalidArgumentError(f"seed must be from 0 to 2**64 - 1, not {number}")
    return number


# ---- arrays


def members(value: Any, name: str) -> list[Any]:
    """Return the members of a list."""
    if not isinstance(value, (list, tuple)):
        raise InvalidTypeError(f"{name} must be a list of arrays, not {type(value).__name__}")
    return list(value)


def array_of(value: Any, name: str) -> np.ndarray:
    if isinstance(value, Variable):
        value = value.numpy()
    if isinstance(value, (bool, int, float, list, tuple, np.generic)):
        try:
            return np.asarray(value)
        except ValueError as error:
            raise InvalidArgumentError(f"{name}: {error}") from None
    return as_array(value, name)


def numbers(value: Any, name: str, dtype: np.dtype) -> np.ndarray:
    """Return floats of a dtype, all of them finite."""
    given = array_of(value, name)
    if given.size and given.dtype.kind not in "fiu":
        raise InvalidTypeError(f"{name} must be real numbers, not {given.dtype}")
    with np.errstate(over="ignore", under="ignore"):
        array = given.astype(dtype)
    for k, number in enumerate(array.flat):
        if not np.isfinite(number):
            raise InvalidArgumentError(f"{name} must be finite, and number {k} is {given.flat[k]}")
    return array


def integers(value: Any, name: str) -> list[int]:
    """Return integers of any shape in a list."""
    given = array_of(value, name)
    if given.size and (given.dtype.kind not in "iu" or given.dtype == np.uint64):
        raise InvalidTypeError(f"{name} must be integers of at most 64 bits, not {given.dtype}")
    return [int(number) for number in given.flat]


def check_state(state: Any, n: int) -> np.ndarray:
    """Return an array of four columns."""
    given = array_of(state, "example_state_data")
    if given.ndim != 2:
        raise InvalidArgumentError(f"example_state_data must be rank 2 but is rank {given.ndim}")
    if given.shape != (n, 4):
        raise InvalidArgumentError(
            f"Expected shape [{n},4] for example_state_data, got {listed(given.shape)}"
        )
    return given


# ---- what a loss can have


def check_labels(y: np.ndarray, loss: str) -> None:
    """Refuse labels other than 0 and 1 for classification, negative ones for Poisson."""
    if loss == "squared_loss":
        return
    for label in y:
        if loss == "poisson_loss" and label < 0:
            raise InvalidArgumentError(
                "Only non-negative labels can be used with the Poisson log loss. "
                f"Found example with label: {label:g}"
            )
        if loss != "poisson_loss" and label not in (0, 1):
            raise InvalidArgumentError(
                "Only labels of 0.0 or 1.0 are supported right now. "
                f"Found example with label: {label:g}"
            )


def check_duals(a: np.ndarray, y: np.ndarray, loss: str) -> None:
    """Refuse dual variables at which the conjugate is infinite; y as the loss has them."""
    for i in range(len(a)):
        if LOSSES[loss].conjugate(float(a[i]), float(y[i])) == math.inf:
            raise InvalidArgumentError(
                f"example_state_data[{i},0] is {a[i]:g}, which the dual variable of {loss} cannot "
                f"be for an example with the label {max(y[i], 0):g}"
            )
