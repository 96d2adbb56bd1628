"""Optimizers as dictionaries that JSON can hold, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfopt_ref.errors import InvalidArgumentError
from tfopt_ref.optimizers.accumulation import GradientAccumulation
from tfopt_ref.optimizers.adadelta import Adadelta
from tfopt_ref.optimizers.adafactor import Adafactor
from tfopt_ref.optimizers.adagrad import Adagrad
from tfopt_ref.optimizers.adam import Adam
from tfopt_ref.optimizers.adamax import Adamax
from tfopt_ref.optimizers.adamw import AdamW
from tfopt_ref.optimizers.ftrl import Ftrl
from tfopt_ref.optimizers.lion import Lion
from tfopt_ref.optimizers.loss_scale import LossScaleOptimizer
from tfopt_ref.optimizers.nadam import Nadam
from tfopt_ref.optimizers.optimizer import Optimizer
from tfopt_ref.optimizers.parameter_groups import ParameterGroups
from tfopt_ref.optimizers.rmsprop import RMSprop
from tfopt_ref.optimizers.sgd import SGD
from tfopt_ref.optimizers.weight_average import WeightAverage

__all__ = ["deserialize", "get", "serialize"]

_RULES = (Adadelta, Adagrad, Adam, AdamW, Adamax, Ftrl, Lion, Nadam, RMSprop, SGD)
_WRAPPERS = (GradientAccumulation, LossScaleOptimizer, ParameterGroups, WeightAverage)
_CLASSES: dict[str, type[Optimizer]] = {
    cls.__name__.lower(): cls for cls in (*_RULES, Adafactor, *_WRAPPERS)
}


def serialize(optimizer: Optimizer) -> dict[str, Any]:
    """Return an optimizer's class name and configuration, without its state."""
    return {"class_name": type(optimizer).__name__, "config": optimizer.get_config()}


def deserialize(
    config: Mapping[str, Any], custom_objects: Mapping[str, type[Optimizer]] | None = None
) -> Optimizer:
    """Return an optimizer like the one that `serialize` was given."""
    name = config["class_name"]
    cls = (custom_objects or {}).get(name) or _CLASSES.get(name.lower())
    if cls is None:
        raise InvalidArgumentError(
            f"Unknown optimizer: {name}. Please ensure this object is passed to the "
            "`custom_objects` argument."
        )
    return cls.from_config(config["config"])


def get(identifier: Any) -> Optimizer:
    """Return an optimizer: by its name, of its dictionary, or the one that is given."""
    if isinstance(identifier, Optimizer):
        return identifier
    if isinstance(identifier, Mapping):
        return deserialize(identifier)
    if isinstance(identifier, str):
        return deserialize({"class_name": identifier, "config": {}})
    raise InvalidArgumentError(f"Could not interpret optimizer identifier: {identifier}")
