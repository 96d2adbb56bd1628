"""The library's optimizers and schedules by name, and the one that settings ask for."""

from __future__ import annotations

import inspect
import re
from typing import Any

from tfopt import optimizers
from tfopt.cli.constructors import Argument, arguments_of, needs_objects
from tfopt.cli.settings import AUTO, Settings
from tfopt.optimizers import Optimizer, schedules
from tfopt.optimizers.execution.rule_optimizer import RuleOptimizer
from tfopt.optimizers.schedules import LearningRateSchedule, LinearWarmup

__all__ = [
    "OPTIMIZERS",
    "SCHEDULES",
    "SHARED",
    "WARMUP",
    "default_learning_rate",
    "make_learning_rate",
    "make_optimizer",
    "set_learning_rate",
    "takes_learning_rate",
]

#: Found on a9a (logistic) and abalone (squared). Labels of the squared loss may be far from 0, and
#: its gradient has no bound: most optimizers need longer steps there, sgd shorter ones.
_LEARNING_RATES = {
    ("adadelta", "logistic"): 3.0,
    ("adadelta", "squared"): 100.0,
    ("adagrad", "logistic"): 0.2,
    ("adagrad", "squared"): 1.0,
    ("adam", "logistic"): 0.01,
    ("adam", "squared"): 0.3,
    ("adamax", "logistic"): 0.05,
    ("adamax", "squared"): 0.3,
    ("adamw", "logistic"): 0.01,
    ("adamw", "squared"): 0.3,
    ("ftrl", "logistic"): 0.1,
    ("ftrl", "squared"): 0.5,
    ("lion", "logistic"): 0.003,
    ("lion", "squared"): 0.1,
    ("nadam", "logistic"): 0.01,
    ("nadam", "squared"): 0.3,
    ("rmsprop", "logistic"): 0.005,
    ("rmsprop", "squared"): 0.1,
    ("sgd", "logistic"): 1.0,
    ("sgd", "squared"): 0.1,
}
#: Their rules lower the rate of each weight by themselves; adagrad's does too, but ends up nearer
#: to the optimum of a9a if the rate falls as well.
_RATE_KEEPERS = ("ftrl",)
_INITIAL_RATE = "initial_learning_rate"


def _classes(module: Any, base: type) -> dict[str, Any]:
    """Return the public subclasses of a module by their names in small letters."""
    classes = (getattr(module, name) for name in module.__all__)
    return {
        re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", "_", cls.__name__).lower(): cls
        for cls in filter(inspect.isclass, classes)
        if issubclass(cls, base) and cls is not base
    }


_OPTIMIZERS: dict[str, type[RuleOptimizer]] = _classes(optimizers, RuleOptimizer)
#: But for those made of other schedules, which a flag cannot give.
_SCHEDULES: dict[str, type[LearningRateSchedule]] = {
    name: cls
    for name, cls in _classes(schedules, LearningRateSchedule).items()
    if not needs_objects(cls)
}

#: What each takes beside a learning rate.
OPTIMIZERS: dict[str, list[Argument]] = {
    name: [one for one in arguments_of(cls) if cls._can_decay or one.name != "weight_decay"]
    for name, cls in _OPTIMIZERS.items()
}
SCHEDULES: dict[str, list[Argument]] = {
    name: [one for one in arguments_of(cls) if one.name != _INITIAL_RATE]
    for name, cls in _SCHEDULES.items()
}
#: What the optimizers' base classes take for all of them, or nearly all.
SHARED: list[Argument] = arguments_of(RuleOptimizer)
WARMUP: list[Argument] = arguments_of(LinearWarmup)


def default_learning_rate(optimizer: str, loss: str) -> float:
    """Return the learning rate of a run that is given none."""
    own: float = inspect.signature(_OPTIMIZERS[optimizer]).parameters["learning_rate"].default
    return _LEARNING_RATES.get((optimizer, loss), own)


def takes_learning_rate(schedule: str) -> bool:
    """Return whether a schedule starts from a rate, or has rates of its own."""
    cls = _SCHEDULES.get(schedule)
    return cls is None or _INITIAL_RATE in inspect.signature(cls).parameters


def set_learning_rate(optimizer: Optimizer, settings: Settings, epoch: int) -> None:
    """Let the rate fall linearly to 0 over the epochs, unless something else changes it."""
    changed = settings.optimizer in _RATE_KEEPERS or "decay" in settings.hyperparameters
    if settings.schedule == AUTO and settings.learning_rate is not None and not changed:
        optimizer.learning_rate = settings.learning_rate * (1 - epoch / settings.epochs)


def make_learning_rate(settings: Settings) -> Any:
    """Return the number or the schedule that settings ask for.

    Raises
    ------
    tfopt.errors.InvalidArgumentError
        If an argument of the schedule does not fit.
    """
    rate: Any = settings.learning_rate
    if settings.schedule in _SCHEDULES:
        start = {_INITIAL_RATE: rate} if takes_learning_rate(settings.schedule) else {}
        rate = _SCHEDULES[settings.schedule](**start, **settings.schedule_arguments)
    if settings.warmup_arguments:
        rate = LinearWarmup(rate, **settings.warmup_arguments)
    return rate


def make_optimizer(settings: Settings) -> RuleOptimizer:
    """Return the optimizer that settings ask for.

    Raises
    ------
    tfopt.errors.InvalidArgumentError
        If an argument does not fit, or not together with others.
    """
    rate = make_learning_rate(settings)
    return _OPTIMIZERS[settings.optimizer](learning_rate=rate, **settings.hyperparameters)
