"""use_locking: updates from several threads that must not see each other's halves."""

from __future__ import annotations

import multiprocessing
import os
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tfopt import InvalidArgumentError, Variable, raw_ops
from tfopt.locks import locked

LIMIT = 60  # seconds, after which threads that wait for each other are taken to do so for good


def start(work: Callable[..., None], *args: Any) -> threading.Thread:
    thread = threading.Thread(target=work, args=args, daemon=True)
    thread.start()
    return thread


def finish(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive()


def waits(work: Callable[..., None], *args: Any) -> tuple[bool, threading.Thread]:
    """Start work; return whether it is still not done after a while."""
    thread = start(work, *args)
    thread.join(0.05)
    return thread.is_alive(), thread


def descend(var: Any, use_locking: bool = True, times: int = 1) -> None:
    delta = np.ones(np.shape(var), np.float32)
    for _ in range(times):
        raw_ops.ApplyGradientDescent(var=var, alpha=1.0, delta=delta, use_locking=use_locking)


def test_no_locked_update_is_lost() -> None:
    """By eight threads, through the array, a view of all of it, and two Variables."""
    array = np.zeros(50_000, np.float32)
    names = [array, array[:], Variable(array), Variable(array[::-1])] * 2
    finish(*[start(descend, name, True, 200) for name in names])
    assert (array == -8 * 200).all()


def test_no_locked_update_of_rows_is_lost() -> None:
    table, accum = np.zeros((500, 32)), np.zeros((500, 32))
    rows, indices = np.ones((1000, 32)), np.arange(1000) % 500

    def work() -> None:
        for _ in range(50):
            raw_ops.ResourceSparseApplyMomentum(
                var=table, accum=accum, lr=1.0, grad=rows, indices=indices, momentum=0.5,
                use_locking=True,
            )  # fmt: skip

    finish(*[start(work) for _ in range(8)])
    got = table.copy(), accum.copy()
    table[:] = accum[:] = 0
    for _ in range(8):
        work()
    assert (got[0] == table).all() and (got[1] == accum).all()


def momentum(var: Any, accum: Any, times: int) -> None:
    grad = np.zeros(2000, np.float32)
    for _ in range(times):
        raw_ops.ResourceApplyMomentum(
            var=var, accum=accum, lr=0.1, grad=grad, momentum=0.9, use_locking=True
        )


def test_opposite_roles_do_not_deadlock() -> None:
    arrays = [np.zeros(2000, np.float32) for _ in range(2)]
    for a, b in (arrays, map(Variable, arrays), (arrays[0], Variable(arrays[1]))):
        finish(start(momentum, a, b, 1000), start(momentum, b, a, 1000))


def test_an_update_under_a_variables_lock_does_not_deadlock() -> None:
    """Whoever holds one lock begins in an order of their own."""
    a, b = (Variable(np.zeros(2000, np.float32)) for _ in range(2))

    def work(held: Variable, other: Variable) -> None:
        for _ in range(1000):
            with held.lock:
                momentum(held, other, 1)

    for variables in ((a, b), (b, a)):
        finish(start(work, *variables), start(momentum, a, b, 1000), start(momentum, b, a, 1000))


def test_a_held_lock_keeps_out_locked_updates_only() -> None:
    array = np.zeros(3, np.float32)
    variable = Variable(array)
    with variable.lock:
        finish(start(descend, variable, False))
        assert array.tolist() == [-1] * 3
        waiting, thread = waits(descend, variable)
        assert waiting and array.tolist() == [-1] * 3
        descend(variable)  # the holder's own
    finish(thread)
    assert array.tolist() == [-3] * 3


def test_every_name_of_an_array_excludes_the_others() -> None:
    array = np.zeros((4, 4), np.float32)
    names = [array, array[1:], array.T[2], Variable(array), Variable(array[::2, 1])]
    for held in names:
        for name in names:
            with locked(held):
                waiting, thread = waits(descend, name)
                assert waiting
            finish(thread)


def test_a_slots_lock_is_held_too() -> None:
    var, accum = np.zeros(2000, np.float32), Variable(np.zeros(2000, np.float32))
    with accum.lock:
        waiting, thread = waits(momentum, var, accum, 1)
        assert waiting
    finish(thread)


def test_refused_updates_release_their_locks() -> None:
    variable = Variable(np.zeros(3, np.float32))
    for bad in (variable, [1.0], None, np.float32(1)):
        with pytest.raises(InvalidArgumentError):
            raw_ops.ApplyMomentum(
                var=variable, accum=bad, lr=1.0, grad=variable, momentum=0.9, use_locking=True
            )
    with locked():
        finish(start(descend, variable))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_forked_child_does_not_wait_for_its_parents_threads() -> None:
    array = np.zeros(3, np.float32)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with locked(array):
            held.set()
            done.wait(LIMIT)

    holder = start(hold)
    assert held.wait(LIMIT)
    with warnings.catch_warnings():  # newer Pythons warn of any fork beside threads
        warnings.simplefilter("ignore")
        fork = multiprocessing.get_context("fork")
        child = fork.Process(target=descend, args=(array,), daemon=True)
        child.start()
    child.join(LIMIT)
    done.set()
    finish(holder)
    assert child.exitcode == 0
