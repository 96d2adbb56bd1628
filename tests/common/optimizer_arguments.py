"""Every argument of every optimizer, as its classes declare them, and another value of each."""

from __future__ import annotations

import inspect
from typing import Any

from tfopt import optimizers
from tfopt.optimizers.state.config import OPTIMIZERS

__all__ = ["RULES", "USUAL", "arguments_of", "other_value"]

#: What makes steps itself.
RULES = tuple(
    name
    for name in optimizers.__all__
    if name.lower() in OPTIMIZERS and not issubclass(getattr(optimizers, name), optimizers.Wrapper)
)

#: Required arguments of schedules, with which the others have something to do.
USUAL: dict[str, Any] = {
    "initial_learning_rate": 0.5,
    "decay_steps": 4,
    "first_decay_steps": 3,
    "decay_rate": 0.5,
    "schedule": 0.125,
    "warmup_steps": 3,
    "schedules": [0.5, 0.25, 0.125],
    "values": [0.5, 0.25, 0.125],
    "boundaries": [2.0, 5.0],
}

_TEXTS = {
    "merge": "before",
    "sparse": "lazy",
    "storage": "float16",
    "compat": "tensorflow",
    "reduction": "sum",
}


def arguments_of(cls: type) -> dict[str, inspect.Parameter]:
    """Return the arguments of a class and, if it passes keywords on, of its bases."""
    found: dict[str, inspect.Parameter] = {}
    for base in cls.__mro__:
        own = inspect.signature(base.__init__).parameters if "__init__" in vars(base) else {}
        parameters = list(own.values())[1:]
        for parameter in parameters:
            if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                found.setdefault(parameter.name, parameter)
        if own and all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters):
            break
    return found


def other_value(name: str, value: Any) -> Any:
    """Return another value for an argument."""
    if name in _TEXTS:
        return _TEXTS[name]
    if name == "stochastic_rounding":
        return 7
    if name in ("clipnorm", "clipvalue", "global_clipnorm"):
        return 0.5
    if name == "gradient_aggregator":
        return lambda pairs: [(grad * 3, var) for grad, var in pairs]
    if name == "gradient_transformers":
        return [lambda pairs: [(grad * 3, var) for grad, var in pairs]]
    if name == "learning_rate_power":
        return -0.25
    if name == "beta_2_decay":
        return -0.5
    if name == "epsilon_2":
        return 4.0
    if name == "warmup_steps" and value == 0:
        return 4.0
    if isinstance(value, bool):
        return not value
    if name == "epsilon":
        return 0.5
    return 0.25 if value in (None, 0, 0.0) else value / 2
