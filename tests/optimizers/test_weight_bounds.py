"""Counts and scales that no step leaves are refused, in a state and in a list of weights."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from common.step_cases import every_optimizer, everything

from tfopt import InvalidArgumentError
from tfopt.optimizers import SGD, GradientAccumulation, LossScaleOptimizer

COUNTS = [-1, -(2**31), -(2**63), 2**63 - 1]


def refused(opt: Any, load: Any, w: Any, match: str) -> None:
    before = everything(opt, w)
    with pytest.raises(InvalidArgumentError, match=match):
        load()
    assert everything(opt, w) == before


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", every_optimizer())
def test_step_counts(name: str, count: int) -> None:
    opt, w = every_optimizer()[name](), {"w": np.ones((2, 3))}
    for _ in range(2):
        opt.step(w, {"w": np.ones((2, 3))})
    state = copy.deepcopy(opt.state_dict(w))
    inner = state
    while "optimizer" in inner["parts"]:
        inner = inner["parts"]["optimizer"]
    inner["weights"]["iterations"] = np.array(count)
    refused(opt, lambda: opt.load_state_dict(state, w), w, "iterations must be between 0 and")
    weights = opt.get_weights()
    place = next(k for k, each in enumerate(opt.weights) if each is opt.iterations)
    weights[place] = np.array(count)
    refused(opt, lambda: opt.set_weights(weights), w, "iterations must be between 0 and")


@pytest.mark.parametrize(
    ("make", "name", "values"),
    [
        (lambda: GradientAccumulation(SGD(0.5), 3), "pending", COUNTS),
        (lambda: LossScaleOptimizer(SGD(0.5)), "step_counter", COUNTS),
        (
            lambda: LossScaleOptimizer(SGD(0.5)),
            "dynamic_scale",
            [0.0, -1.0, np.inf, np.nan, 1e-310],
        ),
    ],
)
def test_weights_of_wrappers(make: Any, name: str, values: list[Any]) -> None:
    opt, w = make(), {"w": np.ones(3)}
    opt.step(w, {"w": np.ones(3)})
    for value in values:
        state = copy.deepcopy(opt.state_dict(w))
        state["weights"][name][...] = value
        refused(
            opt, lambda state=state: opt.load_state_dict(state, w), w, f"{name} must be between"
        )
