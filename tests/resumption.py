"""Training runs that are cut in half: what both halves share, and the second one as a process.

``python resumption.py FILE OUT`` takes up each run of a checkpoint, and saves where it ends.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

import tfopt
from tfopt import checkpoints
from tfopt.optimizers import schedules as s

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {},
    "SGD momentum": {"momentum": 0.9, "nesterov": True},
    "Adam": {"global_clipnorm": 1.0},
    "Adam amsgrad": {"amsgrad": True, "clipvalue": 0.5},
    "Adamax": {},
    "Adagrad": {"decay": 0.1},
    "Adadelta": {},
    "RMSprop": {},
    "RMSprop both": {"momentum": 0.9, "centered": True},
    "Nadam": {"compat": "tensorflow"},
    "AdamW": {"weight_decay": 0.05},
    "Lion": {"weight_decay": 0.05},
    "Ftrl": {"l1_regularization_strength": 0.01},
}
SCHEDULES: dict[str, Any] = {
    "number": 0.1,
    "exponential": s.ExponentialDecay(0.1, 3, 0.5, staircase=True),
    "inverse": s.InverseTimeDecay(0.1, 2, 0.5),
    "piecewise": s.PiecewiseConstantDecay([3, 7], [0.1, 0.05, 0.01]),
    "polynomial": s.PolynomialDecay(0.1, 6, 0.01, cycle=True),
    "cosine": s.CosineDecay(0.1, 9, alpha=0.1),
    "restarts": s.CosineDecayRestarts(0.1, 4),
    "linear cosine": s.LinearCosineDecay(0.1, 20),
    "noisy": s.NoisyLinearCosineDecay(0.1, 20, initial_variance=0.01, seed=3),
    "warm-up": s.LinearWarmup(s.CosineDecay(0.1, 20), 7, 0.01),
    "join": s.Join([s.CosineDecay(0.1, 9), s.ExponentialDecay(0.05, 2, 0.5)], [6]),
}
MODES = ("tensorflow", "lazy", "catch_up")
ROWS = 12


def runs() -> Iterator[tuple[str, str, str]]:
    """Give every optimizer with every schedule and sparse mode that it takes."""
    for which in OPTIMIZERS:
        for schedule in SCHEDULES if which != "Nadam" else ("number",):
            for mode in MODES[:2] if which == "Ftrl" else MODES:
                yield which, schedule, mode


def made(which: str, **options: Any) -> Any:
    return getattr(tfopt.optimizers, which.split(" ")[0])(**OPTIMIZERS[which], **options)


def weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    table, bias = random.standard_normal((ROWS, 2)), random.standard_normal(3).astype("f4")
    return {"table": table, "bias": bias}


def take_steps(optimizer: Any, variables: dict[str, np.ndarray], steps: range) -> None:
    """Take steps whose gradients follow from their numbers: of some rows, and dense."""
    for k in steps:
        random = np.random.default_rng(k)
        rows = random.integers(ROWS, size=4)
        slices = tfopt.IndexedSlices(random.standard_normal((4, 2)), rows)
        dense = random.standard_normal(3).astype("f4")
        pairs = [(slices, variables["table"]), (dense, variables["bias"])]
        optimizer.apply_gradients(pairs)


def ending(optimizer: Any, variables: dict[str, np.ndarray]) -> Any:
    """Return all that a run has come to: before rows catch up, and after that."""
    before = {name: array.copy() for name, array in variables.items()}
    return {"before": before, "state": optimizer.get_weights(), "after": variables}


def take_up(halves: dict[str, Any]) -> dict[str, Any]:
    """Return the endings of runs, from where they were cut."""
    found = {}
    for name, half in halves.items():
        which, schedule, mode = name.split("/")
        optimizer = made(which, learning_rate=SCHEDULES[schedule], sparse=mode)
        optimizer.load_state_dict(half["optimizer"], half["weights"])
        take_steps(optimizer, half["weights"], range(5, 10))
        found[name] = ending(optimizer, half["weights"])
    return found


if __name__ == "__main__":
    checkpoints.save(sys.argv[2], take_up(checkpoints.load(sys.argv[1])))
