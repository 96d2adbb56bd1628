"""Configurations of optimizers, by themselves and in a saved state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from tfopt.errors import InvalidArgumentError
from tfopt.kernels.update.commit import Attributes, Write
from tfopt.names import unknown_class
from tfopt.optimizers.arguments import constructors_of
from tfopt.optimizers.schedules import LearningRateSchedule
from tfopt.optimizers.state.hyperparameters import is_live, rate_config
from tfopt.optimizers.state.restoration import as_damage
from tfopt.optimizers.state.stateful import Stateful

__all__ = [
    "OPTIMIZERS",
    "change_to_adopt",
    "deserialize",
    "get",
    "is_function",
    "like",
    "made",
    "plain",
    "saved_config",
    "serialize",
    "shallow",
    "without_function",
]

#: This package's optimizers by their names in lower case, as `deserialize` finds them.
OPTIMIZERS: dict[str, type[Any]] = {}
#: Constructor arguments that loading a state leaves unchanged.
_OWN = ("name", "use_locking", "gradient_aggregator", "gradient_transformers")


def serialize(optimizer: Stateful) -> dict[str, Any]:
    """Return an optimizer's class name and configuration, without its state.

    Parameters
    ----------
    optimizer : Optimizer

    Returns
    -------
    dict
        ``{"class_name": ..., "config": ...}``

    Examples
    --------
    >>> from tfopt import optimizers
    >>> saved = optimizers.serialize(optimizers.Adamax(0.5))
    >>> saved["class_name"], saved["config"]["learning_rate"]
    ('Adamax', 0.5)
    >>> optimizers.deserialize(saved).learning_rate
    0.5
    """
    return {"class_name": type(optimizer).__name__, "config": optimizer.get_config()}


def deserialize(
    config: Mapping[str, Any], custom_objects: Mapping[str, type[Stateful]] | None = None
) -> Any:
    """Return an optimizer constructed from the result of `serialize`.

    Parameters
    ----------
    config : dict
        As returned by `serialize`; the case of built-in class names is ignored.
    custom_objects : dict, optional
        User-defined classes, by name.

    Raises
    ------
    InvalidArgumentError
        If there is no such class.
    """
    name = config["class_name"]
    cls = (custom_objects or {}).get(name) or OPTIMIZERS.get(name.lower())
    if cls is None:
        raise unknown_class("optimizer", name, [cls.__name__ for cls in OPTIMIZERS.values()])
    return cls.from_config(config["config"])


def get(identifier: Any) -> Any:
    """Return an optimizer from its name or its dictionary, or the optimizer passed.

    Parameters
    ----------
    identifier : str, dict or Optimizer
        A name, whose case is ignored, gives an optimizer with default arguments.

    Raises
    ------
    InvalidArgumentError
        If the class is unknown, or `identifier` is none of these.
    """
    if isinstance(identifier, Stateful):
        return identifier
    if isinstance(identifier, Mapping):
        return deserialize(identifier)
    if isinstance(identifier, str):
        return deserialize({"class_name": identifier, "config": {}})
    raise InvalidArgumentError(f"Could not interpret optimizer identifier: {identifier}")


# ---- in a saved state


def saved_config(optimizer: Any) -> dict[str, Any]:
    """Return the configuration; a learning rate that is a function or a variable becomes None."""
    config = without_function(optimizer).get_config()
    if is_function(optimizer):
        config["learning_rate"] = None
    return {key: plain(value) for key, value in config.items()}


def like(optimizer: Any, config: dict[str, Any]) -> Any:
    """Return an optimizer with the hyperparameters of a saved configuration.

    Raises
    ------
    InvalidArgumentError
        If it is not a configuration of the optimizer's class.
    """
    with as_damage():
        if config.get("learning_rate") is None and not is_function(optimizer):
            raise InvalidArgumentError(
                "the state was saved by an optimizer whose learning rate is a function or "
                "variable, which a state does not contain: set learning_rate to one before loading"
            )
        keeps = config.get("learning_rate") in (None, _rate(optimizer))
    rate = optimizer.learning_rate if keeps else config["learning_rate"]
    arguments = {**config, "learning_rate": rate}
    if config.get("compat") is not None:  # numbers have been rounded already, or are exact
        arguments = {k: np.float64(v) if type(v) is float else v for k, v in arguments.items()}

    def make() -> Any:
        other = type(optimizer).from_config(arguments)
        other.gradient_transformers = optimizer.gradient_transformers  # which exclude clipping
        return other

    return made(make)


def made(make: Callable[[], Any]) -> Any:
    """Return the optimizer that a function constructs from a configuration.

    Raises
    ------
    InvalidArgumentError
        If an argument is missing, unknown or invalid.
    """
    try:
        return make()
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise InvalidArgumentError(f"the state's configuration is invalid: {error}") from error


def is_function(optimizer: Any) -> bool:
    """Whether a learning rate is a function or variable, which has no configuration."""
    rate = optimizer.learning_rate
    if not isinstance(rate, LearningRateSchedule):
        return is_live(rate)
    return type(rate).get_config is LearningRateSchedule.get_config  # it has no configuration


def without_function(optimizer: Any) -> Any:
    """Return an optimizer, or a copy of it whose learning rate is not a function or variable."""
    if not is_function(optimizer):
        return optimizer
    other = shallow(optimizer)
    other.learning_rate = 1.0
    return other


def shallow(optimizer: Any) -> Any:
    """Return an object with the same attributes, to look at with other settings."""
    other = object.__new__(type(optimizer))
    vars(other).update(vars(optimizer))
    return other


def _rate(optimizer: Any) -> Any:
    return None if is_function(optimizer) else plain(rate_config(optimizer.learning_rate))


def change_to_adopt(optimizer: Any, other: Any) -> Write | Callable[[], Any]:
    """Return what gives an optimizer the constructor arguments of another one."""
    names = {name for own in constructors_of(type(other)) for name in own if name not in _OWN}
    settings = {key: value for key, value in vars(other).items() if key in names}
    if settings.keys() <= vars(optimizer).keys():
        return Attributes(optimizer, settings)
    return partial(vars(optimizer).update, settings)  # of a class that sets some of them sometimes


def plain(value: Any) -> Any:
    """Return a configuration value converted to Python numbers, lists and dicts."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
