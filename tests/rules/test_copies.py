"""Copies of variables and optimizers, as copy and pickle make them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfopt


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def pickled_as_text(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value, protocol=0))  # which leaves out empty states


ways = pytest.mark.parametrize("way", [copy.deepcopy, pickled, pickled_as_text])


def clipped(array: np.ndarray) -> np.ndarray:
    return array.clip(0)


@ways
def test_a_variable(way: Callable[[Any], Any]) -> None:
    array = np.ones(2)
    variable = tfopt.Variable(array, "a variable to copy", constraint=clipped, trainable=False)
    other, its = way((variable, array))
    assert (other.name, other.constraint, other.trainable) == (variable.name, clipped, False)
    assert repr(other) == repr(variable)
    other.assign([3, 4])
    assert its.tolist() == [3, 4] and array.tolist() == [1, 1]
    assert other.lock is not variable.lock


def test_a_shallow_copy_of_a_variable_shares_its_array() -> None:
    variable = tfopt.Variable(np.ones(2), "v")
    copy.copy(variable).assign([3, 4])
    assert variable.numpy().tolist() == [3, 4]


def made(table: np.ndarray) -> dict[str, Any]:
    own = tfopt.optimizers
    decaying = own.AdamW(0.1, weight_decay=0.1)
    decaying.exclude_from_weight_decay([table])
    return {
        "Adam": own.Adam(0.1),
        "catching up": own.Adam(0.1, sparse="catch_up"),
        "decaying": decaying,
        "accumulation": own.GradientAccumulation(own.SGD(0.1, momentum=0.5), 4),
        "groups": own.WeightAverage(
            own.ParameterGroups(own.SGD(0.1, momentum=0.5), [([table], {"momentum": 0.25})])
        ),
        "Adafactor": own.LossScaleOptimizer(own.Adafactor(0.1)),
    }


@ways
@pytest.mark.parametrize(
    "which", ["Adam", "catching up", "decaying", "accumulation", "groups", "Adafactor"]
)
def test_a_copied_run_continues_independently(way: Callable[[Any], Any], which: str) -> None:
    params = {"table": np.ones((4, 2)), "w": np.ones(3)}
    opt = made(params["table"])[which]

    def step(k: int, opt: Any, params: dict[str, np.ndarray]) -> None:
        rows = tfopt.IndexedSlices(np.full((2, 2), k + 1.0), np.array([k % 3, 3]))
        opt.step(params, {"table": rows, "w": np.full(3, k - 2.0)})

    for k in range(5):
        step(k, opt, params)
    other, theirs = way((opt, params))
    before = copy.deepcopy(params)
    for k in range(5, 9):
        step(k, other, theirs)
    assert all(np.array_equal(params[name], before[name]) for name in params)
    for k in range(5, 9):
        step(k, opt, params)
    weights = opt.get_weights(), other.get_weights()  # after a flush
    assert all(np.array_equal(*pair) for pair in zip(*weights, strict=True))
    assert all(np.array_equal(params[name], theirs[name]) for name in params)
