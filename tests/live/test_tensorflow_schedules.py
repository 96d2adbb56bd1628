"""Both packages' schedules against TensorFlow's: random arguments and steps.

In float64 where TensorFlow can, that is but for the four cosines: they multiply by pi as a float32
constant, which TensorFlow refuses to mix with float64. They are compared as they are, in float32,
and once more in float64 with that constant in float64; two of them also with those of Keras 3.

Skipped where TensorFlow is not installed, unless TFOPT_REQUIRE_TENSORFLOW is set.
"""

from __future__ import annotations

import math
import zlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from golden.with_tensorflow import learning_rates, required_tensorflow, schedules

import tfopt
from tfopt_ref import schedules as specified

tf = required_tensorflow()

CONFIGURATIONS = 10  # of each schedule

#: Values of an argument, of which each configuration takes one.
ARGUMENTS: dict[str, dict[str, tuple[Any, ...]]] = {
    "ExponentialDecay": {
        "decay_steps": (10, 128, 7.5), "decay_rate": (0.3, 0.96, 1.0), "staircase": (False, True),
    },
    "InverseTimeDecay": {
        "decay_steps": (10, 128, 7.5), "decay_rate": (0.0, 0.3, 2.0), "staircase": (False, True),
    },
    "PolynomialDecay": {
        "decay_steps": (10, 128, 600), "end_learning_rate": (0.0, 0.01, 0.7),
        "power": (1.0, 0.5, 2.5, 0.0), "cycle": (False, True),
    },
    "CosineDecay": {"decay_steps": (16, 128, 600), "alpha": (0.0, 0.1, 1.0)},
    "CosineDecayRestarts": {
        "first_decay_steps": (16, 128), "t_mul": (1.0, 2.0, 3.0, 1.5), "m_mul": (1.0, 0.5, 0.9),
        "alpha": (0.0, 0.1),
    },
    "LinearCosineDecay": {
        "decay_steps": (16, 128, 600), "num_periods": (0.5, 2.0), "alpha": (0.0, 0.1),
        "beta": (0.001, 0.2),
    },
    "NoisyLinearCosineDecay": {
        "decay_steps": (16, 128, 600), "initial_variance": (0.0, 1.0, 0.1),
        "variance_decay": (0.55, 2.0), "num_periods": (0.5, 2.0), "alpha": (0.0, 0.1),
        "beta": (0.001, 0.2), "seed": (0, 3),
    },
}  # fmt: skip
COSINES = [name for name in ARGUMENTS if "Cosine" in name]
each_configuration = pytest.mark.parametrize("number", range(CONFIGURATIONS))


def draw(name: str, number: int) -> tuple[Any, list[int]]:
    """Return a schedule and some steps, none of which is the border of two periods."""
    random = np.random.default_rng(zlib.crc32(f"{name} {number}".encode()))
    config = {key: values[random.integers(len(values))] for key, values in ARGUMENTS[name].items()}
    schedule = getattr(tfopt.optimizers.schedules, name)(random.uniform(0.01, 1), **config)
    steps = [0, *random.integers(1, 1000, 20).tolist()]
    if name == "CosineDecayRestarts":
        steps = [step for step in steps if not starts_a_period(schedule, step)]
    return schedule, steps


def starts_a_period(schedule: Any, step: int) -> bool:
    start, length = 0.0, schedule.first_decay_steps
    while start < step:
        start, length = start + length, length * schedule.t_mul
    return 0 < start == step


def rates(schedule: Any, steps: list[int]) -> list[float]:
    """Return a schedule's rates, which are the specified ones to the bit."""
    found = [schedule(step) for step in steps]
    config = tfopt.optimizers.schedules.serialize(schedule)
    assert found == [specified.rate(config, step) for step in steps]
    return found


@pytest.fixture
def pi_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    constants = SimpleNamespace(constant=lambda value: tf.constant(value, tf.float64))
    monkeypatch.setattr(schedules(), "constant_op", constants)


@pytest.fixture
def same_noise(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Let TensorFlow take its normal numbers from a list."""
    numbers: list[Any] = []

    def random_normal(shape: Any, stddev: Any) -> Any:
        return stddev * tf.constant(numbers.pop(0), stddev.dtype)

    monkeypatch.setattr(schedules(), "random_ops", SimpleNamespace(random_normal=random_normal))
    return numbers


@each_configuration
@pytest.mark.parametrize("name", [name for name in ARGUMENTS if name not in COSINES])
def test_random_configuration(name: str, number: int) -> None:
    schedule, steps = draw(name, number)
    if not getattr(schedule, "cycle", False):
        steps += [-1, -7]
    theirs = learning_rates(name, schedule.get_config(), steps, "float64")
    np.testing.assert_allclose(rates(schedule, steps), theirs, rtol=1e-12, err_msg=repr(schedule))


@each_configuration
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", COSINES)
def test_cosine(name: str, dtype: str, number: int, same_noise: list[Any], request: Any) -> None:
    """Relative to the first rate, since a cosine ends where digits cancel."""
    if dtype == "float64":
        request.getfixturevalue("pi_in_float64")
    schedule, steps = draw(name, number)
    if name == "NoisyLinearCosineDecay":
        keys = [(schedule.seed, step) for step in steps]
        same_noise += [np.random.default_rng(key).standard_normal() for key in keys]
    theirs = learning_rates(name, schedule.get_config(), steps, dtype)
    scale = {"float32": 1e-6, "float64": 1e-12}[dtype] * schedule.initial_learning_rate
    ours = rates(schedule, steps)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=scale, err_msg=repr(schedule))


@pytest.mark.parametrize("name", COSINES)
def test_tensorflows_cosines_refuse_float64(name: str) -> None:
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match="float"):
        learning_rates(name, {"initial_learning_rate": 0.1, **first_length(name)}, [1], "float64")


def first_length(name: str) -> dict[str, int]:
    return {"first_decay_steps" if name == "CosineDecayRestarts" else "decay_steps": 10}


@each_configuration
@pytest.mark.parametrize("name", ["CosineDecay", "CosineDecayRestarts"])
def test_keras_3_in_float64(name: str, number: int) -> None:
    schedule, steps = draw(name, number)
    config = {k: np.float64(v) for k, v in schedule.get_config().items() if k != "name"}
    theirs = getattr(tf.keras.optimizers.schedules, name)(**config)
    answers = [float(theirs(np.float64(step))) for step in steps]
    scale = 1e-12 * schedule.initial_learning_rate
    np.testing.assert_allclose(rates(schedule, steps), answers, rtol=0, atol=scale)


def test_warm_up_of_keras_3() -> None:
    ours = tfopt.optimizers.schedules
    cosine = ours.CosineDecay(0.5, 100, alpha=0.1)
    schedule = ours.LinearWarmup(cosine, warmup_steps=20, initial_learning_rate=0.01)
    theirs = tf.keras.optimizers.schedules.CosineDecay(
        np.float64(0.01), 100, np.float64(0.1), warmup_target=np.float64(0.5), warmup_steps=20
    )
    steps = [0, 1, 7, 19, 20, 21, 60, 119, 120, 121, 1000]
    answers = [float(theirs(np.float64(step))) for step in steps]
    np.testing.assert_allclose(rates(schedule, steps), answers, rtol=1e-12)
    alike = ours.CosineDecay(0.01, 100, 0.1, warmup_target=0.5, warmup_steps=20)
    np.testing.assert_allclose(rates(alike, steps), answers, rtol=1e-12)


@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_piecewise(kind: type) -> None:
    values = [0.1, 0.7, 0.3, 0.2]
    ours = tfopt.optimizers.schedules.PiecewiseConstantDecay([2, 5, 9], values)
    theirs = schedules().PiecewiseConstantDecay([2, 5, 9], [np.float64(v) for v in values])
    for step in range(-2, 12):
        assert ours(step) == float(theirs(kind(step)))


def test_where_tensorflow_has_no_number() -> None:
    """What is refused here; in float32 for the cosines."""
    ours = tfopt.optimizers.schedules
    for schedule, step, dtype in [
        (ours.ExponentialDecay(0.1, 10, 2.0), 2**40, "float64"),
        (ours.ExponentialDecay(0.1, 10, 0.0), -1, "float64"),
        (ours.InverseTimeDecay(0.1, 10, 0.5), -20, "float64"),
        (ours.CosineDecayRestarts(0.1, 8, 0.5), 17, "float32"),
        (ours.NoisyLinearCosineDecay(0.1, 10), -2, "float32"),
    ]:
        name = type(schedule).__name__
        (theirs,) = learning_rates(name, schedule.get_config(), [step], dtype)
        assert not math.isfinite(theirs)
        with pytest.raises(tfopt.InvalidArgumentError, match="no finite learning rate"):
            schedule(step)


def test_cycles_that_tensorflow_ends_otherwise() -> None:
    config = {
        "initial_learning_rate": 0.1, "decay_steps": 1.4, "end_learning_rate": 0.01,
        "power": 0.5, "cycle": True, "name": None,
    }  # fmt: skip
    rounded, before = learning_rates("PolynomialDecay", config, [490, -1], "float64")
    assert math.isnan(rounded) and math.isinf(before)
    schedule = tfopt.optimizers.schedules.PolynomialDecay(**config)
    assert rates(schedule, [490]) == [0.01]
    assert 0.1 < schedule(-1) < math.inf


def test_a_period_that_tensorflow_starts_late(pi_in_float64: None) -> None:
    """By the logarithm of 243 over that of 3, which rounded is below 5; in float64 alone."""
    schedule = tfopt.optimizers.schedules.CosineDecayRestarts(0.5, 1, t_mul=3.0)
    theirs = learning_rates("CosineDecayRestarts", schedule.get_config(), [121], "float64")
    assert theirs == pytest.approx([0], abs=1e-12)
    assert schedule(121) == 0.5


def test_serialized() -> None:
    """What one writes the other reads, but for the seed."""
    ours, theirs = tfopt.optimizers.schedules, schedules()
    for name in ARGUMENTS:
        arguments = {"initial_learning_rate": 0.1, **first_length(name)}
        if name in ("ExponentialDecay", "InverseTimeDecay"):
            arguments["decay_rate"] = 0.5
        saved = theirs.serialize(getattr(theirs, name)(**arguments))
        mine = ours.serialize(ours.deserialize(saved))
        mine["config"].pop("seed", None)
        assert mine == saved == theirs.serialize(theirs.deserialize(mine))


def test_refused_like_tensorflow() -> None:
    for module in (tfopt.optimizers.schedules, schedules()):
        base = module.LearningRateSchedule()
        with pytest.raises(
            NotImplementedError, match="Learning rate schedule must override __call"
        ):
            base(0)
        with pytest.raises(NotImplementedError, match="Learning rate schedule must override get_c"):
            base.get_config()
        with pytest.raises(ValueError, match="The length of boundaries should be 1 less than the"):
            module.PiecewiseConstantDecay([1], [0.1])
        for config, message in [
            ({"class_name": "Foo", "config": {}}, "Unknown decay: Foo. Please ensure this object"),
            ("foo", "Unknown decay: foo"),
            ({"class_name": "CosineDecay"}, "Improper config format"),
            (3, "Could not interpret serialized decay: 3"),
        ]:
            with pytest.raises(ValueError, match=message):
                module.deserialize(config)
        with pytest.raises(ValueError, match="Cannot serialize"):
            module.serialize(3)
