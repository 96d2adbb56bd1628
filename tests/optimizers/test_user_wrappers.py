"""Wrappers as a user writes them, using only what is documented.

The laws of all wrappers are drawn over these, too: steps are whole, locked and traced, an idle
wrapper is the optimizer inside, whose settings are set there, and runs are resumed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits
from common.wrapper_cases import USERS, Lookahead, Skipping

import tfopt
from tfopt.optimizers import SGD, Adam, LossScaleOptimizer, Optimizer, OptimizerBase, Wrapper


def test_it_looks_ahead() -> None:
    w, opt = np.array([8.0]), Lookahead(SGD(1.0), 2, 0.25)
    seen = []
    for _ in range(4):
        opt.apply_gradients([(np.ones(1), w)])
        seen.append(w[0])
    assert seen == [7.0, 7.5, 6.5, 7.0]
    assert opt.get_slot(w, "slow").numpy() == [7.0] and opt.get_slot_names() == ["slow"]


def test_it_leaves_steps_out() -> None:
    w, opt = np.zeros(2), Skipping(SGD(1.0), 2.0)
    for size in (1.0, 3.0, 2.0):
        opt.apply_gradients([(np.full(2, size), w)])
    assert w.tolist() == [-3, -3] and int(opt.iterations) == 2
    assert [int(weight) for weight in opt.weights] == [2, 1]


def test_gradients_that_are_scaled_reach_it_as_they_are_meant() -> None:
    w, opt = np.zeros(2, np.float32), LossScaleOptimizer(Skipping(SGD(1.0), 3.0, 1e-3), 8.0)
    opt.apply_gradients([(np.full(2, 16.0, np.float32), w)])
    assert 0 < np.abs(w + 2).max() < 0.01
    opt.apply_gradients([(np.full(2, np.inf, np.float32), w)])
    assert int(opt.iterations) == 1 and np.isfinite(w).all()


@pytest.mark.parametrize("which", USERS)
def test_arguments_are_attributes_and_configuration(which: str) -> None:
    for argument, values in USERS[which].changed.items():
        for value in values:
            opt = type(USERS[which].idle(SGD()))(Adam(0.5), **{argument: value})
            assert opt.get_config()[argument] == value == getattr(opt, argument)
            again = type(opt).from_config(opt.get_config())
            assert again.get_config() == opt.get_config()
            other = type(opt)(Adam(0.5))
            other.load_state_dict(opt.state_dict([]), [])
            assert getattr(other, argument) == value


def test_arguments_that_are_passed_on_are_no_arguments_of_their_own() -> None:
    class Passing(Lookahead):
        def __init__(self, optimizer: Any, factor: float = 2.0, **kwargs: Any) -> None:
            super().__init__(optimizer, **kwargs)
            self.factor = factor

    opt = Passing(SGD(0.5), period=3, name="mine")
    config = opt.get_config()
    assert [config[key] for key in ("factor", "period", "alpha", "name")] == [2.0, 3, 0.5, "mine"]
    assert Passing.from_config(config).get_config() == config
    other = Passing(SGD())
    other.load_state_dict(opt.state_dict([]), [])
    assert other.period == 3 and other.learning_rate == 0.5


@pytest.mark.parametrize("which", USERS)
def test_arguments_count(which: str) -> None:
    for argument, values in USERS[which].changed.items():
        ends = []
        for value in values:
            w, opt = np.ones(3), type(USERS[which].idle(SGD()))(SGD(0.5), **{argument: value})
            for k in range(6):
                opt.apply_gradients([(np.full(3, k / 3), w)])
            ends.append(w.tolist())
        assert ends[0] != ends[1], argument


def test_it_is_an_optimizer_but_for_hyperparameters() -> None:
    opt = Lookahead(Adam(0.5))
    assert isinstance(opt, Optimizer) and isinstance(opt, (Wrapper, OptimizerBase))
    assert not issubclass(Lookahead, Adam) and Optimizer not in Lookahead.__mro__
    assert "learning_rate" not in vars(opt) and opt.learning_rate == 0.5
    with pytest.raises(AttributeError, match="rho"):
        opt.rho = 0.5
    with pytest.raises(tfopt.InvalidTypeError, match="optimizer must be"):
        Lookahead(3)


def test_what_it_adds_to_a_step_is_checked() -> None:
    w, bad = np.ones(2), np.ones(3)

    class Wrong(Wrapper):
        def prepare(self, request):
            step = self.optimizer.prepare(request)
            calls[self.name](step)
            return step

    calls = {
        "shape": lambda step: step.update("moving_average", w, bad, momentum=0.5),
        "hyper": lambda step: step.update("moving_average", w, w, speed=0.5),
        "rule": lambda step: step.update("no_rule", w, w),
        "assign": lambda step: step.assign(w, bad),
        "count": lambda step: step.count(w),
    }
    for name in calls:
        opt = Wrong(SGD(1.0), name)
        with pytest.raises(tfopt.InvalidArgumentError):
            opt.apply_gradients([(np.ones(2), w)])
        assert w.tolist() == [1, 1] and int(opt.iterations) == 0


def test_a_slot_of_its_own_moves_with_its_variable() -> None:
    opt, params = Lookahead(SGD(0.5), 2), {"w": np.ones(2)}
    opt.step(params, {"w": np.ones(2)})
    slow = opt.get_slot(params["w"], "slow").numpy()
    params["w"] = params["w"].copy()
    opt.step(params, {"w": np.ones(2)})
    assert_same_bits(opt.get_slot(params["w"], "slow").numpy(), slow, "slow")
    assert_same_bits(params["w"], slow, "w")
