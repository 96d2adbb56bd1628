"""Conversion of schedules to JSON-serializable dictionaries, and back."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from tfopt.errors import InvalidArgumentError
from tfopt.names import unknown_class
from tfopt.optimizers.schedules.schedule import SCHEDULES

__all__ = ["deserialize", "serialize"]


def serialize(learning_rate_schedule: Any) -> Any:
    """Return a schedule's class name and configuration.

    Parameters
    ----------
    learning_rate_schedule : LearningRateSchedule, function or None

    Returns
    -------
    dict, str or None
        ``{"class_name": ..., "config": ...}``; the name of a function; None for None.

    Raises
    ------
    InvalidArgumentError
        If the argument is anything else.

    Examples
    --------
    >>> from tfopt.optimizers.schedules import CosineDecay, deserialize, serialize
    >>> saved = serialize(CosineDecay(0.1, 10))
    >>> saved["class_name"], saved["config"]["decay_steps"]
    ('CosineDecay', 10)
    >>> deserialize(saved)
    CosineDecay(0.1, 10)
    """
    if learning_rate_schedule is None:
        return None
    if hasattr(learning_rate_schedule, "get_config"):
        name = type(learning_rate_schedule).__name__
        return {"class_name": name, "config": learning_rate_schedule.get_config()}
    if hasattr(learning_rate_schedule, "__name__"):
        return learning_rate_schedule.__name__
    raise InvalidArgumentError(f"Cannot serialize {learning_rate_schedule!r}")


def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """Return the schedule described by the result of `serialize`.

    Parameters
    ----------
    config : dict, str or None
        The result of `serialize`. A function is returned unchanged.
    custom_objects : dict, optional
        Classes and functions of your own, by name.

    Returns
    -------
    LearningRateSchedule, function or None

    Raises
    ------
    InvalidArgumentError
        If a name is unknown, or `config` is not what `serialize` returns.
    """
    if config is None or inspect.isfunction(config):
        return config
    if isinstance(config, str):
        known = _known(config, custom_objects)
        return known() if inspect.isclass(known) else known
    if not isinstance(config, dict):
        raise InvalidArgumentError(f"Could not interpret serialized decay: {config!r}")
    if not {"class_name", "config"} <= config.keys():
        raise InvalidArgumentError(f"Improper config format: {config}")
    make = _known(config["class_name"], custom_objects).from_config
    if "custom_objects" in inspect.signature(make).parameters:
        return make(config["config"], custom_objects=custom_objects)
    return make(config["config"])


def _known(name: str, custom_objects: Mapping[str, Any] | None) -> Any:
    if custom_objects is not None and name in custom_objects:
        return custom_objects[name]
    if name in SCHEDULES:
        return SCHEDULES[name]
    raise unknown_class("decay", name, SCHEDULES)
