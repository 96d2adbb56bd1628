"""Configurations, saved ones and texts of optimizers and schedules stay what they have been.

Files of older versions hold configurations, so keys, values, what is left out as usual, and the
order are compared with those recorded in ``golden/data/configurations.json``. Its keys are Python
expressions; a new case is recorded by ``python test_configurations.py EXPRESSION``.
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfopt
from tfopt import optimizers
from tfopt.optimizers import OptimizerBase, schedules

PATH = Path(__file__).parents[1] / "golden" / "data" / "configurations.json"
CASES = json.loads(PATH.read_text())


def rate(step: Any) -> float:
    return 1 / (1 + step)


def excluding(optimizer: Any) -> Any:
    optimizer.exclude_from_weight_decay(var_names=["bias$", "scale"])
    return optimizer


NAMES = {
    **{name: getattr(optimizers, name) for name in optimizers.__all__},
    **{name: getattr(schedules, name) for name in schedules.__all__},
    "rate": rate,
    "excluding": excluding,
    "Variable": tfopt.Variable,
    "array": np.array,
    "weights": np.ones(2),
}


def config_of(made: Any) -> str:
    """Return a configuration as JSON, or why there is none."""
    try:
        return json.dumps(made.get_config())
    except TypeError as error:
        return f"{type(error).__name__}: {error}"


def saved_configs(state: dict[str, Any]) -> list[Any]:
    """Return the configurations in a state, with those of inner optimizers."""
    inside = [part for part in state["parts"].values() if "config" in part]
    return [state["config"], *map(saved_configs, inside)]


def record(expression: str) -> list[str]:
    made = eval(expression, dict(NAMES))
    recorded = [config_of(made), re.sub(" at 0x[0-9a-f]+", "", repr(made))]
    if isinstance(made, OptimizerBase):
        saved = json.dumps(saved_configs(made.state_dict([NAMES["weights"]])))
        recorded += [saved] * (saved != f"[{recorded[0]}]")
    return recorded


@pytest.mark.parametrize("expression", CASES)
def test_configurations_stay(expression: str) -> None:
    assert record(expression) == CASES[expression]


@pytest.mark.parametrize("expression", [each for each in CASES if CASES[each][0][0] == "{"])
def test_configurations_make_the_same(expression: str) -> None:
    config, shown, *_ = CASES[expression]
    made = eval(expression, dict(NAMES))
    custom = {"rate": rate}
    takes_objects = isinstance(made, (schedules.Join, schedules.LinearWarmup))
    options = {"custom_objects": custom} if takes_objects else {}
    again = type(made).from_config(json.loads(config), **options)
    assert config_of(again) == config
    assert "<" in shown or "Variable(" in shown or repr(again) == shown


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    recorded = {**CASES, **{each: record(each) for each in sys.argv[1:]}}
    lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in recorded.items())
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n")
