"""A step is atomic under exceptions."""

from __future__ import annotations

import bisect
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common.interrupted import MAKERS, Late, interrupting, observed, raising_at
from common.step_cases import Written, everything, frozen, gradients, params

from tfopt import IndexedSlices, InvalidArgumentError, Variable
from tfopt.optimizers import (
    SGD,
    Adam,
    GradientAccumulation,
    Optimizer,
    ParameterGroups,
    WeightAverage,
)


def events_of(step: Callable[[], Any]) -> int:
    """Take a step; return how many calls and returns there are in it."""
    n = 0

    def profile(frame: Any, kind: str, argument: Any) -> None:
        nonlocal n
        n += frame.f_code is not events_of.__code__

    sys.setprofile(profile)
    try:
        step()
    finally:
        sys.setprofile(None)
    return n


@interrupting
@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("which", MAKERS)
def test_an_interrupted_step_is_whole(which: str, constrained: bool, steps: int) -> None:
    """Ctrl-C comes between any two things that Python does, in a first step or in a later one.

    Of these, most are tried where the step is taken: from one event on, it is.
    """
    late = which.startswith("catching up")
    optimizer, variables = MAKERS[which](), {}

    def begin() -> None:
        nonlocal optimizer, variables
        optimizer, variables = MAKERS[which](), params(constrained)
        if late:  # of 16 bits no row catches up
            del variables["half"]
        for seed in range(steps):
            optimizer.step(variables, gradients(variables, seed))

    def step() -> None:
        optimizer.step(variables, gradients(variables, steps))

    def is_taken(event: int) -> bool:
        raising_at(event, step)
        found = everything(optimizer, variables, late)
        assert found in (before, after), f"half a step, interrupted at event {event}"
        if found == after:  # what was not taken has been taken again until here
            begin()
        return found == after

    begin()
    before = everything(optimizer, variables, late)
    n = events_of(step)
    after = everything(optimizer, variables, late)
    assert before != after
    begin()
    first = bisect.bisect_left(range(1, n), True, key=is_taken) + 1
    late_ones = range(first, n, max(1, (n - first) // 6))
    for event in (*range(1, first, first // 6), *range(first - 10, first + 6), *late_ones):
        is_taken(event)


@pytest.mark.parametrize("which", MAKERS)
def test_a_refused_first_step_leaves_nothing(which: str) -> None:
    optimizer, variables = MAKERS[which](), params()
    if which.startswith("catching up"):
        del variables["half"]
    before = everything(optimizer, variables)
    held = []
    for name in [*variables] * 2:
        grads = gradients(variables, 1)
        grads[name] = np.ones((7, 7))
        with pytest.raises(InvalidArgumentError):
            optimizer.step(variables, grads)
        assert everything(optimizer, variables) == before
        gc.collect()
        held.append([*map(sys.getrefcount, variables.values())])
    assert held[len(variables) - 1] == held[-1]  # no more with each refusal
    with pytest.raises(InvalidArgumentError, match="structure"):
        optimizer.step(variables, {})
    assert everything(optimizer, variables) == before


@interrupting
@pytest.mark.parametrize("which", MAKERS)
def test_a_refused_step_of_other_arrays_moves_no_state(which: str) -> None:
    optimizer, variables = MAKERS[which](), params()
    variables = {name: variables[name] for name in ("dense", "table")}
    grads = {"dense": np.ones(5), "table": np.ones((6, 2), np.float32)}
    optimizer.step(variables, grads)
    before = everything(optimizer, variables)
    others = {name: array.copy() for name, array in variables.items()}
    with pytest.raises(InvalidArgumentError):
        optimizer.step(others, {**grads, "dense": np.ones((7, 7))})
    assert everything(optimizer, variables) == before
    first, event = frozen([optimizer.get_weights(), others]), 1
    raising_at(event, lambda: optimizer.step(others, grads))
    while frozen([optimizer.get_weights(), others]) == first:
        assert everything(optimizer, variables) == before
        event += 7
        raising_at(event, lambda: optimizer.step(others, grads))
    other, same = MAKERS[which](), params()
    same = {name: same[name] for name in variables}
    for _ in range(2):
        other.step(same, grads)
    assert everything(optimizer, others) == everything(other, same)


class Refused(Exception):
    pass


def refuse(*_: Any) -> Any:
    raise Refused


def test_a_constraint_that_raises_leaves_all_as_it_was() -> None:
    free, first = Variable(np.ones(2)), Variable(np.ones(2), constraint=lambda w: w * 2)
    last, table = Variable(np.ones(2), constraint=refuse), np.ones((3, 2))
    rows = IndexedSlices(np.ones((1, 2)), np.array([1]))
    groups = ParameterGroups(SGD(0.5), [([first], SGD(0.5, momentum=0.5))])
    for opt in (SGD(0.5, momentum=0.5), Written(), GradientAccumulation(SGD(0.5), 1), groups):
        pairs = [(np.ones(2), v) for v in (free, first, last)] + [(rows, table)]
        before = [everything(opt, [free, first, last, table]), opt.weights]
        with pytest.raises(Refused):
            opt.apply_gradients(pairs)
        assert [everything(opt, [free, first, last, table]), opt.weights] == before
    for bad in (lambda w: w[:1], lambda w: w.astype(complex), lambda w: "x"):
        wrong = Variable(np.ones(2), constraint=bad)
        opt = SGD(0.5)
        with pytest.raises((ValueError, TypeError)):
            opt.apply_gradients([(np.ones(2), wrong)])
        assert wrong.numpy().tolist() == [1, 1] and int(opt.iterations) == 0


def test_deferred_rows_are_restored_if_another_group_fails() -> None:
    failing: list[bool] = []
    last = Variable(np.ones(2), constraint=lambda w: refuse() if failing else w)
    variables = {"table": np.ones((3, 2)), "last": last}
    opt = ParameterGroups(SGD(0.5), [("table", Late(0.5, sparse="catch_up"))])

    def step(row: int) -> None:
        rows = IndexedSlices(np.ones((1, 2)), np.array([row]))
        opt.step(variables, {"table": rows, "last": np.ones(2)})

    step(0)
    step(1)
    before = everything(opt, variables, True)
    failing.append(True)
    with pytest.raises(Refused):
        step(0)
    assert everything(opt, variables, True) == before


@pytest.mark.parametrize("hook", ["_resource_apply_dense", "_resource_apply_sparse"])
@pytest.mark.parametrize("base", [Written, SGD, Adam])
def test_a_method_that_raises_leaves_all_as_it_was(base: Any, hook: str) -> None:
    own = getattr(base, hook)

    def failing(self: Any, grad: Any, handle: Any, *rest: Any) -> None:
        own(self, grad, handle, *rest)
        if handle.name == "last":
            raise Refused

    opt = type("Failing", (base,), {hook: failing})(0.5)
    rows = IndexedSlices(np.ones((1, 2)), np.array([1]))
    variables = [Variable(np.ones((2, 2)), name) for name in ("a", "last", "b")]
    before = everything(opt, variables)
    grads: list[Any] = [rows] * 3 if "sparse" in hook else [np.ones((2, 2))] * 3
    with pytest.raises(Refused):
        opt.apply_gradients(list(zip(grads, variables, strict=True)))
    assert everything(opt, variables) == before and opt.get_slot_names() == (
        opt.get_slot_names() if base is not Written else []
    )


@pytest.mark.parametrize("option", ["gradient_aggregator", "gradient_transformers", "schedule"])
def test_a_function_of_the_user_that_raises_leaves_all_as_it_was(option: str) -> None:
    options: dict[str, Any] = {
        "gradient_aggregator": {"gradient_aggregator": refuse},
        "gradient_transformers": {"gradient_transformers": [lambda pairs: pairs, refuse]},
        "schedule": {"learning_rate": lambda step: refuse()},
    }[option]
    opt, w = Adam(**options), np.ones(2)
    before = everything(opt, [w])
    for around in (opt, WeightAverage(opt), GradientAccumulation(opt, 1)):
        with pytest.raises(Refused):
            around.apply_gradients([(np.ones(2), w)])
    assert everything(opt, [w]) == before


INTERRUPTED = """
import signal, sys, time
import numpy as np
from tfopt import IndexedSlices
from tfopt.optimizers import Adam
tables = [np.zeros((400, 8)) for _ in range(12)]
rows = IndexedSlices(np.ones((400, 8)), np.arange(400))
opt = Adam(1.0)
opt.apply_gradients([(rows, table) for table in tables])
signal.signal(signal.SIGALRM, signal.default_int_handler)  # as Ctrl-C does
random, came = np.random.default_rng(0), 0
end = time.process_time() + 1.0
while time.process_time() < end:
    count, first = int(opt.iterations), tables[0][0, 0]
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 2e-3))
        opt.apply_gradients([(rows, table) for table in tables])
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        came += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert len({table[0, 0] for table in tables}) == 1, "half a step"
    assert (tables[0][0, 0] != first) == int(opt.iterations) - count, "not counted"
print(came)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the platform has no interval timers")
def test_signals_interrupt_no_step() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


def test_the_count_does_not_wrap() -> None:
    opt, w = SGD(1.0), np.ones(1)
    opt.iterations = Variable(np.array(2**63 - 1))
    with pytest.raises(InvalidArgumentError, match="step count"):
        opt.apply_gradients([(np.ones(1), w)])
    assert w[0] == 1 and int(opt.iterations) == 2**63 - 1


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("size", [1e160, 3e307, 1e-170, 1e-300])
def test_reports_neither_overflow_nor_underflow(size: float, rows: bool) -> None:
    w, opt = np.full((4, 2), 3.0 * size), observed(SGD(1.0))
    grad: Any = np.full((4, 2), size)
    opt.apply_gradients([(IndexedSlices(grad, np.arange(4)) if rows else grad, w)])
    norm = size * np.sqrt(8)
    assert opt.last_step.gradient_norm == pytest.approx(norm, rel=1e-15)
    assert opt.last_step.update_norm == pytest.approx(norm, rel=1e-15)
    assert int(opt.iterations) == 1 and opt.last_step.nonfinite == 0


def test_parts_of_other_sizes_are_observed_together() -> None:
    sizes = (1e200, 1e-200, 1.0, 0.0)
    ws = [np.zeros(3) for _ in sizes]
    opt: Optimizer = observed(SGD(1.0))
    pairs: list[Any] = [(np.full(3, size), w) for size, w in zip(sizes, ws, strict=True)]
    opt.apply_gradients([*pairs, (IndexedSlices(np.full(1, 1e150), [0]), np.zeros(2))])
    report = opt.last_step  # type: ignore[attr-defined]
    assert report.gradient_norm == pytest.approx(1e200 * np.sqrt(3), rel=1e-15)
    assert report.update_norm == pytest.approx(1e200 * np.sqrt(3), rel=1e-15)


@pytest.mark.sampled_in_part
def test_an_allocation_that_fails_leaves_no_half_step(pytestconfig: pytest.Config) -> None:
    """Each one of a step, of every optimizer; of a few in a sample. In a process of its own."""
    names = [*MAKERS][:: 6 if pytestconfig.option.sample else 1]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("failing_steps.py")), *names],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip("this Python has no _testcapi")
    assert done.returncode == 0, done.stderr[-2000:]
    assert [line.rsplit(" ", 1)[0] for line in done.stdout.splitlines()] == names
