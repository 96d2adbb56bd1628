"""Conversion of optimizers to and from dictionaries that JSON can represent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfopt.errors import InvalidArgumentError
from tfopt.names import hint
from tfopt.optimizers.base.optimizer_base import OPTIMIZERS, OptimizerBase

__all__ = ["deserialize", "get", "serialize"]


def serialize(optimizer: OptimizerBase) -> dict[str, Any]:
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
    config: Mapping[str, Any], custom_objects: Mapping[str, type[OptimizerBase]] | None = None
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
        meant = hint(name, [cls.__name__ for cls in OPTIMIZERS.values()])
        says = meant and f"D{meant[1:]} "
        raise InvalidArgumentError(
            f"Unknown optimizer: {name}. {says}Please ensure this object is passed to the "
            "`custom_objects` argument."
        )
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
    if isinstance(identifier, OptimizerBase):
        return identifier
    if isinstance(identifier, Mapping):
        return deserialize(identifier)
    if isinstance(identifier, str):
        return deserialize({"class_name": identifier, "config": {}})
    raise InvalidArgumentError(f"Could not interpret optimizer identifier: {identifier}")
