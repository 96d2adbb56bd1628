"""Learning rates that are functions: schedules, functions of the step, functions of nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits
from common.optimizer_arguments import USUAL, arguments_of

import tfopt

CLASSES = ("SGD", "Adam", "Adamax", "Adagrad", "Adadelta", "RMSprop", "Ftrl")


def steps(name: str, rate: Any, n: int = 4, **options: Any) -> list[np.ndarray]:
    """Return a variable after each step."""
    optimizer = getattr(tfopt.optimizers, name)(rate, **options)
    var, after = np.array([1.0, -2.0]), []
    for k in range(n):
        optimizer.apply_gradients([(np.array([0.5, 0.25 * k]), var)])
        after.append(var.copy())
    return after


@pytest.mark.parametrize("name", CLASSES)
def test_a_constant_function_is_the_number(name: str) -> None:
    plain = steps(name, 0.1, decay=0.25)
    constant = tfopt.optimizers.schedules.PiecewiseConstantDecay([2], [0.1, 0.1])
    for rate in (constant, lambda step: 0.1, lambda: 0.1, lambda: np.float64(0.1)):
        for one, other in zip(plain, steps(name, rate, decay=0.25), strict=True):
            assert_same_bits(one, other, name)


@pytest.mark.parametrize("name", CLASSES)
def test_a_function_is_called_with_the_steps_taken_before(name: str) -> None:
    seen: list[Any] = []

    def rate(step: Any) -> float:
        seen.append(step)
        return 0.1

    steps(name, rate)
    assert seen == [0, 1, 2, 3]


def test_tensorflows_numbers() -> None:
    """A schedule and `decay` combine: differences of TensorFlow 2.21."""
    schedule = tfopt.optimizers.schedules.ExponentialDecay(1.0, 10, 0.5)
    optimizer, var = tfopt.optimizers.SGD(schedule, decay=0.5), np.zeros(1)
    moved = []
    for _ in range(3):
        before = var[0]
        optimizer.apply_gradients([(np.ones(1), var)])
        moved.append(before - var[0])
    np.testing.assert_allclose(moved, [1, 0.6220219930, 0.4352752865], rtol=1e-7)


def test_an_optional_argument_is_no_step() -> None:
    given: list[Any] = []

    def rate(factor: float = 0.5) -> float:
        given.append(factor)
        return factor

    steps("SGD", rate, 2)
    assert given == [0.5, 0.5]


def test_what_reading_returns() -> None:
    schedule = tfopt.optimizers.schedules.CosineDecay(0.1, 10)
    optimizer = tfopt.optimizers.Adam(schedule)
    assert optimizer.learning_rate is schedule and optimizer.lr is schedule
    optimizer.lr = 0.5
    assert optimizer.learning_rate == 0.5
    optimizer.learning_rate = schedule
    assert optimizer.lr is schedule


@pytest.mark.parametrize("name", CLASSES)
def test_configurations(name: str) -> None:
    schedule = tfopt.optimizers.schedules.ExponentialDecay(0.5, 10, 0.9)
    made = getattr(tfopt.optimizers, name)(schedule)
    config = made.get_config()
    assert config["learning_rate"] == tfopt.optimizers.schedules.serialize(schedule)
    again = type(made).from_config(config)
    assert again.get_config() == config
    assert again.learning_rate(7) == schedule(7)
    assert "ExponentialDecay" in repr(made)
    of_nothing = getattr(tfopt.optimizers, name)(lambda: 0.25)
    assert of_nothing.get_config()["learning_rate"] == 0.25
    of_the_step = getattr(tfopt.optimizers, name)(lambda step: 0.25)
    with pytest.raises(tfopt.InvalidTypeError, match="use a schedule"):
        of_the_step.get_config()


def test_lr_in_a_configuration() -> None:
    config = {"lr": 0.5}
    assert tfopt.optimizers.SGD.from_config(config).learning_rate == 0.5
    assert config == {"lr": 0.5}  # TensorFlow changes it


@pytest.mark.parametrize("value", ["0.1", None, [0.1], np.ones(1), b"1"])
@pytest.mark.parametrize("name", [*CLASSES, "Nadam"])
def test_refused_values(name: str, value: Any) -> None:
    with pytest.raises(tfopt.InvalidTypeError):
        getattr(tfopt.optimizers, name)(learning_rate=value)
    optimizer = getattr(tfopt.optimizers, name)()
    before = optimizer.learning_rate
    for attribute in ("lr", "learning_rate"):
        with pytest.raises(tfopt.InvalidTypeError):
            setattr(optimizer, attribute, value)
        assert optimizer.learning_rate == before


@pytest.mark.parametrize(
    ("returned", "error"),
    [(-0.1, "InvalidArgumentError"), (np.nan, "InvalidArgumentError"),
     (np.inf, "InvalidArgumentError"), ("0.1", "InvalidTypeError"), (None, "InvalidTypeError"),
     (np.ones(2), "InvalidTypeError")],
)  # fmt: skip
@pytest.mark.parametrize("name", [*CLASSES, "Nadam"])
def test_functions_that_return_no_rate_change_nothing(name: str, returned: Any, error: str) -> None:
    optimizer, var = getattr(tfopt.optimizers, name)(lambda: returned), np.ones(2)
    with pytest.raises(getattr(tfopt, error)):
        optimizer.apply_gradients([(np.ones(2), var)])
    assert (var == 1).all() and int(optimizer.iterations) == 0


def test_nadam_takes_no_schedule() -> None:
    with pytest.raises(tfopt.InvalidArgumentError, match="Nadam does not take a schedule"):
        tfopt.optimizers.Nadam(tfopt.optimizers.schedules.CosineDecay(0.1, 10))


def test_nadams_configuration_comes_back() -> None:
    """In TensorFlow it does not."""
    made = tfopt.optimizers.Nadam(schedule_decay=0.5)
    assert made.get_config()["decay"] == 0.5
    assert type(made).from_config(made.get_config()).schedule_decay == 0.5


def test_a_refused_step_of_nadam_leaves_its_momenta() -> None:
    optimizer, var = tfopt.optimizers.Nadam(), np.ones(2)
    optimizer.apply_gradients([(np.ones(2), var)])
    before = float(optimizer.momentum_cache)
    with pytest.raises(tfopt.InvalidArgumentError):
        optimizer.apply_gradients([(np.ones(3), var)])
    assert float(optimizer.momentum_cache) == before


def test_slots_in_tensorflows_order() -> None:
    expected = {
        "Adam": ["m", "v"],
        "Adagrad": ["accumulator"],
        "Adadelta": ["accum_grad", "accum_var"],
        "RMSprop": ["rms"],
        "Nadam": ["m", "v"],
    }
    for name, slots in expected.items():
        assert getattr(tfopt.optimizers, name)().get_slot_names() == slots
    both = tfopt.optimizers.RMSprop(momentum=0.5, centered=True)
    assert both.get_slot_names() == ["rms", "momentum", "mg"]
    assert tfopt.optimizers.Adam(amsgrad=True).get_slot_names() == ["m", "v", "vhat"]


# ---- variables


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", [*CLASSES, "Nadam", "AdamW", "Lion", "Adafactor"])
def test_a_variable_is_read_at_each_step(name: str, dtype: Any) -> None:
    rate = tfopt.Variable(dtype(0.5))
    followed = getattr(tfopt.optimizers, name)(rate)
    told = getattr(tfopt.optimizers, name)(float(rate.numpy()))
    one, other = np.array([1.0, -2.0]), np.array([1.0, -2.0])
    for value in (0.5, 0.1, 0.25):
        rate.assign(value)
        told.learning_rate = float(rate.numpy())
        followed.apply_gradients([(np.array([0.5, 0.25]), one)])
        told.apply_gradients([(np.array([0.5, 0.25]), other)])
        assert_same_bits(one, other, name)
    assert followed.learning_rate is rate and followed.get_config() == {
        **told.get_config(), "name": followed.name
    }  # fmt: skip


def test_a_variable_is_read_when_a_traced_step_runs() -> None:
    rate, var = tfopt.Variable(0.5), tfopt.Variable(np.zeros(2))
    optimizer = tfopt.optimizers.SGD(rate)

    @tfopt.function
    def step(grad: Any) -> None:
        optimizer.apply_gradients([(grad, var)])

    step(np.ones(2))
    rate.assign(0.25)
    step(np.ones(2))
    np.testing.assert_array_equal(var.numpy(), [-0.75, -0.75])


@pytest.mark.parametrize("recorded", [False, True])
def test_a_variable_follows_through_wrappers_and_tapes(recorded: bool) -> None:
    rate, var = tfopt.Variable(0.5), tfopt.Variable(np.zeros(1))
    inner = tfopt.optimizers.SGD(0.1)
    groups = tfopt.optimizers.ParameterGroups(inner, [("Variable", {"learning_rate": rate})])
    for value in (0.5, 0.25):
        rate.assign(value)
        if recorded:
            with tfopt.GradientTape():
                groups.apply_gradients([(np.ones(1), var)])
        else:
            groups.apply_gradients([(np.ones(1), var)])
    assert var.numpy() == -0.75


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_what_a_variable_may_not_hold(value: float) -> None:
    with pytest.raises(tfopt.InvalidArgumentError, match="learning_rate must be finite"):
        tfopt.optimizers.SGD(tfopt.Variable(value))
    with pytest.raises(tfopt.InvalidTypeError, match="learning_rate must be a number"):
        tfopt.optimizers.SGD(tfopt.Variable([0.1]))
    rate, var = tfopt.Variable(0.5), np.ones(1)
    optimizer = tfopt.optimizers.SGD(rate)
    rate.assign(value)
    with pytest.raises(tfopt.InvalidArgumentError, match="learning_rate must be finite"):
        optimizer.apply_gradients([(np.ones(1), var)])
    assert var == 1 and optimizer.iterations.numpy() == 0


def test_a_state_holds_no_variable() -> None:
    """As it holds no function: what was set apart from the optimizer is not set by its state."""
    rate, var = tfopt.Variable(0.5), np.ones(1)
    optimizer = tfopt.optimizers.SGD(rate, momentum=0.5)
    optimizer.apply_gradients([(np.ones(1), var)])
    state = optimizer.state_dict([var])
    rate.assign(0.25)
    optimizer.load_state_dict(state, [var])
    assert optimizer.learning_rate is rate and rate.numpy() == 0.25
    with pytest.raises(tfopt.InvalidArgumentError, match="is a function or variable"):
        tfopt.optimizers.SGD(0.5, momentum=0.5).load_state_dict(state, [var])


def hyperparameters() -> list[tuple[Any, str]]:
    """Return every other number that an optimizer, a wrapper or a schedule takes."""
    found = []
    for module in (tfopt.optimizers, tfopt.optimizers.schedules):
        for name in module.__all__:
            cls = getattr(module, name)
            if not isinstance(cls, type) or name == "Optimizer":
                continue
            arguments = arguments_of(cls)
            for key, parameter in arguments.items():
                number = type(parameter.default) in (int, float)
                if (number or "clip" in key) and key not in ("learning_rate", "lr"):
                    found.append((cls, key))
    return found


def test_no_other_hyperparameter_is_a_variable() -> None:
    """For its value would be read but once, and what it becomes be passed over."""
    refused = hyperparameters()
    assert len(refused) > 60
    for cls, key in refused:
        required = {
            name: USUAL[name]
            for name, parameter in arguments_of(cls).items()
            if parameter.default is parameter.empty and name in USUAL
        }
        inner = (tfopt.optimizers.SGD(),) if "optimizer" in arguments_of(cls) else ()
        with pytest.raises(tfopt.InvalidTypeError, match=f"{key} must be a number, not a variable"):
            cls(*inner, **{**required, key: tfopt.Variable(1)})
