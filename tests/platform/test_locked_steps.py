"""use_locking: steps that two threads take of one optimizer are those that one would take."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common.step_cases import every_optimizer, everything, gradients, params
from common.wrapper_cases import USERS, WRAPPERS

from tfopt import IndexedSlices
from tfopt.optimizers import SGD, Adagrad, Adam
from tfopt.optimizers.step.prepared_step import PreparedStep

LIMIT = 60  # seconds, after which threads that wait for each other are taken to do so for good


def makers(locked: bool) -> dict[str, Callable[[], Any]]:
    options = {"use_locking": locked}
    return {
        **every_optimizer(**options),
        "catching up": lambda: Adam(0.5, sparse="catch_up", **options),
        "clipped": lambda: Adam(0.5, global_clipnorm=0.5, **options),
        "merged": lambda: SGD(0.5, clipnorm=0.5, merge="before", **options),
        **{
            f"{name}, of rows one after another": lambda case=case: case.busy(SGD(0.5, **options))
            for name, case in {**WRAPPERS, **USERS}.items()
        },
    }


def variables_of(which: str) -> dict[str, Any]:
    variables = params(constrained=True)
    if which == "catching up":  # of 16 bits no row catches up
        del variables["half"]
    return variables


def in_turn(which: str, seeds: tuple[int, ...]) -> Any:
    optimizer, variables = makers(False)[which](), variables_of(which)
    for seed in (0, *seeds):
        optimizer.step(variables, gradients(variables, seed))
    return everything(optimizer, variables)[:2]


@pytest.mark.parametrize("place", ["the learning rate", "the checks"])
@pytest.mark.parametrize("which", makers(True))
def test_a_step_that_is_paused_keeps_the_others_out(
    which: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread stops in the middle of its step, and another one tries to take one."""
    optimizer, variables = makers(True)[which](), variables_of(which)
    optimizer.step(variables, gradients(variables, 0))
    paused, finished = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def pause() -> None:
        if threading.current_thread() is first and not paused.is_set():
            paused.set()
            finished.wait(0.03)  # which it cannot be

    def take(seed: int) -> None:
        try:
            grads = gradients(variables, seed)
            if seed == 2:
                assert paused.wait(LIMIT)
            at = optimizer._places.at  # variables that have their names
            optimizer.apply_gradients([(grads[name], at[name]) for name in variables])
            if seed == 2:
                finished.set()
        except BaseException as error:
            errors.append(error)

    if place == "the checks":
        carry_out = PreparedStep.carry_out

        def paused_first(step: PreparedStep, *rest: Any) -> None:
            pause()
            carry_out(step, *rest)

        monkeypatch.setattr(PreparedStep, "carry_out", paused_first)
    else:
        inner = optimizer
        while hasattr(inner, "optimizer"):
            inner = inner.optimizer
        rate_of = type(inner)._next_rate

        def paused_rate(self: Any, step: int) -> float:
            pause()
            rate: float = rate_of(self, step)
            return rate

        monkeypatch.setattr(type(inner), "_next_rate", paused_rate)
    first, second = (threading.Thread(target=take, args=(seed,), daemon=True) for seed in (1, 2))
    for thread in (first, second):
        thread.start()
    for thread in (first, second):
        thread.join(LIMIT)
        assert not thread.is_alive()
    assert not errors
    monkeypatch.undo()
    assert paused.is_set() or "Accumulation" in which
    assert everything(optimizer, variables)[:2] in (in_turn(which, (1, 2)), in_turn(which, (2, 1)))


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_no_gradient_is_lost(width: int, dtype: Any) -> None:
    """Sums of whole numbers are exact in any order."""
    table, wanted = np.zeros((50, width), dtype), np.zeros((50, width))
    opt = Adagrad(1.0, initial_accumulator_value=0.0, use_locking=True)
    lock, steps, threads = threading.Lock(), 20, 4
    opt.apply_gradients([(IndexedSlices(np.zeros((1, width), dtype), np.array([0])), table)])

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(steps):
            ids = random.integers(0, 50, 400)
            rows = random.integers(-4, 5, (400, width)).astype(dtype)
            summed = np.zeros((50, width))
            np.add.at(summed, ids, rows)
            opt.apply_gradients([(IndexedSlices(rows, ids), table)])
            with lock:
                wanted[...] += summed**2

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        workers = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(LIMIT)
            assert not worker.is_alive()
    finally:
        sys.setswitchinterval(interval)
    assert (opt.get_slot(table, "accumulator").numpy() == wanted).all()
    assert int(opt.iterations) == 1 + steps * threads
