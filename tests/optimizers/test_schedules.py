"""Learning-rate schedules."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tfopt
from tfopt_ref import schedules as specified

#: Arguments of each class, by which it can be made.
MADE: dict[str, dict[str, Any]] = {
    "ExponentialDecay": {"initial_learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5},
    "InverseTimeDecay": {"initial_learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5},
    "PiecewiseConstantDecay": {"boundaries": [5, 20], "values": [1.0, 0.5, 0.1]},
    "PolynomialDecay": {"initial_learning_rate": 0.1, "decay_steps": 10},
    "CosineDecay": {"initial_learning_rate": 0.1, "decay_steps": 10},
    "CosineDecayRestarts": {"initial_learning_rate": 0.1, "first_decay_steps": 10},
    "LinearCosineDecay": {"initial_learning_rate": 0.1, "decay_steps": 10},
    "NoisyLinearCosineDecay": {"initial_learning_rate": 0.1, "decay_steps": 10},
    "LinearWarmup": {"schedule": 0.1, "warmup_steps": 10},
    "Join": {"schedules": [0.1, 0.2], "boundaries": [10]},
}
#: TensorFlow's other arguments, in its order, and their defaults; `seed` is ours.
DEFAULTS: dict[str, dict[str, Any]] = {
    "ExponentialDecay": {"staircase": False, "name": None},
    "InverseTimeDecay": {"staircase": False, "name": None},
    "PiecewiseConstantDecay": {"name": None},
    "PolynomialDecay": {"end_learning_rate": 0.0001, "power": 1.0, "cycle": False, "name": None},
    "CosineDecay": {"alpha": 0.0, "name": None},
    "CosineDecayRestarts": {"t_mul": 2.0, "m_mul": 1.0, "alpha": 0.0, "name": None},
    "LinearCosineDecay": {"num_periods": 0.5, "alpha": 0.0, "beta": 0.001, "name": None},
    "NoisyLinearCosineDecay": {
        "initial_variance": 1.0, "variance_decay": 0.55, "num_periods": 0.5, "alpha": 0.0,
        "beta": 0.001, "name": None, "seed": 0,
    },
    "LinearWarmup": {"initial_learning_rate": 0.0, "name": None},
    "Join": {"name": None},
}  # fmt: skip
each_class = pytest.mark.parametrize("name", MADE)
GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "golden" / "data" / "schedules.json").read_text()
)


def make(name: str, /, *args: Any, **options: Any) -> Any:
    return getattr(tfopt.optimizers.schedules, name)(*args, **options)


def rates(schedule: Any, *steps: float) -> list[float]:
    return [schedule(step) for step in steps]


# ---- values


@pytest.mark.parametrize(
    "case",
    GOLDEN["schedules"],
    ids=[f"{c['class']}-{k}" for k, c in enumerate(GOLDEN["schedules"])],
)
def test_tensorflows_answers(case: dict[str, Any]) -> None:
    """Relative to the answer in float64; in float32, where it is near 0, to the first rate."""
    schedule = make(case["class"], **case["config"])
    exact = case["dtype"] == "float64"
    tolerance = {"rtol": 1e-12, "atol": 0} if exact else {"rtol": 0, "atol": 1e-6 * 0.1}
    np.testing.assert_allclose(rates(schedule, *GOLDEN["steps"]), case["answers"], **tolerance)


def test_golden_files_hold_every_schedule_of_tensorflow() -> None:
    assert {case["class"] for case in GOLDEN["schedules"]} == MADE.keys() - {"LinearWarmup", "Join"}


WORKED: list[tuple[str, tuple[Any, ...], dict[float, float]]] = [
    ("ExponentialDecay", (0.1, 10, 0.5), {-3: 0.1231144413344916, -10: 0.2, 0: 0.1, 20: 0.025}),
    ("ExponentialDecay", (0.1, 10, 0.5), {2**40: 0.0}),
    ("ExponentialDecay", (0.1, 10, 0.3), {5: 0.05477225575051661, 7: 0.04305116202499343}),
    ("ExponentialDecay", (0.1, 10, 0.5, True), {-1: 0.2, 0: 0.1, 9: 0.1, 10: 0.05, 20: 0.025}),
    ("ExponentialDecay", (0.1, 10, 0.0), {0: 0.1, 1: 0.0}),
    ("ExponentialDecay", (0.1, 2.5, 1.0), {0: 0.1, 2**40: 0.1}),
    ("InverseTimeDecay", (0.1, 10, 0.5), {5: 0.08, 10: 0.1 / 1.5, 15: 0.1 / 1.75, -10: 0.2}),
    ("InverseTimeDecay", (0.1, 10, 0.3), {7: 0.08264462809917356}),
    ("InverseTimeDecay", (0.1, 10, 0.5, True), {9: 0.1, 10: 0.1 / 1.5, 19: 0.1 / 1.5}),
    ("InverseTimeDecay", (1, 1, 1), {2**40: 1 / (1 + 2**40)}),
    ("PiecewiseConstantDecay", ([5, 20], [1, 2, 3]), {-9: 1, 0: 1, 5: 1, 5.5: 2, 6: 2, 20: 2}),
    ("PiecewiseConstantDecay", ([5, 20], [1, 2, 3]), {21: 3, 2**40: 3}),
    ("PiecewiseConstantDecay", ([2.5], [1, 2]), {2: 1, 3: 2}),
    ("PolynomialDecay", (0.1, 10, 0.01), {-2: 0.118, 0: 0.1, 5: 0.055, 10: 0.01, 2**40: 0.01}),
    ("PolynomialDecay", (0.1, 10, 0.01, 1, True), {0: 0.1, 9: 0.019, 10: 0.01, 11: 0.0505}),
    ("PolynomialDecay", (0.1, 10, 0.01, 1, True), {20: 0.01, 21: 0.037, 10 * 2**40: 0.01}),
    ("PolynomialDecay", (1, 4, 0, 0.5), {0: 1, 3: 0.5, 4: 0, 5: 0}),
    ("PolynomialDecay", (1, 4, 0, 2), {0: 1, 2: 0.25, 3: 0.0625, 4: 0}),
    ("PolynomialDecay", (0.1, 10, 0.01, 0), {0: 0.1, 5: 0.1, 10: 0.1, 11: 0.1}),
    ("PolynomialDecay", (0.01, 10, 0.1), {0: 0.01, 5: 0.055, 10: 0.1}),
    ("CosineDecay", (0.1, 10), {0: 0.1, 3: 0.07938926261462367, 5: 0.05, 10: 0, 2**40: 0}),
    ("CosineDecay", (0.1, 10, 0.1), {5: 0.055, 10: 0.01, 15: 0.01}),
    ("CosineDecay", (0.1, 10, 1), {0: 0.1, 5: 0.1, 10: 0.1}),
    ("CosineDecayRestarts", (0.1, 10), {0: 0.1, 9: 0.0024471741852423235, 10: 0.1}),
    ("CosineDecayRestarts", (0.1, 10), {20: 0.05, 29: 0.0006155829702431115, 30: 0.1, 50: 0.05}),
    ("CosineDecayRestarts", (0.1, 10, 1, 0.5, 0.1), {9: 0.012202456766718092, 10: 0.055}),
    ("CosineDecayRestarts", (0.1, 10, 1, 0.5, 0.1), {20: 0.0325}),
    ("CosineDecayRestarts", (0.1, 10, 3, 0.5, 0.1), {10: 0.055, 39: 0.010123257354213853}),
    ("CosineDecayRestarts", (0.1, 10, 3, 0.5, 0.1), {40: 0.0325, 130: 0.02125}),
    ("CosineDecayRestarts", (0.1, 8, 0.5), {0: 0.1, 4: 0.05, 8: 0.1, 10: 0.05, 12: 0.1, 14: 0.1}),
    ("CosineDecayRestarts", (0.1, 1), {2**40 - 1: 0.1, 2**40 + 2**39 - 1: 0.05}),
    ("LinearCosineDecay", (0.1, 10), {0: 0.1001, 3: 0.05567248383023656, 5: 0.0251, 10: 0.0001}),
    ("LinearCosineDecay", (0.1, 10), {2**40: 0.0001}),
    ("LinearCosineDecay", (1, 8, 1, 0.5, 0), {0: 1.5, 2: 0.625, 4: 0, 8: 0.5}),
    ("NoisyLinearCosineDecay", (0.1, 10, 0), {0: 0.1001, 5: 0.0251, 10: 0.0001, 2**40: 0.0001}),
    ("LinearWarmup", (0.5, 4), {0: 0, 1: 0.125, 3: 0.375, 4: 0.5, 2**40: 0.5}),
    ("LinearWarmup", (0.5, 4, 0.1), {-4: -0.3, 0: 0.1, 2: 0.3, 4: 0.5}),
    ("LinearWarmup", (lambda s: 1 / (2 + s), 2), {0: 0, 1: 0.25, 2: 0.5, 3: 1 / 3, 4: 0.25}),
    ("Join", ([0.3], []), {-1: 0.3, 0: 0.3, 2**40: 0.3}),
    ("Join", ([lambda s: s, lambda s: 10 + s, 0.5], [2, 5]), {1: 1, 2: 10, 4: 12, 5: 0.5, 6: 0.5}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "expected"), WORKED)
def test_worked_values(name: str, arguments: Any, expected: Any) -> None:
    got = rates(make(name, *arguments), *expected)
    assert got == pytest.approx(list(expected.values()), rel=1e-14, abs=1e-17)
    assert {type(rate) for rate in got} == {float}


@pytest.mark.parametrize("t_mul", [1.25, 1.5, 2, 3, 5])
def test_a_step_at_which_a_period_starts_belongs_to_it(t_mul: float) -> None:
    """The logarithm of 243 over that of 3 is below 5; rounded down, that is the period before."""
    assert math.floor(math.log(243) / math.log(3)) == 4
    first, step = 4**10, 0.0
    schedule = make("CosineDecayRestarts", 0.5, first, t_mul, 0.5)
    for period in range(10):
        assert schedule(step) == 0.5 * 0.5**period
        step += first * t_mul**period


def test_rounding_does_not_take_the_end_of_a_cycle_from_a_root() -> None:
    """1.4 goes into 490 350 times, and 350 * 1.4 is less than 490; TensorFlow has NaN there."""
    assert 490 / (350 * 1.4) > 1
    schedule = make("PolynomialDecay", 0.1, 1.4, 0.01, 0.5, True)
    assert schedule(490) == 0.01


def test_before_the_first_step_a_cycle_is_the_first_one() -> None:
    """TensorFlow has -infinity there."""
    schedule = make("PolynomialDecay", 0.1, 10, 0.0, cycle=True)
    assert rates(schedule, -5, 0) == pytest.approx([0.15, 0.1])


@pytest.mark.parametrize("seed", [0, 7])
def test_noise(seed: int) -> None:
    """It follows from seed and step, also after the end, with the variance of the formula."""
    options = {"num_periods": 0, "beta": 0, "initial_variance": 4, "variance_decay": 0.5}
    noisy = make("NoisyLinearCosineDecay", 1, 100, **options, seed=seed)
    plain = make("LinearCosineDecay", 1, 100, num_periods=0, beta=0)
    for step in (0, 1, 50, 99, 100, 101, 2**40):
        draw = np.random.default_rng((seed, step)).standard_normal()
        deviation = math.sqrt(4 / (1 + min(step, 100)) ** 0.5)
        assert noisy(step) == pytest.approx(plain(step) + deviation * draw, rel=1e-12)
        assert noisy(step) == noisy(float(step)) == noisy(step + 0.5 * (step > 100))
    late = [noisy(step) for step in range(100, 2100)]
    assert np.std(late) == pytest.approx(2 / 101**0.25, rel=0.05)


# ---- steps


@each_class
def test_kinds_of_steps(name: str) -> None:
    schedule = make(name, **MADE[name])
    expected = schedule(7)
    for kind in (float, np.int32, np.uint8, np.float16, np.float32, np.array):
        assert schedule(kind(7)) == expected
    assert schedule(tfopt.Variable(np.array(7))) == expected
    optimizer, var = tfopt.optimizers.SGD(), np.zeros(1)
    for _ in range(7):
        optimizer.apply_gradients([(np.ones(1), var)])
    assert schedule(optimizer.iterations) == expected


@each_class
@pytest.mark.parametrize(
    "step",
    [None, "3", True, np.bool_(1), 1j, [1], np.array([3]), object(), math.nan, math.inf, 10**400],
)
def test_refused_steps(name: str, step: Any) -> None:
    schedule = make(name, **MADE[name])
    error = tfopt.InvalidArgumentError if type(step) in (int, float) else tfopt.InvalidTypeError
    with pytest.raises(error, match="step must be"):
        schedule(step)


@pytest.mark.parametrize(
    ("name", "arguments", "step"),
    [
        ("ExponentialDecay", (0.1, 10, 2.0), 2**40),  # too large
        ("ExponentialDecay", (0.1, 10, 0.0), -1),  # 0 to a negative power
        ("InverseTimeDecay", (0.1, 10, 0.5), -20),  # divided by 0
        ("CosineDecayRestarts", (0.1, 8, 0.5), 16),  # where infinitely many periods end
        ("CosineDecayRestarts", (0.1, 8, 0.5), 17),
        ("CosineDecayRestarts", (0.1, 10), -10),  # where infinitely many would have begun
        ("NoisyLinearCosineDecay", (0.1, 10), -2),  # a negative variance
    ],
)
def test_no_learning_rate(name: str, arguments: Any, step: int) -> None:
    """TensorFlow has NaN or infinity."""
    with pytest.raises(tfopt.InvalidArgumentError, match=r"Decay.* has no finite learning rate"):
        make(name, *arguments)(step)


# ---- arguments


@each_class
def test_configuration(name: str) -> None:
    schedules = tfopt.optimizers.schedules
    schedule = make(name, **MADE[name])
    config = schedule.get_config()
    assert config == {**MADE[name], **DEFAULTS[name]}
    assert list(config) == [*MADE[name], *DEFAULTS[name]]
    positional = [value for key, value in config.items() if key != "seed"]
    for again in (
        type(schedule).from_config(config),
        make(name, *positional),
        schedules.deserialize(json.loads(json.dumps(schedules.serialize(schedule)))),
    ):
        assert type(again) is type(schedule)
        assert again.get_config() == config
        assert rates(again, 0, 7, 12) == rates(schedule, 0, 7, 12)
        assert repr(again) == repr(schedule)
        assert eval(repr(schedule), vars(schedules)).get_config() == config
    assert repr(schedule).startswith(f"{name}(") and repr(schedule).endswith(")")


def test_numbers_of_numpy_become_pythons() -> None:
    schedule = make("ExponentialDecay", np.float32(0.1), np.int64(10), np.array(0.5), np.True_)
    assert json.dumps(list(schedule.get_config().values())) == (
        "[0.10000000149011612, 10, 0.5, true, null]"
    )
    values = make("PiecewiseConstantDecay", np.arange(1, 3), np.ones(3, np.float32))
    assert json.dumps(values.get_config()["boundaries"]) == "[1, 2]"
    assert json.dumps(values.get_config()["values"]) == "[1.0, 1.0, 1.0]"


def numbers(name: str) -> dict[str, float]:
    """Return the arguments of a class that are numbers."""
    both = {**MADE[name], **DEFAULTS[name]}
    return {k: v for k, v in both.items() if type(v) in (int, float) and k != "schedule"}


NUMBERS = [(name, key) for name in MADE for key in numbers(name)]


@pytest.mark.parametrize(("name", "key"), NUMBERS)
def test_refused_numbers(name: str, key: str) -> None:
    """At construction and when set."""
    schedule = make(name, **MADE[name])
    before = schedule.get_config()
    above = key in ("decay_steps", "first_decay_steps", "warmup_steps", "t_mul")
    refused: list[tuple[Any, str]] = [("1", "Type"), (None, "Type"), ([1.0], "Type"), (1j, "Type")]
    refused += [(-1, "Argument"), *([(0, "Argument")] if above else [])]
    if key == "seed":
        refused += [(0.5, "Type")]
    else:
        refused += [(math.nan, "Argument"), (-math.inf, "Argument"), (True, "Type")]
    for value, kind in refused:
        error = getattr(tfopt, f"Invalid{kind}Error")
        with pytest.raises(error, match=f"^{key} must be "):
            make(name, **{**MADE[name], key: value})
        with pytest.raises(error, match=f"^{key} must be "):
            setattr(schedule, key, value)
    assert schedule.get_config() == before
    setattr(schedule, key, 3)
    assert schedule.get_config() == {**before, key: 3}


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("PiecewiseConstantDecay", ([1], [0.1]), "boundaries should be 1 less than the .* values"),
        ("PiecewiseConstantDecay", ([], []), "boundaries should be 1 less than the .* values"),
        ("PiecewiseConstantDecay", ([2, 1], [1, 2, 3]), r"must increase, not \[2, 1\]"),
        ("PiecewiseConstantDecay", ([2, 2], [1, 2, 3]), r"must increase, not \[2, 2\]"),
        ("PiecewiseConstantDecay", ([math.nan], [1, 2]), "each boundary must be finite, not nan"),
        ("PiecewiseConstantDecay", (["2"], [1, 2]), "each boundary must be a number, not '2'"),
        ("PiecewiseConstantDecay", ([2], [1, -2]), "each value must be finite and at least 0"),
        ("PiecewiseConstantDecay", ([2], [1, None]), "each value must be a number, not None"),
        ("Join", ([0.1], [1]), "boundaries should be 1 less than the length of schedules"),
        ("Join", ([], []), "boundaries should be 1 less than the length of schedules"),
        ("Join", ([1, 2, 3], [2, 2]), "boundaries must increase"),
        ("Join", ([1, -2], [2]), "each schedule must be finite and at least 0, not -2"),
        ("Join", ([1, "a"], [2]), "each schedule must be a number, not 'a'"),
        ("LinearWarmup", (-1, 2), "schedule must be finite and at least 0, not -1"),
        ("LinearWarmup", (None, 2), "schedule must be a number, not None"),
    ],
)
def test_refused_lists(name: str, arguments: Any, message: str) -> None:
    with pytest.raises(tfopt.InvalidArgumentError, match=message):
        make(name, *arguments)


def test_piecewise_without_boundaries_is_constant() -> None:
    """TensorFlow has an IndexError when it is called."""
    assert rates(make("PiecewiseConstantDecay", [], [0.5]), -1, 0, 9) == [0.5] * 3


def test_fractional_boundaries_are_not_truncated() -> None:
    """TensorFlow gives them the step's dtype, and -2 the first value."""
    assert make("PiecewiseConstantDecay", [-2.5], [1, 2])(-2) == 2


def test_lists_are_copied() -> None:
    boundaries, values, parts = [5], [1.0, 2.0], [0.1, 0.2]
    schedule = make("PiecewiseConstantDecay", boundaries, values)
    joined = make("Join", parts, boundaries)
    for changed in (boundaries, values, parts, *joined.get_config().values()):
        if changed is not None:
            changed[0] = -7
    assert rates(schedule, 0, 6) == [1, 2]
    assert rates(joined, 0, 6) == [0.1, 0.2]


# ---- schedules of schedules, and of others


def test_a_warm_up_then_a_cosine_then_a_constant() -> None:
    warm = make("LinearWarmup", make("CosineDecay", 0.5, 8), 4)
    schedule = make("Join", [warm, make("ExponentialDecay", 0.25, 1, 0.5), 0.01], [6, 8])
    cosine = [0.5, 0.25 * (1 + math.cos(math.pi / 8))]
    expected = [0, 0.125, 0.25, 0.375, *cosine, 0.25, 0.125, 0.01, 0.01]
    assert rates(schedule, *range(10)) == pytest.approx(expected, rel=1e-15)
    again = type(schedule).from_config(json.loads(json.dumps(schedule.get_config())))
    assert rates(again, *range(10)) == rates(schedule, *range(10))


def test_parts_are_called_with_whole_steps() -> None:
    seen: list[Any] = []
    table = [0.5, 0.25, 0.125]

    def look_up(step: int) -> float:
        seen.append(step)
        return table[step]

    schedule = make("Join", [0.1, make("LinearWarmup", look_up, 2)], [10])
    assert rates(schedule, 9, 10, np.int64(11), 12, np.array(14)) == [0.1, 0, 0.25, 0.5, 0.125]
    assert seen == [0, 0, 0, 2]


def test_own_schedules() -> None:
    schedules = tfopt.optimizers.schedules

    class Mine(schedules.LearningRateSchedule):
        def __init__(self, scale: float) -> None:
            self.scale = scale

        def __call__(self, step: Any) -> float:
            return self.scale / (1 + int(step))

        def get_config(self) -> dict[str, Any]:
            return {"scale": self.scale}

    def halves(step: Any) -> float:
        return 0.5 ** int(step)

    own = {"Mine": Mine, "halves": halves}
    joined = schedules.Join([Mine(3), schedules.LinearWarmup(halves, 2)], [4])
    saved = json.loads(json.dumps(schedules.serialize(joined)))
    assert saved["config"]["schedules"][0] == {"class_name": "Mine", "config": {"scale": 3}}
    again = schedules.deserialize(saved, own)
    assert rates(again, *range(9)) == rates(joined, *range(9))
    assert schedules.deserialize(schedules.serialize(Mine(2)), custom_objects=own)(0) == 2
    assert schedules.deserialize(schedules.serialize(halves), own) is halves
    assert schedules.deserialize(halves) is halves
    assert schedules.serialize(None) is schedules.deserialize(None) is None
    with pytest.raises(tfopt.InvalidArgumentError, match="Unknown decay: Mine"):
        schedules.deserialize(saved)
    with pytest.raises(tfopt.InvalidArgumentError, match="Unknown decay: halves"):
        schedules.Join.from_config(schedules.Join([halves], []).get_config())


def test_the_base_class() -> None:
    base = tfopt.optimizers.schedules.LearningRateSchedule()
    with pytest.raises(NotImplementedError, match="must override __call__"):
        base(0)
    with pytest.raises(NotImplementedError, match="must override get_config"):
        base.get_config()


def test_a_subclass_takes_the_keywords_of_its_other_bases() -> None:
    """And no others."""

    class Other:
        def __init_subclass__(cls, told: str = "", **options: Any) -> None:
            super().__init_subclass__(**options)
            cls.told = told

    base: Any = tfopt.optimizers.schedules.LearningRateSchedule

    class Both(base, Other, told="yes"):
        pass

    assert Both.told == "yes"
    with pytest.raises(TypeError, match="takes no keyword arguments"):

        class Neither(base, foo=1):
            pass


def test_refused_configurations() -> None:
    schedules = tfopt.optimizers.schedules
    for config, message in [
        ({"class_name": "Foo", "config": {}}, "Unknown decay: Foo. Please ensure this object is"),
        ("foo", "Unknown decay: foo"),
        ({"class_name": "CosineDecay"}, "Improper config format"),
        (3, "Could not interpret serialized decay: 3"),
    ]:
        with pytest.raises(tfopt.InvalidArgumentError, match=message):
            schedules.deserialize(config)
    with pytest.raises(tfopt.InvalidArgumentError, match="Cannot serialize 3"):
        schedules.serialize(3)
    with pytest.raises(TypeError, match="decay_steps"):
        schedules.deserialize({"class_name": "CosineDecay", "config": {"alpha": 0}})


# ---- both implementations

SCALARS = st.sampled_from([0, 1, 0.1, 0.5, 2, 1e-3]) | st.floats(0, 5)
LENGTHS = st.integers(1, 1000) | st.floats(0.01, 1e6)
STEPS = st.integers(-5, 50) | st.integers(0, 2**40) | st.floats(-100, 1e6)


def arguments(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Draw the arguments of a class, but for lists and schedules."""
    kinds: dict[str, st.SearchStrategy[Any]] = {}
    for key in numbers(name):
        kinds[key] = LENGTHS if key.endswith("steps") else SCALARS
    kinds |= dict.fromkeys({"staircase", "cycle"} & DEFAULTS[name].keys(), st.booleans())
    if "seed" in kinds:
        kinds["seed"] = st.integers(0, 2**70)
    if "t_mul" in kinds:
        kinds["t_mul"] = st.sampled_from([1, 2, 3, 1.5, 0.5]) | st.floats(0.1, 10)
    return st.fixed_dictionaries(kinds)


def both(name: str, given: dict[str, Any], steps: list[float]) -> list[list[Any]]:
    """Return the rates at the steps, and those that are specified, or None if it is not finite."""
    schedule, config = make(name, **given), {"class_name": name, "config": given}
    found: list[list[Any]] = [[], []]
    for step in steps:
        try:
            found[0].append(schedule(step).hex())
        except tfopt.InvalidArgumentError as error:
            assert "has no finite learning rate at step" in str(error)
            found[0].append(None)
        rate = specified.rate(config, step)
        found[1].append(rate.hex() if math.isfinite(rate) else None)
    return found


@pytest.mark.parametrize("name", [n for n in MADE if "initial_learning_rate" in MADE[n]])
@given(data=st.data())
def test_rates_are_the_specified_ones(name: str, data: st.DataObject) -> None:
    ours, theirs = both(name, data.draw(arguments(name)), data.draw(st.lists(STEPS, min_size=20)))
    assert ours == theirs


@given(data=st.data())
def test_rates_from_lists_are_the_specified_ones(data: st.DataObject) -> None:
    boundaries = sorted(data.draw(st.sets(st.integers(-5, 60) | st.floats(-5, 60), max_size=6)))
    values = data.draw(st.lists(SCALARS, min_size=7, max_size=7))[: len(boundaries) + 1]
    steps = [*data.draw(st.lists(STEPS)), *boundaries]
    ours, theirs = both(
        "PiecewiseConstantDecay", {"boundaries": boundaries, "values": values}, steps
    )
    assert ours == theirs
    ours, theirs = both("Join", {"schedules": values, "boundaries": boundaries}, steps)
    assert ours == theirs


@given(first=SCALARS, scale=SCALARS, steps=LENGTHS, step=STEPS)
@example(first=0.1, scale=0.3, steps=3, step=1)
def test_a_warm_up_is_the_specified_one(
    first: float, scale: float, steps: float, step: float
) -> None:
    given = {"schedule": lambda s: scale / (1 + abs(s)), "warmup_steps": steps}
    ours, theirs = both("LinearWarmup", {**given, "initial_learning_rate": first}, [step, steps])
    assert ours == theirs


def test_a_cosine_after_a_warm_up() -> None:
    own = tfopt.optimizers.schedules
    schedule = own.CosineDecay(0.25, 8, 0.5, warmup_target=1.0, warmup_steps=3)
    assert [schedule(s) for s in (0, 1, 2, 3, 7, 11, 50)] == [0.25, 0.5, 0.75, 1, 0.75, 0.5, 0.5]
    again = own.deserialize(own.serialize(schedule))
    assert again.get_config() == schedule.get_config() and again(5) == schedule(5)
    assert "warmup_steps" not in own.CosineDecay(0.25, 8).get_config()
    for arguments in ({"warmup_target": -1.0}, {"warmup_steps": 3}, {"warmup_target": "x"}):
        with pytest.raises(tfopt.InvalidArgumentError, match="warmup"):
            own.CosineDecay(0.25, 8, **arguments)
