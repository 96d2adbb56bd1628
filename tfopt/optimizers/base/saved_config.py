"""An optimizer's configuration as a state has it: with all that steps to come depend on."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt.errors import InvalidArgumentError
from tfopt.optimizers.base.hyperparameters import is_live, rate_config
from tfopt.optimizers.base.state_parts import as_damage
from tfopt.optimizers.schedules import LearningRateSchedule

__all__ = [
    "is_function",
    "like",
    "made",
    "plain",
    "saved_config",
    "settings_of",
    "without_function",
]

#: Attributes that the constructor sets and a configuration does not hold, or not for another.
_OWN = ("name", "use_locking", "gradient_aggregator", "gradient_transformers")


def saved_config(optimizer: Any) -> dict[str, Any]:
    """Return the configuration; a rate that is a function or a variable is left out of it."""
    config = without_function(optimizer).get_config()
    if is_function(optimizer):
        config["learning_rate"] = None
    return {key: plain(value) for key, value in config.items()}


def like(optimizer: Any, config: dict[str, Any]) -> Any:
    """Return an optimizer with the hyperparameters of a saved configuration.

    Raises
    ------
    InvalidArgumentError
        If it is no configuration of the optimizer's class.
    """
    with as_damage():
        if config.get("learning_rate") is None and not is_function(optimizer):
            raise InvalidArgumentError(
                "the state is one of an optimizer whose learning rate is a function or variable: "
                "give this one its own first"
            )
        keeps = config.get("learning_rate") in (None, _rate(optimizer))
    rate = optimizer.learning_rate if keeps else config["learning_rate"]
    given = {**config, "learning_rate": rate}
    return made(lambda: type(optimizer).from_config(given))


def made(make: Callable[[], Any]) -> Any:
    """Return what a function makes of a configuration, if it can.

    Raises
    ------
    InvalidArgumentError
        If an argument is missing, or there is none of that name, or its value does not fit.
    """
    try:
        return make()
    except (LookupError, OverflowError, TypeError, ValueError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise InvalidArgumentError(f"the state's configuration does not fit: {error}") from error


def is_function(optimizer: Any) -> bool:
    """Whether a learning rate is a function or variable, which no configuration holds."""
    rate = optimizer.learning_rate
    if not isinstance(rate, LearningRateSchedule):
        return is_live(rate)
    return type(rate).get_config is LearningRateSchedule.get_config  # it has no configuration


def without_function(optimizer: Any) -> Any:
    """Return an optimizer whose configuration has no function."""
    if not is_function(optimizer):
        return optimizer
    other = copy.copy(optimizer)
    other.learning_rate = 1.0
    return other


def _rate(optimizer: Any) -> Any:
    return None if is_function(optimizer) else plain(rate_config(optimizer.learning_rate))


def settings_of(optimizer: Any) -> dict[str, Any]:
    """Return the attributes that the constructors of an optimizer's classes take."""
    names = {name for cls in type(optimizer).__mro__ for name in inspect.signature(cls).parameters}
    return {
        key: value for key, value in vars(optimizer).items() if key in names and key not in _OWN
    }


def plain(value: Any) -> Any:
    """Return what a configuration holds with Python's numbers, lists and dicts alone."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value.item() if isinstance(value, np.generic) else value
