"""The content of the golden files: hyperparameters, flags and arrays, for any row of the table.

Used by make.py only. The tests read hyperparameters and arrays from the files.
"""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np

from tfopt.rules import Rule

__all__ = [
    "INPUTS",
    "OPTIMIZERS",
    "SCHEDULES",
    "STEPS",
    "Input",
    "arrays",
    "ordinary",
    "settings",
    "special",
]

#: Values of each hyperparameter, by name. A rule's k-th setting takes the k-th value of each,
#: counted around, so the columns are read together. An int is passed to TensorFlow as int64.
SAMPLES: dict[str, tuple[float, ...]] = {
    "alpha": (0.1, 1.5, 1e-3),
    "lr": (0.1, 1.5, 1e-3, 0.25, 0.1),
    "momentum": (0.9, 0.0, 0.99),
    "rho": (0.9, 0.0, 0.99),
    "beta": (0.9, 0.0, 0.5),
    "beta1": (0.9, 0.0, 0.5),
    "beta2": (0.99, 0.9, 0.0),
    "beta1_power": (0.81, 0.0, 0.5),
    "beta2_power": (0.9801, 0.9, 0.0),
    "epsilon": (1e-3, 1e-7, 1.0),
    "sign_decay": (0.7, 1.0, 0.0),
    "logbase": (1.0, 0.5, 0.0),
    "global_step": (3, 1, 70000),
    "l1": (0.05, 0.0, 0.0, 0.5, 0.05),
    "l2": (0.02, 0.0, 0.5, 0.0, 0.02),
    "l2_shrinkage": (0.03, 0.0, 0.5, 0.01, 0.03),
    "lr_power": (-0.5, -0.5, -0.75, -1.0, 0.0),
}


def settings(rule: Rule) -> list[dict[str, dict[str, Any]]]:
    """Return every combination of the flags with every sample of the hyperparameters."""
    columns = max(len(SAMPLES[name]) for name in rule.hypers)
    hypers = [
        {name: SAMPLES[name][k % len(SAMPLES[name])] for name in rule.hypers}
        for k in range(columns)
    ]
    flags = [
        dict(zip(rule.flags, values, strict=True))
        for values in product((False, True), repeat=len(rule.flags))
    ]
    return [{"flags": f, "hypers": h} for f in flags for h in hypers]


class Input(NamedTuple):
    """Arrays that all rules are applied to, some steps in a row."""

    name: str
    shape: tuple[int, ...]
    steps: int
    special: bool = False
    rows: int | None = None  # how many indices a sparse gradient has; None: dense
    index_dtype: str = "int64"


#: Not multiples of eight, so that vectorized kernels have leftovers; nine columns and 77 elements,
#: so that they have something to vectorize; rows of one element, on which TensorFlow's kernels
#: branch, as a vector and as a column. More indices than rows, so that some repeat.
INPUTS = (
    Input("scalar", (), 2),
    Input("matrix", (3, 5), 2),
    Input("special", (77,), 1, special=True),
    Input("rows", (3, 9), 2, rows=4),
    Input("special_rows", (12, 3), 1, special=True, rows=15, index_dtype="int32"),
    Input("vector", (12,), 2, rows=15, index_dtype="int32"),
    Input("special_column", (20, 1), 1, special=True, rows=26),
)
_SLOTS = 3  # the most a rule has


def ordinary(random: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return numbers around 1, made without a logarithm, which might depend on the machine."""
    numbers = random.uniform(-1, 1, shape) * 2.0 ** random.integers(-4, 3, shape)
    return np.asarray(numbers, dtype)


def special(random: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return zeros, NaNs, infinities, numbers at both ends of the range, and some ordinary ones."""
    info = np.finfo(dtype)
    root = np.sqrt(info.max)
    magnitudes = np.array(
        [0, 1, np.inf, info.max, root / 2, 2 * root, 1 / root, info.tiny, info.tiny * 1.5,
         info.tiny / 2, info.smallest_subnormal, info.eps, np.nan],
        dtype,
    )  # fmt: skip
    numbers = random.choice(magnitudes, shape) * random.choice(np.array([-1, 1], dtype), shape)
    return np.where(random.uniform(size=shape) < 0.3, ordinary(random, shape, dtype), numbers)


def arrays(chosen: Input, dtype: str, seed: int) -> dict[str, np.ndarray]:
    """Return the variable and slots, the gradient of each step, and the indices of each step."""
    random = np.random.default_rng(seed)
    rows = chosen.shape if chosen.rows is None else (chosen.rows, *chosen.shape[1:])
    variables = ordinary(random, (1 + _SLOTS, *chosen.shape), dtype)
    slots = variables[1:]
    positive = random.uniform(size=slots.shape) < 0.75  # sums of squares are, sums are not
    slots[positive] = np.abs(slots[positive])
    grads = ordinary(random, (chosen.steps, *rows), dtype)
    if chosen.special:
        # one operand at a time in the first half, any of them in the second
        operands = [*variables, grads[0]]
        for k, operand in enumerate(operands):
            place = np.arange(operand.size).reshape(operand.shape) % (2 * len(operands))
            replaced = (place == k) | (place >= len(operands))
            operand[replaced] = special(random, operand.shape, dtype)[replaced]
    made = {"variables": variables, "grads": grads}
    if chosen.rows is not None:
        shape = (chosen.steps, chosen.rows)
        made["indices"] = random.integers(chosen.shape[0], size=shape, dtype=chosen.index_dtype)
    return made


def schedule(name: str, **arguments: Any) -> dict[str, Any]:
    return {"class_name": name, "config": arguments}


#: What every optimizer is run with besides. The limits are such that some gradients are clipped.
CLIPPING: tuple[dict[str, float], ...] = (
    {"clipnorm": 2.0},
    {"clipvalue": 0.75},
    {"global_clipnorm": 4.0},
)
#: By class: usual arguments, and a schedule that starts from the same learning rate; Nadam takes
#: none. No cosines, which TensorFlow cannot compute in float64.
USUAL: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "SGD": (
        {"learning_rate": 0.1, "momentum": 0.9},
        schedule("ExponentialDecay", initial_learning_rate=0.1, decay_steps=10, decay_rate=0.5),
    ),
    "Adamax": (
        {"learning_rate": 0.1},
        schedule("PolynomialDecay", initial_learning_rate=0.1, decay_steps=40, power=2.0),
    ),
    "Adam": (
        {"learning_rate": 0.1},
        schedule("PiecewiseConstantDecay", boundaries=[9, 30], values=[0.1, 0.05, 0.01]),
    ),
    "Adagrad": (
        {"learning_rate": 0.1},
        schedule("InverseTimeDecay", initial_learning_rate=0.1, decay_steps=10, decay_rate=0.5),
    ),
    "Adadelta": (
        {"learning_rate": 0.5},
        schedule(
            "ExponentialDecay",
            initial_learning_rate=0.5, decay_steps=7, decay_rate=0.3, staircase=True,
        ),
    ),
    "RMSprop": (
        {"learning_rate": 0.1},
        schedule(
            "InverseTimeDecay",
            initial_learning_rate=0.1, decay_steps=7, decay_rate=0.5, staircase=True,
        ),
    ),
    "Nadam": ({"learning_rate": 0.1}, None),
    "Ftrl": (
        {"learning_rate": 0.1, "l1_regularization_strength": 0.05},
        schedule(
            "PolynomialDecay",
            initial_learning_rate=0.1, decay_steps=15, end_learning_rate=0.01, cycle=True,
        ),
    ),
}  # fmt: skip
#: Optimizers by class and arguments, as `from_config` takes them.
OPTIMIZERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("SGD", {"learning_rate": 0.1}),
    ("SGD", {"learning_rate": 0.1, "decay": 0.05}),
    ("SGD", {"learning_rate": 0.1, "momentum": 0.9}),
    ("SGD", {"learning_rate": 0.1, "momentum": 0.9, "decay": 0.05}),
    ("SGD", {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True}),
    ("Adamax", {}),
    ("Adamax", {"learning_rate": 0.1, "beta_1": 0.8, "beta_2": 0.9, "epsilon": 1e-3}),
    ("Adamax", {"learning_rate": 0.1, "decay": 0.05}),
    ("Adam", {}),
    ("Adam", {"learning_rate": 0.1, "beta_1": 0.8, "beta_2": 0.9, "decay": 0.05}),
    ("Adam", {"learning_rate": 0.1, "amsgrad": True, "epsilon": 1e-3}),
    ("Adagrad", {"learning_rate": 0.1}),
    ("Adagrad", {"learning_rate": 0.1, "initial_accumulator_value": 0.0, "decay": 0.05}),
    ("Adadelta", {"learning_rate": 0.5}),
    ("Adadelta", {"learning_rate": 1.0, "rho": 0.5, "epsilon": 1e-3}),
    ("RMSprop", {"learning_rate": 0.1}),
    ("RMSprop", {"learning_rate": 0.1, "rho": 0.5, "centered": True, "epsilon": 1e-3}),
    ("RMSprop", {"learning_rate": 0.1, "momentum": 0.9, "decay": 0.05}),
    ("RMSprop", {"learning_rate": 0.1, "rho": 0.5, "momentum": 0.9, "centered": True}),
    ("Nadam", {}),
    ("Nadam", {"learning_rate": 0.1, "beta_1": 0.8, "schedule_decay": 0.5}),
    ("Ftrl", {}),
    ("Ftrl", {"learning_rate": 0.1, "l1_regularization_strength": 0.05,
              "l2_regularization_strength": 0.1}),
    ("Ftrl", {"learning_rate": 0.1, "l1_regularization_strength": 0.05, "beta": 0.5,
              "initial_accumulator_value": 0.5, "decay": 0.05}),
    ("Ftrl", {"learning_rate": 0.1, "l2_shrinkage_regularization_strength": 0.05}),
    ("Ftrl", {"learning_rate": 0.1, "learning_rate_power": -0.75}),
    ("Ftrl", {"learning_rate": 0.1, "learning_rate_power": -0.3, "beta": 0.5,
              "l2_shrinkage_regularization_strength": 0.05}),
    ("Adadelta", {"learning_rate": 0.5, "decay": 0.05}),
    *((name, usual | limit) for name, (usual, _) in USUAL.items() for limit in CLIPPING),
    *((name, usual | {"learning_rate": rate}) for name, (usual, rate) in USUAL.items() if rate),
)  # fmt: skip

#: Schedules by class, arguments and dtype. TensorFlow's cosines multiply by a float32 constant and
#: so compute in float32 alone; their periods are powers of two, which leaves the phase exact.
SCHEDULES: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("ExponentialDecay", {"decay_steps": 10, "decay_rate": 0.5}, "float64"),
    ("ExponentialDecay", {"decay_steps": 7.5, "decay_rate": 0.3, "staircase": True}, "float64"),
    ("InverseTimeDecay", {"decay_steps": 10, "decay_rate": 0.3}, "float64"),
    ("InverseTimeDecay", {"decay_steps": 7, "decay_rate": 0.5, "staircase": True}, "float64"),
    ("PiecewiseConstantDecay", {"boundaries": [5, 20], "values": [0.1, 0.05, 0.3]}, "float64"),
    ("PiecewiseConstantDecay", {"boundaries": [9.5], "values": [0.1, 0.0]}, "float64"),
    ("PolynomialDecay", {"decay_steps": 10}, "float64"),
    ("PolynomialDecay", {"decay_steps": 16, "end_learning_rate": 0.3, "power": 2.5}, "float64"),
    ("PolynomialDecay", {"decay_steps": 10, "power": 0.0}, "float64"),
    ("PolynomialDecay",
     {"decay_steps": 10, "end_learning_rate": 0.01, "power": 0.5, "cycle": True}, "float64"),
    ("CosineDecay", {"decay_steps": 16}, "float32"),
    ("CosineDecay", {"decay_steps": 32, "alpha": 0.1}, "float32"),
    ("CosineDecayRestarts", {"first_decay_steps": 16}, "float32"),
    ("CosineDecayRestarts",
     {"first_decay_steps": 8, "t_mul": 3.0, "m_mul": 0.5, "alpha": 0.1}, "float32"),
    ("CosineDecayRestarts", {"first_decay_steps": 8, "t_mul": 1.0, "m_mul": 0.9}, "float32"),
    ("LinearCosineDecay", {"decay_steps": 16}, "float32"),
    ("LinearCosineDecay",
     {"decay_steps": 32, "num_periods": 1.5, "alpha": 0.2, "beta": 0.01}, "float32"),
    ("NoisyLinearCosineDecay", {"decay_steps": 16, "initial_variance": 0.0}, "float32"),
)  # fmt: skip
STEPS = (0, 1, 3, 5, 6, 8, 9, 10, 11, 16, 17, 20, 21, 31, 32, 33, 48, 100, 1000, 2**20)
