"""Groups of variables with hyperparameters, schedules and optimizers of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfopt


def test_groups_by_pattern_and_by_list() -> None:
    params = {"head": {"w": np.ones(1), "b": np.ones(1)}, "body": {"w": np.ones(1)}}
    own = np.ones(1)
    groups = [([own], tfopt.optimizers.SGD(1.0)), ("^body/", {"learning_rate": 0.25})]
    opt = tfopt.optimizers.ParameterGroups(tfopt.optimizers.SGD(0.5), groups)
    assert int(opt.step({**params, "own": own}, {**params, "own": own})) == 1
    assert own[0] == 0 and params["body"]["w"][0] == 0.75 and params["head"]["b"][0] == 0.5
    assert [int(optimizer.iterations) for optimizer in opt.optimizers] == [1, 1, 1]
    opt.apply_gradients([(np.ones(1), own)])
    assert [int(optimizer.iterations) for optimizer in opt.optimizers] == [2, 2, 2]


def test_no_group_takes_a_step_that_another_refuses() -> None:
    params = {"a": np.ones(1), "b": np.ones(1)}
    opt = tfopt.optimizers.ParameterGroups(tfopt.optimizers.Adam(), [("a", {"learning_rate": 0.1})])
    with pytest.raises(tfopt.InvalidArgumentError):
        opt.step(params, {"a": np.ones(1), "b": np.ones(2)})
    assert params["a"][0] == 1 and int(opt.iterations) == 0


@pytest.mark.parametrize("which", ["rate", "rate of steps", "rate within", "hooks"])
def test_a_group_differs_in_its_arguments_alone(which: str) -> None:
    """And not in what no configuration holds."""
    own, rate = tfopt.optimizers, [1.0]
    base = {
        "rate": lambda: own.SGD(lambda: rate[0]),
        "rate of steps": lambda: own.SGD(lambda step: rate[0]),
        "rate within": lambda: own.LossScaleOptimizer(own.SGD(lambda: rate[0]), initial_scale=1.0),
        "hooks": lambda: own.SGD(
            0.125,
            gradient_aggregator=lambda pairs: [(2 * g, v) for g, v in pairs],
            gradient_transformers=[lambda pairs: [(g - 1, v) for g, v in pairs]],
        ),
    }[which]()
    opt = own.ParameterGroups(base, [("^a$", {"name": "its own"})])
    rate[0] = 0.25
    params = {"a": np.ones(2), "b": np.ones(2)}
    opt.step(params, {"a": np.full(2, 1.5), "b": np.full(2, 1.5)})
    change = 0.125 * 2 if which == "hooks" else 0.25 * 1.5
    assert params["a"].tolist() == params["b"].tolist() == [1 - change] * 2
    a = tfopt.Variable(params["a"], "a")
    assert opt.group_of(a) is not base and opt.group_of(a).name == "its own"


def test_what_does_not_decay_does_not_in_a_group() -> None:
    own, w = tfopt.optimizers, np.ones(2)
    base = own.AdamW(0.5, weight_decay=0.5)
    base.exclude_from_weight_decay([w])
    own.ParameterGroups(base, [([w], {"beta_1": 0.5})]).step(w, np.zeros(2))
    assert w.tolist() == [1, 1]


def test_each_group_counts_its_own_steps() -> None:
    sgd = tfopt.optimizers.SGD()
    for groups in ([("a", sgd)], [("a", other := tfopt.optimizers.SGD()), ("b", other)]):
        with pytest.raises(tfopt.InvalidArgumentError, match="separate optimizer object"):
            tfopt.optimizers.ParameterGroups(sgd, groups)


def test_groups_without_rows_that_owe_steps_are_flushed_with_others() -> None:
    own = tfopt.optimizers
    table, w = np.ones((3, 1)), np.ones((2, 2))
    opt = own.ParameterGroups(own.Adafactor(), [([table], own.Adam(0.1, sparse="catch_up"))])
    for row in (0, 1):
        rows = tfopt.IndexedSlices(np.ones((1, 1)), np.array([row]))
        opt.apply_gradients([(rows, table), (np.ones((2, 2)), w)])
    before = table[0, 0]
    opt.flush()
    opt.catch_up(w, [0])
    assert table[0, 0] < before
    own.GradientAccumulation(own.Adafactor(), 2).flush()


def test_schedules_of_groups() -> None:
    rate = tfopt.optimizers.schedules.PiecewiseConstantDecay([0], [0.5, 0.25])
    params = {"a": np.zeros(1), "b": np.zeros(1)}
    groups = [("a", {"learning_rate": rate})]
    opt = tfopt.optimizers.ParameterGroups(tfopt.optimizers.SGD(1.0), groups)
    for _ in range(2):
        opt.step(params, {"a": np.ones(1), "b": np.ones(1)})
    assert params["a"][0] == -0.75 and params["b"][0] == -2


def test_accumulated_groups() -> None:
    """The sums are made on the way into the steps of all groups."""
    params = {"a": np.zeros(1), "b": np.zeros(1), "c": np.zeros(2)}
    inner = tfopt.optimizers.ParameterGroups(
        tfopt.optimizers.SGD(1.0), [("b", {"learning_rate": 2})]
    )
    opt = tfopt.optimizers.GradientAccumulation(inner, 2, "sum")
    for k in (1.0, 2.0):
        opt.step(params, {"a": np.full(1, k), "b": np.full(1, 10 * k), "c": np.full(2, 100 * k)})
    assert [params[name][0] for name in "abc"] == [-3, -60, -300]


@pytest.mark.parametrize("groups", [[(3, {})], [("a", 3)], [(np.ones(2), {})]])
def test_refused_groups(groups: Any) -> None:
    with pytest.raises(tfopt.errors.InvalidTypeError):
        tfopt.optimizers.ParameterGroups(tfopt.optimizers.SGD(), groups)
