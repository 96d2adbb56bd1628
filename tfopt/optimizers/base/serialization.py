"""Optimizers as dictionaries that JSON can hold, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfopt.errors import InvalidArgumentError
from tfopt.optimizers.base.optimizer import OPTIMIZERS, Optimizer

__all__ = ["deserialize", "get", "serialize"]


def serialize(optimizer: Optimizer) -> dict[str, Any]:
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
    config: Mapping[str, Any], custom_objects: Mapping[str, type[Optimizer]] | None = None
) -> Optimizer:
    """Return an optimizer like the one that `serialize` was given.

    Parameters
    ----------
    config : dict
        As `serialize` returns it; the name of a class of this module in any case.
    custom_objects : dict, optional
        Classes of your own, by name.

    Raises
    ------
    InvalidArgumentError
        If there is no such class.
    """
    name = config["class_name"]
    cls = (custom_objects or {}).get(name) or OPTIMIZERS.get(name.lower())
    if cls is None:
        raise InvalidArgumentError(
            f"Unknown optimizer: {name}. Please ensure this object is passed to the "
            "`custom_objects` argument."
        )
    return cls.from_config(config["config"])


def get(identifier: Any) -> Optimizer:
    """Return an optimizer: by its name, of its dictionary, or the one that is given.

    Parameters
    ----------
    identifier : str, dict or Optimizer
        A name, in any case, makes an optimizer with its defaults.

    Raises
    ------
    InvalidArgumentError
        If there is no such class, or it is anything else.
    """
    if isinstance(identifier, Optimizer):
        return identifier
    if isinstance(identifier, Mapping):
        return deserialize(identifier)
    if isinstance(identifier, str):
        return deserialize({"class_name": identifier, "config": {}})
    raise InvalidArgumentError(f"Could not interpret optimizer identifier: {identifier}")
