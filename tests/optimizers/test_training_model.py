"""Steps of every optimizer against the specification of a step, `tfopt_ref.training`."""

from __future__ import annotations

import warnings
from collections import Counter

import ml_dtypes
import numpy as np
import pytest
from common.cases import LAYOUTS, TRIED
from common.compared_steps import compare
from common.optimizer_arguments import RULES, arguments_of
from common.training_plans import (
    COMPLEX,
    CONSTRAINTS,
    DTYPES,
    KINDS,
    LEFT_OUT,
    STACKS,
    Plan,
    Run,
    drawn_plan,
)
from common.wrapper_cases import WRAPPERS
from hypothesis import given
from hypothesis import strategies as st

import tfopt
import tfopt_ref.storage
from tfopt.optimizers.state.config import OPTIMIZERS
from tfopt_ref.algorithms import ALGORITHMS
from tfopt_ref.schedules import SCHEDULES
from tfopt_ref.training import WRAPPERS as SPECIFIED_WRAPPERS
from tfopt_ref.update import Rows


@pytest.fixture(autouse=True)
def few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of a run are small."""
    for storage in (tfopt.optimizers.state.slot_storage, tfopt_ref.storage):
        monkeypatch.setattr(storage, "FEWEST", 2)


@pytest.mark.counted
@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("which", RULES)
@given(seed=st.integers(0, 2**32))
def test_steps_are_those_of_the_specification(which: str, stack: str, seed: int) -> None:
    """All bits of variables, slots and counts; of rows that are behind, once they have caught up.

    Those are compared as `test_sparse_modes` does.
    """
    plan = drawn_plan(which, stack, seed)
    run, late = Run(plan), "sparse catch_up" in plan.tried
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of missing gradients, and of norms
        for number, pairs in enumerate(plan.steps, start=1):
            run.step(pairs)
            if late:
                run.optimizer.flush()
            for name, ours, theirs in run.compared():
                compare(f"{plan.config}: {name} after step {number}", ours, theirs, late)
    TRIED[which, "several", f"steps {stack}", "several"] += 1


@pytest.mark.parametrize("which", RULES)
def test_later_steps_are_those_of_the_specification(which: str) -> None:
    """Some rules begin to rectify, or to average, after several steps."""
    random = np.random.default_rng(0)
    grads = [random.standard_normal((3, 4)) for _ in range(20)]
    plan = Plan(
        tfopt.optimizers.serialize(getattr(tfopt.optimizers, which)()),
        first={"w": np.ones((3, 4))},
        layouts={"w": "contiguous"},
        steps=[[("w", grad)] for grad in grads],
        threads=1,
        flush=False,
    )
    run = Run(plan)
    for number, pairs in enumerate(plan.steps, start=1):
        run.step(pairs)
        for name, ours, theirs in run.compared():
            compare(f"{name} after step {number}", ours, theirs, late=False)


def test_a_sum_that_is_rounded_to_minus_zero_stays_so() -> None:
    """Gradients of rows are summed once, and a sum of zero and -0 would be 0."""
    inside = tfopt.optimizers.Adam(0.125, clipvalue=1e-44)
    optimizer = tfopt.optimizers.LossScaleOptimizer(inside, initial_scale=2.0**15)
    grad = np.array([[-1, -1e-3, 2], [3, -1, -0.5]], ml_dtypes.bfloat16)
    run = Run(
        Plan(
            tfopt.optimizers.serialize(optimizer),
            first={"w": np.ones((2, 3), ml_dtypes.bfloat16)},
            layouts={"w": "contiguous"},
            steps=[[("w", grad)], [("w", Rows(grad, np.array([1, 0])))]],
            threads=1,
            flush=False,
        )
    )
    for pairs in run.plan.steps:
        run.step(pairs)
        for name, ours, theirs in run.compared():
            compare(name, ours, theirs, late=False)


def test_every_class_is_specified() -> None:
    assert {*ALGORITHMS, "Adafactor"} == {*RULES}
    assert {*SPECIFIED_WRAPPERS} == {*WRAPPERS}
    classes = {cls.__name__ for cls in OPTIMIZERS.values()}
    assert classes == {*RULES, *WRAPPERS} <= {*tfopt.optimizers.__all__}
    schedules = tfopt.optimizers.schedules
    assert {*SCHEDULES} == {
        name for name in schedules.__all__ if isinstance(getattr(schedules, name), type)
    } - {"LearningRateSchedule"}


def test_the_runs_leave_nothing_out() -> None:
    """Every option of every optimizer is drawn, and every other thing that a run varies."""
    tried: Counter[str] = Counter()
    options: dict[str, set[str]] = {which: set() for which in RULES}
    for which in RULES:
        for stack in STACKS:
            for seed in range(20):
                plan = drawn_plan(which, stack, seed)
                tried.update(plan.tried)
                options[which] |= plan.tried
    for which, found in options.items():
        wanted = {*arguments_of(getattr(tfopt.optimizers, which))} - LEFT_OUT - {"groups"}
        assert found >= wanted, which
    every = {*RULES, *WRAPPERS, *SCHEDULES, *KINDS, *LAYOUTS, *map(str, DTYPES), "exclusion"}
    every |= {*map(str, COMPLEX), *CONSTRAINTS}
    every |= {f"sparse {mode}" for mode in ("tensorflow", "lazy", "catch_up")}
    every |= {f"storage {kind}" for kind in ("float32", "float16", "bfloat16", "8bit", "4bit")}
    every |= {"stochastic_rounding", "cautious_weight_decay True", "grad_scale", "use_norm"}
    every |= {"arriving"}
    every |= {"left out", "merge before", "compat tensorflow", "flushed", "gradual underflow"}
    every |= {f"{threads} threads" for threads in (1, 2, 3)}
    assert not {name: tried[name] for name in every if tried[name] < 10}
