"""The settings of a training run and their defaults; light, for `--help` reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

LOSSES = ("logistic", "squared")
#: What --schedule may be, beside the library's schedules.
AUTO, CONSTANT = "auto", "constant"


@dataclass(frozen=True)
class Settings:
    """What decides the weights, together with the data: the same settings give the same model.

    Threads are absent because results do not depend on their number.

    Attributes
    ----------
    learning_rate : float or None
        None if the schedule has rates of its own.
    hyperparameters, schedule_arguments, warmup_arguments : dict
        By name of the constructors' arguments, those that were given; the rest have their defaults.
    schedule : str
    """

    optimizer: str = "adamax"
    loss: str = "logistic"
    l2: float = 0.0
    learning_rate: float | None = None
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    schedule: str = AUTO
    schedule_arguments: dict[str, Any] = field(default_factory=dict)
    warmup_arguments: dict[str, Any] = field(default_factory=dict)
    batch_size: int = 256
    epochs: int = 10
    seed: int = 0
