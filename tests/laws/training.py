"""Steps have the specification's bits, for all combinations of features.

Programs train with any optimizer in any two wrappers, with any storage, clipping, sparse mode and
decay, on arrays of any dtype, shape and layout, in any way to take a step; between steps, arrays
are replaced, states saved, loaded, copied and pickled, settings changed, steps refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from common.cases import LAYOUTS
from common.optimizer_arguments import RULES
from common.wrapper_cases import WRAPPERS

from laws.law import Draw, Law
from laws.training_run import EVENTS, GRADIENTS, WAYS
from tfopt import optimizers
from tfopt.errors import InvalidArgumentError

__all__ = ["LAW", "MORE", "OPTIONS", "WRAPPED", "accepted", "made"]

#: The shapes of variables, mostly two of each, so that one may be the gradient of the other. Above
#: 4096 elements, slots are stored in blocks; beyond 2048, calls take turns.
SHAPES = {
    "small": "2 * [(3, 4)]",
    "one": "[(65, 70)]",
    "with none and without axes": "2 * [(0, 2), (), (5,)]",
    "in blocks": "2 * [(70, 60)]",
    "in blocks, with none": "2 * [(70, 0), (70, 60)]",
    "tall": "2 * [(3000, 2)]",
    "deep, with small ones": "2 * [(2, 40, 53), (3,)]",
}
#: Arguments of optimizers, by the factor that they are the levels of.
OPTIONS: dict[str, dict[str, str]] = {
    "storage": {
        "as the variable": "",
        **{kind: f"storage={kind!r}" for kind in ("float16", "bfloat16", "float32")},
        **{kind: f"storage={kind!r}" for kind in ("8bit", "4bit", "dynamic8bit")},
    },
    "sparse": {
        "tensorflow": "",
        "lazy": 'sparse="lazy"',
        "catch_up": 'sparse="catch_up"',
    },
    "clip": {
        "none": "",
        "clipnorm": "clipnorm=0.5",
        "clipvalue": "clipvalue=0.5",
        "global_clipnorm": "global_clipnorm=0.5",
        "merged before": 'clipnorm=0.5, merge="before"',
    },
    "decay": {
        "none": "",
        "decoupled": "weight_decay=0.1",
        "cautious": "weight_decay=0.1, cautious_weight_decay=True",
    },
}
#: Storages of C-contiguous variables only.
IN_BLOCKS = ("8bit", "4bit", "dynamic8bit")
#: Arguments without which an optimizer does less.
MORE = {"SGD": "momentum=0.5", "RMSprop": "momentum=0.5"}
#: Wrappers, busy, as text.
WRAPPED = {
    "alone": "{}",
    "GradientAccumulation": "GradientAccumulation({}, 2)",
    "LossScaleOptimizer": "LossScaleOptimizer({}, 4.0, 2)",
    "Mirror": 'Mirror({}, "float16")',
    "ParameterGroups": 'ParameterGroups({}, [("^w?1$", SGD(0.5, momentum=0.5))])',
    "WeightAverage": "WeightAverage({}, 0.5)",
}
assert {*WRAPPED} == {"alone", *WRAPPERS}, "each wrapper has a text"

FACTORS: dict[str, tuple[str, ...]] = {
    "optimizer": RULES,
    "wrapper": tuple(WRAPPED),
    "outer": tuple(WRAPPED),
    **{name: tuple(levels) for name, levels in OPTIONS.items()},
    "dtype": ("float64", "float32", "float16", "bfloat16", "complex64", "complex128"),
    "shapes": tuple(SHAPES),
    "layout": tuple(LAYOUTS),
    "way": tuple(WAYS),
    "gradient": tuple(GRADIENTS),
    "gradient layout": tuple(LAYOUTS),
    "threads": ("1", "2", "3"),
    "steps": ("kept", "bound anew"),
}


def made(levels: Mapping[str, str]) -> str:
    """Return the text of an optimizer."""
    options = [OPTIONS[name][levels[name]] for name in OPTIONS]
    arguments = ["0.125", MORE.get(levels["optimizer"], ""), *options]
    made = f"{levels['optimizer']}({', '.join(filter(None, arguments))})"
    for place in ("wrapper", "outer"):
        made = WRAPPED[levels[place]].format(made)
    return made


@cache
def accepted(text: str, dtype: str) -> bool:
    """Whether an optimizer can be made, and can step a variable of a dtype."""
    try:
        optimizer: Any = eval(text, vars(optimizers))
        if "storage=" not in text:
            return True
        # slots that cannot be stored so are refused when the first ones are made
        from laws.training_run import TrainingRun

        run = TrainingRun(lambda: optimizer, [(70, 60)], dtype)
        run.take(run, {k: np.ones_like(run.array(w)) for k, w in run.variables.items()})
    except InvalidArgumentError:
        return False
    return True


def _possible(levels: Mapping[str, str]) -> bool:
    given = levels.get("gradient", "dense")
    if levels.get("way") in ("tape", "function") and given != "dense":
        return False
    if "ParameterGroups" in levels.values() and levels.get("way") == "pairs of arrays":
        return False  # arrays have no names
    if levels.get("storage") in IN_BLOCKS and levels.get("layout", "contiguous") != "contiguous":
        return False  # refused, as documented: tests/optimizers/test_slot_storage.py
    with_plain = {**{name: levels[0] for name, levels in FACTORS.items()}, **levels}
    return "optimizer" not in levels or accepted(made(with_plain), with_plain["dtype"])


def _program(draw: Draw) -> str:
    levels = draw.levels
    events = "\n".join(f"run.{event}()" for event in ("step", *draw.events, "step"))
    return f"""\
import warnings

from laws.training_run import TrainingRun
from tfopt.optimizers import *

warnings.simplefilter("ignore")
run = TrainingRun(
    lambda: {made(levels)},
    shapes={SHAPES[levels["shapes"]]},
    dtype={levels["dtype"]!r},
    layout={levels["layout"]!r},
    way={levels["way"]!r},
    gradient={levels["gradient"]!r},
    gradient_layout={levels["gradient layout"]!r},
    threads={levels["threads"]},
    specified={levels["storage"] != "dynamic8bit"},
    late={levels["sparse"] == "catch_up"},
    in_blocks={levels["storage"] in IN_BLOCKS},
    kept={levels["steps"] == "kept"},
    seed={draw.seed},
)
{events}
"""


LAW = Law("training", FACTORS, _program, _possible, EVENTS, length=5)
