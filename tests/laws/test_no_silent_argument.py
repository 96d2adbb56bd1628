"""Every argument of every optimizer, wrapper and schedule has an effect on results."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from common.optimizer_arguments import RULES, USUAL, arguments_of, other_value
from common.wrapper_cases import WRAPPERS

import tfopt
from tfopt import optimizers
from tfopt.optimizers import schedules

#: Arguments without another answer, and why.
EXCEPTIONS = {
    "name": "names the state",
    "use_locking": "is seen by other threads alone; tests/platform/test_locks.py",
}
STEPS = 4


def answer(opt: Any, rounds: bool = False) -> bytes:
    """Return the bits of variables and weights after a few steps that make the most of options."""
    random = np.random.default_rng(5)
    dtype = np.float32 if getattr(opt, "storage", None) else np.float64
    if rounds:  # to bfloat16
        dtype = ml_dtypes.bfloat16
    dense, table = np.ones((3, 4), dtype), np.ones((6, 2), dtype)
    scaled = tfopt.Variable(np.linspace(-2, 2, 5).astype(dtype if rounds else np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(STEPS):
            # a row twice: what is summed before or after the clipping differs
            values, grad = (3 * random.normal(size=(3, n)).astype(dtype) for n in (2, 4))
            rows = tfopt.IndexedSlices(values, np.array([k, 5, k]))
            opt.apply_gradients([(grad, dense), (rows, table)])
            opt.minimize(lambda: np.sum(scaled**4), [scaled])
        opt.flush()
    arrays = [dense, table, scaled.numpy(), *opt.get_weights()]
    return b"".join(array.tobytes() for array in arrays)


def base_of(name: str, argument: str) -> dict[str, Any]:
    """Return arguments with which another one has something to do."""
    base: dict[str, Any] = {"learning_rate": 0.01}
    if argument == "merge":
        base["global_clipnorm" if name == "SGD" else "clipnorm"] = 0.5
    if argument in ("nesterov", "sparse", "storage") and "momentum" in arguments_of(
        getattr(optimizers, name)
    ):
        base["momentum"] = 0.5
    if (name, argument) == ("Adagrad", "sparse"):
        base["weight_decay"] = 0.5  # without which rows stay that have no gradient
    if argument == "compat":
        base |= {"epsilon": 0.3} if "epsilon" in arguments_of(getattr(optimizers, name)) else {}
    if argument == "cautious_weight_decay" and not name.startswith(("Ftrl", "ScheduleFree")):
        base["weight_decay"] = 0.5
    if argument == "relative_step":
        base["learning_rate"] = 2.0
    return base


def of_rules() -> Iterator[tuple[str, str]]:
    for name in RULES:
        for argument in arguments_of(getattr(optimizers, name)):
            if argument not in EXCEPTIONS:
                yield name, argument


@pytest.mark.filterwarnings("ignore:The `lr` argument")
@pytest.mark.parametrize(("name", "argument"), list(of_rules()))
def test_an_optimizers_argument_counts(name: str, argument: str) -> None:
    cls = getattr(optimizers, name)
    base = base_of(name, argument)
    default = base.get(argument, arguments_of(cls)[argument].default)
    others = ("lazy", "catch_up") if argument == "sparse" else (other_value(argument, default),)
    answers, rounds = set(), argument == "stochastic_rounding"
    for value in others:
        try:
            answers.add(answer(cls(**{**base, argument: value}), rounds))
        except tfopt.InvalidArgumentError:
            assert not rounds or not cls._by_elements
            return  # refused, and so not silent
    assert answers - {answer(cls(**base), rounds)}


@pytest.mark.parametrize("name", RULES)
def test_the_same_arguments_give_the_same_answer(name: str) -> None:
    """Without which the test above could not fail."""
    cls = getattr(optimizers, name)
    assert answer(cls()) == answer(cls())


def summed_answer(opt: Any) -> bytes:
    random, w = np.random.default_rng(5), np.ones((3, 4), np.float32)
    for _ in range(6):
        opt.apply_gradients([(random.normal(size=(3, 4)).astype(np.float32), w)])
    return b"".join(array.tobytes() for array in (w, *opt.get_weights()))


@pytest.mark.parametrize("which", WRAPPERS)
def test_a_wrappers_argument_counts(which: str) -> None:
    cls = getattr(optimizers, which)
    for argument in inspect.signature(cls).parameters:
        if argument in EXCEPTIONS:
            continue
        inner: Callable[[], Any] = lambda: optimizers.SGD(0.5, momentum=0.5)  # noqa: E731
        changed = WRAPPERS[which].changed
        given = {key: first for key, (first, _) in changed.items()}
        if argument == "optimizer":
            one, two = cls(inner(), **given), cls(optimizers.Adam(0.5), **given)
        else:
            one, two = (cls(inner(), **{**given, argument: value}) for value in changed[argument])
        assert summed_answer(one) != summed_answer(two), argument


# ---- schedules

SCHEDULES = [
    name
    for name in schedules.__all__
    if isinstance(getattr(schedules, name), type) and name != "LearningRateSchedule"
]
#: What to give to a schedule's argument in place of what it usually gets.
CHANGED: dict[str, Any] = {
    "schedules": [0.5, 0.25, 0.0625],
    "values": [0.5, 0.25, 0.0625],
    "boundaries": [1.0, 3.0],
    "staircase": True,
    "cycle": True,
    "seed": 11,
    "warmup_target": 1.0,
}


def rates(schedule: Any) -> list[float]:
    return [float(schedule(step)) for step in range(12)]


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedules_argument_counts(name: str) -> None:
    cls = getattr(schedules, name)
    parameters = inspect.signature(cls).parameters
    base = {key: value for key, value in USUAL.items() if key in parameters}
    for argument, parameter in parameters.items():
        if argument in EXCEPTIONS:
            continue
        own = dict(base)
        if name == "CosineDecay":
            own["warmup_target"] = 0.75
        default = own.get(argument, parameter.default)
        other = CHANGED[argument] if argument in CHANGED else other_value(argument, default)
        assert rates(cls(**own)) != rates(cls(**{**own, argument: other})), argument
