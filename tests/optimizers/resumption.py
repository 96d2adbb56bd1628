"""Training runs cut in half: the common part, and the second half as a process.

``python resumption.py FOLDER`` takes up each run of two checkpoints there, and saves where it ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from common.wrapper_cases import USERS
from common.wrapper_cases import WRAPPERS as CASES

import tfopt
from tfopt import checkpoints

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
    "Adafactor": {},
    "Yogi": {},
    "RAdam": {},
    "RowwiseAdagrad": {"weight_decay": 0.05},
    "RowwiseAdam": {},
    "LAMB": {"weight_decay": 0.05},
    "LARS": {"weight_decay": 0.05},
    "AdamMini": {"weight_decay": 0.05},
    "ADOPT": {},
    "AdEMAMix": {"warmup_steps": 4},
    "ScheduleFreeAdamW": {"weight_decay": 0.1},
    "ScheduleFreeSGD": {},
    "Signum": {},
}
SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "number": lambda s: 0.1,
    "exponential": lambda s: s.ExponentialDecay(0.1, 3, 0.5, staircase=True),
    "inverse": lambda s: s.InverseTimeDecay(0.1, 2, 0.5),
    "piecewise": lambda s: s.PiecewiseConstantDecay([3, 7], [0.1, 0.05, 0.01]),
    "polynomial": lambda s: s.PolynomialDecay(0.1, 6, 0.01, cycle=True),
    "cosine": lambda s: s.CosineDecay(0.1, 9, alpha=0.1),
    "restarts": lambda s: s.CosineDecayRestarts(0.1, 4),
    "linear cosine": lambda s: s.LinearCosineDecay(0.1, 20),
    "noisy": lambda s: s.NoisyLinearCosineDecay(0.1, 20, initial_variance=0.01, seed=3),
    "warm-up": lambda s: s.LinearWarmup(s.CosineDecay(0.1, 20), 7, 0.01),
    "join": lambda s: s.Join([s.CosineDecay(0.1, 9), s.ExponentialDecay(0.05, 2, 0.5)], [6]),
}
#: What is around the optimizer of a run: made of the optimizers' module, it, and the variables.
WRAPPERS: dict[str, Callable[[Any, Any, dict[str, np.ndarray]], Any]] = {
    "alone": lambda o, inner, v: inner,
    **{
        name: lambda o, inner, v, case=case: case.busy(inner)
        for name, case in {**CASES, **USERS}.items()
    },
    "groups": lambda o, inner, v: groups(o, inner, v),
    "groups of sums": lambda o, inner, v: o.ParameterGroups(
        o.GradientAccumulation(inner, 2), [("bias", o.GradientAccumulation(o.Adamax(0.1), 3))]
    ),
    "sum of an average": lambda o, inner, v: o.GradientAccumulation(o.WeightAverage(inner), 3),
    "average of a sum": lambda o, inner, v: o.WeightAverage(o.GradientAccumulation(inner, 2), 0.9),
    "three": lambda o, inner, v: o.LossScaleOptimizer(
        o.GradientAccumulation(groups(o, inner, v), 3, "sum"), 8.0, 3
    ),
}
MODES = ("tensorflow", "lazy", "catch_up")
ROWS = 12


def groups(optimizers: Any, inner: Any, variables: dict[str, np.ndarray]) -> Any:
    return optimizers.ParameterGroups(
        inner, [("^bi", {"learning_rate": 0.02}), ([variables["half"]], optimizers.Adagrad(0.5))]
    )


def runs() -> Iterator[tuple[str, str, str, str]]:
    """Yield every optimizer with every sparse mode, schedule and wrapper it supports."""
    for which in OPTIMIZERS:
        for mode in modes_of(which):
            schedules = SCHEDULES if which != "Nadam" else ("number",)
            yield from (("alone", which, schedule, mode) for schedule in schedules)
    for wrapper in WRAPPERS:
        for which in ("SGD", "Adam", "RMSprop both", "AdamW", "Adafactor"):
            for mode in modes_of(which):
                run = wrapper, which, "exponential", mode
                if mode != "catch_up" or _is_taken(run):
                    yield run


def _is_taken(run: tuple[str, str, str, str]) -> bool:
    """Return whether a wrapper takes an optimizer with rows that may be behind."""
    try:
        made(run, weights(), first=False)
    except tfopt.InvalidArgumentError:
        return False
    return True


def modes_of(which: str) -> tuple[str, ...]:
    counts = {
        "AdEMAMix": 2,
        "AdamMini": 2,
        "Ftrl": 2,
        "LAMB": 1,
        "LARS": 1,
        "RowwiseAdagrad": 2,
        "RowwiseAdam": 2,
        "ScheduleFreeAdamW": 2,
        "ScheduleFreeSGD": 2,
        "Adafactor": 1,
    }
    return MODES[: counts.get(which, 3)]


def made(run: tuple[str, str, str, str], variables: dict[str, np.ndarray], first: bool) -> Any:
    """Return the optimizer of a run; only the `first` half gets settings that a state restores."""
    wrapper, which, schedule, mode = run
    optimizers = tfopt.optimizers
    options = {"learning_rate": SCHEDULES[schedule](optimizers.schedules), **OPTIMIZERS[which]}
    if which != "Adafactor":
        options["sparse"] = mode
    inner = getattr(optimizers, which.split(" ")[0])(**options)
    if first and which == "AdamW":
        inner.exclude_from_weight_decay([variables["half"]], ["^bias"])
    return WRAPPERS[wrapper](optimizers, inner, variables)


def weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    return {
        "table": random.standard_normal((ROWS, 2)),
        "bias": random.standard_normal(3).astype("f4"),
        "half": random.standard_normal(4).astype("f2"),
        "bits": random.standard_normal((ROWS, 3)).astype(ml_dtypes.bfloat16),
    }


def take_steps(
    run: tuple[str, str, str, str],
    optimizer: Any,
    variables: dict[str, np.ndarray],
    steps: range,
) -> None:
    """Take steps whose gradients, sparse and dense, are determined by the step numbers."""
    wrapper, _, _, mode = run
    for k in steps:
        random = np.random.default_rng(k)
        grads: dict[str, Any] = {
            name: random.standard_normal(array.shape).astype(array.dtype)
            for name, array in variables.items()
        }
        if k in (1, 6) and wrapper in ("LossScaleOptimizer", "three"):
            grads["bias"][0] = np.inf
        for name in ("table", "bits") if mode != "catch_up" else ("table",):
            rows = random.integers(ROWS, size=4)
            grads[name] = tfopt.IndexedSlices(grads[name][rows], rows)
        optimizer.step(variables, grads)


def ending(optimizer: Any, variables: dict[str, np.ndarray]) -> Any:
    """Return the results of a run, before and after rows catch up."""
    before = {name: array.copy() for name, array in variables.items()}
    return {"before": before, "state": optimizer.get_weights(), "after": variables}


def take_up(halves: dict[str, Any]) -> dict[str, Any]:
    """Resume runs where they were cut, and return their results."""
    found = {}
    for name, half in halves.items():
        wrapper, which, schedule, mode = name.split("/")
        run = wrapper, which, schedule, mode
        optimizer = made(run, half["weights"], first=False)
        optimizer.load_state_dict(half["optimizer"], half["weights"])
        take_steps(run, optimizer, half["weights"], range(5, 10))
        found[name] = ending(optimizer, half["weights"])
    return found


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    cut = [checkpoints.load(folder / f"cut.{suffix}") for suffix in ("npz", "safetensors")]
    ends = {name: end for halves in cut for name, end in take_up(halves).items()}
    checkpoints.save(folder / "ends.npz", ends)
