"""The settings of a training run and their defaults; light, for `--help` reads them."""

from __future__ import annotations

from dataclasses import dataclass

#: Found on a9a (logistic) and abalone (squared). Labels of the squared loss may be far from 0, and
#: its gradient has no bound: adamax and ftrl need longer steps there, sgd shorter ones.
LEARNING_RATES = {
    ("adamax", "logistic"): 0.05,
    ("adamax", "squared"): 0.3,
    ("ftrl", "logistic"): 0.1,
    ("ftrl", "squared"): 0.5,
    ("sgd", "logistic"): 1.0,
    ("sgd", "squared"): 0.1,
}
OPTIMIZERS = ("adamax", "ftrl", "sgd")
LOSSES = ("logistic", "squared")


@dataclass(frozen=True)
class Settings:
    """What decides the weights, together with the data: the same settings give the same model.

    Threads are absent because results do not depend on their number.
    """

    optimizer: str = "adamax"
    loss: str = "logistic"
    l1: float = 0.0
    l2: float = 0.0
    learning_rate: float = LEARNING_RATES["adamax", "logistic"]
    batch_size: int = 256
    epochs: int = 10
    seed: int = 0
