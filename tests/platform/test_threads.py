"""Thread counts, forks, and floating-point state that others have set."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import platform
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import threadpoolctl
from common.cases import RULES, arrays_for, assert_same_bits, ordinary_hypers
from hypothesis import given
from hypothesis import strategies as st

import tfopt
from tfopt import threads
from tfopt.kernels.platform import runtime

ADAMAX = next(rule for rule in RULES if rule.name == "adamax")


def python(code: str, timeout: float = 60, **environment: str) -> str:
    """Run code in a fresh interpreter, within a time limit, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True,
        timeout=timeout, env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def test_set_and_get() -> None:
    for n in (1, 2, 3, np.int64(2)):
        threads.set_num_threads(n)
        assert threads.get_num_threads() == (n if threads.openmp() else 1)


@pytest.mark.parametrize("bad", [0, -1, 5000])
def test_counts_out_of_range(bad: int) -> None:
    before = threads.get_num_threads()
    with pytest.raises(tfopt.InvalidArgumentError, match="between 1 and 4096"):
        threads.set_num_threads(bad)
    assert threads.get_num_threads() == before


@pytest.mark.parametrize("bad", [1.0, "2", None])
def test_counts_that_are_no_integers(bad: object) -> None:
    with pytest.raises(tfopt.InvalidTypeError, match="n must be an integer"):
        threads.set_num_threads(bad)  # type: ignore[arg-type]


SHOW = "import tfopt; print(tfopt.threads.get_num_threads())"


def test_default_is_the_number_of_usable_processors() -> None:
    usable = threads._usable_cpus()
    assert 1 <= usable <= (os.cpu_count() or 1)
    assert python(SHOW, OMP_NUM_THREADS="") == str(usable)
    assert python(SHOW, OMP_NUM_THREADS="1") == "1"
    one = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); "
    assert python(one + SHOW) == "1"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "max 100000"}, 8),
        ({"cpu.max": "150000 100000"}, 1),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "400000 100000"}, 4),
        ({"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}, 8),
        ({"cpu.cfs_quota_us": "300000", "cpu.cfs_period_us": "100000"}, 3),
        ({"cpu.max": "nonsense"}, 8),
        ({}, 8),
    ],
)
def test_control_groups_limit_the_default(
    files: dict[str, str], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(threads, "_control_groups", lambda: [tmp_path])
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert threads._usable_cpus() == expected


def test_threadpoolctl_caps_the_count() -> None:
    if threads._usable_cpus() < 2 or not threads.openmp():
        pytest.skip("one CPU, or no OpenMP: nothing to cap")
    threads.set_num_threads(3)
    with threadpoolctl.threadpool_limits(1):
        assert threads.get_num_threads() == 1
    assert threads.get_num_threads() == 3


# ---- fork

UPDATE = """
    import numpy as np, tfopt
    def update():
        var, m, v = (np.ones(500_000, np.float32) for _ in range(3))
        grad = np.linspace(-1, 1, 500_000, dtype=np.float32)
        tfopt.training_ops.apply_adamax(var, m, v, grad, beta1_power=0.9, lr=0.1, beta1=0.9,
                                        beta2=0.99, epsilon=1e-7)
        rows = np.ones((60_000, 8), np.float32)
        table = np.ones((1000, 8), np.float32)
        tfopt.training_ops.apply_gradient_descent(table, rows, alpha=0.1,
                                                  indices=np.arange(60_000) % 1000)
        return var.tobytes() + table.tobytes()
    tfopt.threads.set_num_threads(2)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_forked_child_computes_the_same_on_one_thread() -> None:
    """OpenMP's threads are gone in the child; waiting for them would hang it."""
    code = (
        UPDATE
        + """
    import multiprocessing, os, warnings
    warnings.simplefilter("ignore")     # newer Pythons warn of any fork beside threads
    expected = update()
    fork = multiprocessing.get_context("fork")
    def child(again):
        assert tfopt.threads.get_num_threads() == 1
        assert update() == expected
        if again:
            grandchild = fork.Process(target=child, args=(False,))
            grandchild.start(); grandchild.join(20); assert grandchild.exitcode == 0
    for _ in range(5):
        process = fork.Process(target=child, args=(True,))
        process.start(); process.join(30); assert process.exitcode == 0, process.exitcode
    assert tfopt.threads.get_num_threads() == 2 and update() == expected
    print("done")
    """
    )
    assert python(code, timeout=120) == "done"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_fork_that_python_does_not_see() -> None:
    code = (
        UPDATE
        + """
    import ctypes, os
    expected = update()
    child = ctypes.CDLL(None).fork()
    if child == 0:
        os._exit(0 if update() == expected else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    )
    assert python(code, timeout=60) == "0"


def _in_child() -> int:
    return tfopt.threads.get_num_threads()


def test_spawned_children_use_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)  # Dask's nannies leave 1 there
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_in_child) == threads._usable_cpus()


# ---- concurrency and machine state


Calls = list[tuple[float, float, float]]  # when each ends, what it took, and would have alone


def pauses_after(calls: Calls) -> list[float]:
    tried_again = zip(runtime.pauses(calls), calls, strict=True)
    return [max(until - end, 0.0) for until, (end, *_) in tried_again]


ALONE, SHARED = 4e-5, 2.5e-5  # seconds of a call on one thread and on two


def train(often: float, lost: float, between: float) -> np.ndarray:
    """Return what calls take that two threads lose time with this often."""
    random, now, until = np.random.default_rng(0), 0.0, 0.0
    took: list[float] = []
    entered: Calls = []
    for _ in range(2000):
        now += between
        alone = now < until
        took.append(ALONE if alone else SHARED + lost * (random.random() < often))
        now += took[-1]
        if not alone:
            entered.append((now, took[-1], ALONE))
            until = runtime.pauses(entered)[-1]
    return np.array(took)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(1e-9, 1)), min_size=1))
def test_a_slightly_slower_call_is_not_a_loss(calls: list[Any]) -> None:
    ends = np.cumsum([end for end, _ in calls]).tolist()
    entered = [(end, 1.19 * alone, alone) for end, (_, alone) in zip(ends, calls, strict=True)]
    assert not any(pauses_after(entered))


def test_threads_that_lose_time_are_left_out_for_longer_and_longer() -> None:
    """Until a second: time slices of 20 ms then cost a fiftieth."""
    losses = [(float(2 * k), 0.002, 0.001) for k in range(10)]
    expected = [min(0.008 * 2**k, 1.0) for k in range(10)]
    assert pauses_after(losses) == pytest.approx(expected)


def test_time_saved_by_threads_pays_for_a_delay() -> None:
    calls = [(0.001 * k, 1e-3, 2e-3) for k in range(8)] + [(0.01, 7e-3, 1e-3)]
    assert not any(pauses_after(calls))
    assert pauses_after([*calls, (0.011, 7e-3, 1e-3)])[-1] > 0


def test_old_savings_do_not_pay_for_a_busy_machine() -> None:
    calls = [(0.01 * k, 1e-3, 2e-3) for k in range(10_000)]
    assert pauses_after([*calls, (200.0, 0.021, 0.001)])[-1] == pytest.approx(8 * 0.01)


def test_a_delay_is_paid_once() -> None:
    calls = [(0.0, 0.021, 0.001), (1.0, 1e-5, 2e-5), (2.0, 0.002, 0.001)]
    assert pauses_after(calls)[::2] == pytest.approx([0.16, 8 * (1e-3 - 1e-5)])


def test_threads_may_have_to_wake_up() -> None:
    """A small call waits for threads that sleep, and the ones after it do not."""
    calls = [(0.0, 0.01, 1e-5), (1.0, 9e-5, 1e-5), (1.1, 1e-5, 2e-5)]
    assert pauses_after(calls)[1:] == [0, 0]


BETWEEN = pytest.mark.parametrize("between", [0.0, 1e-3, 2e-2])  # seconds between calls


@BETWEEN
@pytest.mark.parametrize("lost", [0.0, 1e-4, 4e-3])
def test_delays_that_savings_cover_leave_the_threads_in(between: float, lost: float) -> None:
    took = train(0.002, lost, between)
    assert np.median(took) == SHARED


@BETWEEN
@pytest.mark.parametrize("often", [0.2, 0.5, 0.7, 1.0])
@pytest.mark.parametrize("lost", [1e-3, 4e-3, 2e-2])
def test_frequent_delays_leave_the_threads_out(between: float, often: float, lost: float) -> None:
    took = train(often, lost, between)
    assert np.median(took) <= 1.2 * ALONE
    assert np.maximum(took - ALONE, 0).sum() <= 0.2 * (took + between).sum()


def test_updates_from_many_python_threads() -> None:
    """The kernels release the GIL; every thread's arrays are its own."""
    values = arrays_for(ADAMAX, 50_000, np.float32)
    expected = [v.copy() for v in values]
    own = [[v.copy() for v in values] for _ in range(6)]
    for _ in range(5):
        tfopt.training_ops.apply_adamax(*expected, **ordinary_hypers(ADAMAX))

    def work(arrays: list[np.ndarray]) -> None:
        for _ in range(5):
            tfopt.training_ops.apply_adamax(*arrays, **ordinary_hypers(ADAMAX))

    workers = [threading.Thread(target=work, args=(arrays,)) for arrays in own]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for arrays in own:
        for name, a, b in zip(ADAMAX.operands, arrays, expected, strict=True):
            assert_same_bits(a, b, name)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the rounding modes' numbers are x86's")
@pytest.mark.parametrize("mode", [0x400, 0x800, 0xC00], ids=["down", "up", "towards zero"])
@pytest.mark.parametrize("size", [50, 100_000])
def test_the_callers_rounding_mode_changes_nothing_and_stays(mode: int, size: int) -> None:
    libm = ctypes.CDLL(None)  # whose libm is loaded, whatever its name
    values = arrays_for(ADAMAX, size, np.float32)
    expected, got = [v.copy() for v in values], [v.copy() for v in values]
    tfopt.training_ops.apply_adamax(*expected, **ordinary_hypers(ADAMAX))
    assert libm.fesetround(mode) == 0
    try:
        tfopt.training_ops.apply_adamax(*got, **ordinary_hypers(ADAMAX))
        after = libm.fegetround()
    finally:
        libm.fesetround(0)
    assert after == mode
    for name, a, b in zip(ADAMAX.operands, got, expected, strict=True):
        assert_same_bits(a, b, name)


@pytest.mark.parametrize("size", [50, 100_000])
def test_an_update_does_not_change_the_floating_point_state(size: int) -> None:
    """Neither flushing nor sticky exceptions reach the caller, after refused calls either."""
    arrays = arrays_for(ADAMAX, size, np.float32)
    tiny = np.float32(np.finfo(np.float32).tiny)
    arrays[-1][:] = np.inf
    tfopt.training_ops.apply_adamax(*arrays, **ordinary_hypers(ADAMAX))
    with pytest.raises(tfopt.InvalidArgumentError):
        tfopt.training_ops.apply_adamax(*arrays[:-1], arrays[-1][1:], **ordinary_hypers(ADAMAX))
    assert tiny / np.float32(2) != 0
    assert np.geterr() == {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
