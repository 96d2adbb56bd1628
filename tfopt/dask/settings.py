"""What makes the parts of a table alike."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tfopt.dask.initial import Initializer
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.optimizers.execution.rule_optimizer import RuleOptimizer
from tfopt.variable import Variable

__all__ = ["Settings", "checked_size", "dtype_of", "settings_of"]


class Settings(NamedTuple):
    """What all parts of a table have in common."""

    name: str
    width: int
    dtype: np.dtype[Any]
    initializer: Initializer
    optimizer: type[Any]
    config: dict[str, Any]
    decays: bool


def checked_size(what: str, number: Any, most: int | None = None) -> int:
    """Return a number of rows, columns or parts.

    Raises
    ------
    InvalidTypeError
        If it is no integer.
    InvalidArgumentError
        If it is below 1, or above the most that there may be.
    """
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
        raise InvalidTypeError(f"{what} must be an integer, not {number!r}")
    if number < 1 or (most is not None and number > most):
        limit = "" if most is None else f" and at most {most}"
        raise InvalidArgumentError(f"{what} must be at least 1{limit}, not {number}")
    return int(number)


def dtype_of(name: str) -> Any:
    """Return a dtype by its name."""
    if name != "bfloat16":
        return name
    import ml_dtypes

    return ml_dtypes.bfloat16


def settings_of(
    optimizer: Any, name: str, width: int, dtype: np.dtype[Any], initializer: Initializer
) -> Settings:
    """Return what makes parts with optimizers like one; refuse one that parts cannot have."""
    if not isinstance(optimizer, RuleOptimizer):
        raise InvalidTypeError(
            "the optimizer must be one of tfopt.optimizers whose step is a rule of the "
            f"table, not {type(optimizer).__name__}"
        )
    if optimizer.clipnorm is not None or optimizer.global_clipnorm is not None:
        raise InvalidArgumentError(
            "clipping by norm needs all rows, and each part of a table has some only"
        )
    if optimizer.gradient_aggregator is not None or optimizer.gradient_transformers:
        raise InvalidArgumentError(
            "a gradient_aggregator or gradient_transformers cannot be sent to workers"
        )
    if int(optimizer.iterations):
        raise InvalidArgumentError("the optimizer has taken steps already")
    config = optimizer._saved_config()
    if config["learning_rate"] is None:
        raise InvalidArgumentError("a learning rate that is a function must be a schedule")
    decays = Variable(np.empty((0, width), dtype), name) not in optimizer._exclusion
    return Settings(name, width, dtype, initializer, type(optimizer), config, decays)
