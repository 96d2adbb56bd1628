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

import numpy as np
import pytest
import threadpoolctl
from cases import RULES, arrays_for, assert_same_bits, ordinary_hypers

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


def test_default_is_what_the_process_may_use() -> None:
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


def test_spawned_children_use_threads() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_in_child) == threads._usable_cpus()


# ---- concurrency and machine state


def test_threads_that_save_time_are_never_left_out() -> None:
    assert not any(runtime.pauses((0.001 * k, 1e-4) for k in range(100)))


def test_threads_that_lose_time_are_left_out_for_longer_and_longer() -> None:
    """Until a second: time slices of 20 ms then cost a fiftieth."""
    losses = [(float(2 * k), -0.001) for k in range(10)]
    pauses = [until - now for until, (now, _) in zip(runtime.pauses(losses), losses, strict=True)]
    assert pauses == pytest.approx([min(0.008 * (2 ** (k + 1) - 1), 1.0) for k in range(10)])


def test_what_threads_save_pays_for_a_delay() -> None:
    calls = [(0.001 * k, 1e-3) for k in range(8)] + [(0.01, -6e-3)]
    assert not any(runtime.pauses(calls))
    assert runtime.pauses([*calls, (0.011, -6e-3)])[-1] > 0.011


def test_old_savings_do_not_pay_for_a_busy_machine() -> None:
    calls = [(0.01 * k, 1e-3) for k in range(10_000)]
    assert runtime.pauses([*calls, (200.0, -0.02)])[-1] == pytest.approx(200 + 8 * 0.01)


def test_debts_are_paid_back() -> None:
    calls = [(0.0, -1e-3)] + [(1.0 + k, 1e-3) for k in range(3)] + [(5.0, -1e-3)]
    assert runtime.pauses(calls)[-1] == pytest.approx(0.008)


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
    libm = ctypes.CDLL("libm.so.6")
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
def test_an_update_leaves_the_floating_point_state_alone(size: int) -> None:
    """Neither flushing nor sticky exceptions reach the caller, after refused calls either."""
    arrays = arrays_for(ADAMAX, size, np.float32)
    tiny = np.float32(np.finfo(np.float32).tiny)
    arrays[-1][:] = np.inf
    tfopt.training_ops.apply_adamax(*arrays, **ordinary_hypers(ADAMAX))
    with pytest.raises(tfopt.InvalidArgumentError):
        tfopt.training_ops.apply_adamax(*arrays[:-1], arrays[-1][1:], **ordinary_hypers(ADAMAX))
    assert tiny / np.float32(2) != 0
    assert np.geterr() == {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
