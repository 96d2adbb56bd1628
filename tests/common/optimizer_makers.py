"""Optimizers and their options by name, for tests that take steps of each on any device."""

from __future__ import annotations

from typing import Any

import numpy as np

import tfopt

MAKERS: dict[str, dict[str, Any]] = {
    "Adamax": {},
    "Adamax-decay": {"learning_rate": 0.1, "decay": 0.5},
    "Adam": {"learning_rate": 0.1},
    "Adam-amsgrad": {"learning_rate": 0.1, "amsgrad": True},
    "Adagrad": {"learning_rate": 0.1, "decay": 0.5},
    "Adadelta": {"learning_rate": 0.5},
    "RMSprop": {"learning_rate": 0.1},
    "RMSprop-momentum": {"learning_rate": 0.1, "momentum": 0.5},
    "RMSprop-centered": {"learning_rate": 0.1, "rho": 0.5, "centered": True},
    "RMSprop-both": {"learning_rate": 0.1, "rho": 0.5, "momentum": 0.5, "centered": True},
    "Nadam": {"learning_rate": 0.1, "schedule_decay": 0.5},
    "ScheduleFreeAdamW": {"learning_rate": 0.1, "weight_decay": 0.25},
    "ScheduleFreeSGD": {"learning_rate": 0.1},
    "Signum": {"learning_rate": 0.1},
    "Yogi": {"learning_rate": 0.1},
    "RAdam": {"learning_rate": 0.1},
    "RowwiseAdagrad": {"learning_rate": 0.1, "l2": 0.25},
    "RowwiseAdam": {"learning_rate": 0.1},
    "LAMB": {"learning_rate": 0.1, "weight_decay": 0.25},
    "LARS": {"learning_rate": 0.1, "weight_decay": 0.25},
    "AdamMini": {"learning_rate": 0.1},
    "RAdam-rectified": {"learning_rate": 0.1, "beta_2": 0.5},
    "ADOPT": {"learning_rate": 0.1},
    "AdEMAMix": {"learning_rate": 0.1, "warmup_steps": 2},
    "SGD": {},
    "SGD-momentum": {"learning_rate": 0.1, "momentum": 0.9},
    "SGD-nesterov": {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True},
    "Ftrl": {"learning_rate": 0.1},
    "Ftrl-l1-l2-beta": {
        "learning_rate": 0.1,
        "l1_regularization_strength": 0.05,
        "l2_regularization_strength": 0.1,
        "beta": 0.5,
    },
    "Ftrl-shrinkage": {"learning_rate": 0.1, "l2_shrinkage_regularization_strength": 0.05},
}
#: Those whose steps of an element depend on others.
BY_SUMS = ("RowwiseAdagrad", "RowwiseAdam", "AdamMini", "LAMB", "LARS")


def make(which: str) -> Any:
    return getattr(tfopt.optimizers, which.split("-")[0])(**MAKERS[which])


def state(optimizer: Any, variables: list[np.ndarray]) -> dict[str, np.ndarray]:
    found = {f"var {i}": v for i, v in enumerate(variables)}
    for i, v in enumerate(variables):
        for slot in optimizer.get_slot_names():
            found[f"{slot} {i}"] = optimizer.get_slot(v, slot).numpy()
    return found
