"""use_locking: updates from several threads that must not see each other's halves."""

from __future__ import annotations

import inspect
import multiprocessing
import os
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common.cases import ORDINARY

from tfopt import GradientTape, InvalidArgumentError, Variable, function, raw_ops
from tfopt.core.effects import writes
from tfopt.core.locks import locked
from tfopt.rules import OPS

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


@pytest.mark.parametrize("kind", ["buffer", "DLPack", "torch"])
def test_arrays_of_shared_memory_share_a_lock(kind: str) -> None:
    array = np.zeros(5, np.float32)

    class Exporting:
        shape = (5,)

        def __dlpack__(self, **options: Any) -> Any:
            return array.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return array.__dlpack_device__()

    if kind == "torch":
        var = pytest.importorskip("torch").from_numpy(array)
    else:
        var = memoryview(array) if kind == "buffer" else Exporting()
    with locked(array):
        is_waiting, thread = waits(descend, var)
    finish(thread)
    assert is_waiting and (array == -1).all()


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
    """A thread that holds one lock may take others in any order."""
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


# ---- every op that takes use_locking: two threads have one of the two orders


LOCKING = [name for name in raw_ops.__all__ if "Apply" in name]


def arguments_of(name: str, seed: int) -> tuple[list[np.ndarray], dict[str, Any]]:
    """Return what an op writes, and its other arguments: rows with duplicates, if it takes rows."""
    inputs = inspect.signature(getattr(raw_ops, name)).parameters
    rule = next(op.rule for op in OPS.values() if name.endswith(f"Apply{op.name}"))
    random = np.random.default_rng(seed)
    written = [np.ones((300, 4)) for _ in ("var", *rule.slots)]
    given: dict[str, Any] = {hyper: ORDINARY[hyper] for hyper in rule.hypers}
    rows = 300
    if "indices" in inputs:
        given["indices"] = random.integers(0, 300, 900)
        rows = 900
    given["grad" if "indices" in inputs else rule.grad] = random.standard_normal((rows, 4))
    return written, given


@pytest.mark.parametrize("name", LOCKING)
def test_two_locked_updates_have_one_of_two_orders(name: str) -> None:
    update = getattr(raw_ops, name)
    rule = next(op.rule for op in OPS.values() if name.endswith(f"Apply{op.name}"))
    first, second = (arguments_of(name, seed)[1] for seed in (1, 2))

    def after(*steps: dict[str, Any]) -> bytes:
        written, _ = arguments_of(name, 0)
        for given in steps:
            update(**dict(zip(("var", *rule.slots), written, strict=True)), **given)
        return b"".join(array.tobytes() for array in written)

    orders = {after(first, second), after(second, first)}
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for names in (list, lambda arrays: [*map(Variable, arrays)]):
            written, _ = arguments_of(name, 0)
            barrier = threading.Barrier(2)

            def work(given: dict[str, Any], barrier: Any = barrier, own: Any = (names, written)):
                operands = own[0](own[1])
                barrier.wait(LIMIT)
                named = dict(zip(("var", *rule.slots), operands, strict=True))
                update(**named, **given, use_locking=True)

            finish(start(work, first), start(work, second))
            assert b"".join(array.tobytes() for array in written) in orders
    finally:
        sys.setswitchinterval(before)


def test_the_locks_of_lists_are_held() -> None:
    """Those of every member, and while a traced function is replayed, too."""
    variables = [Variable(np.zeros(3)), Variable(np.zeros(2))]

    def update() -> None:
        delta = [np.ones(3), np.ones(2)]
        raw_ops.ResourceApplyGradientDescent(
            var=variables, alpha=1.0, delta=delta, use_locking=True
        )

    for k, work in enumerate((update, function(update))):
        with variables[1].lock:
            waiting, thread = waits(work)
            assert waiting and variables[0].numpy().tolist() == [-k] * 3
        finish(thread)
        assert variables[1].numpy().tolist() == [-k - 1] * 2


def test_a_locked_write_does_not_change_values_read_before() -> None:
    """The gate alone sees to it, whatever the function does by itself."""

    @writes("var")
    def increase(var: Variable, use_locking: bool = False) -> None:
        var._array += 1

    for use_locking in (False, True):
        var = Variable(np.ones(2))
        with GradientTape() as tape:
            squares = var * var
        increase(var, use_locking=use_locking)
        np.testing.assert_array_equal(var.numpy(), [2, 2])
        np.testing.assert_array_equal(tape.gradient(squares, var).numpy(), [2, 2])
