"""The one call that carries out what a step writes, and what puts back what Python has changed."""

from __future__ import annotations

import signal
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tfopt.errors import IndexOutOfRangeError, InvalidArgumentError, InvalidTypeError
from tfopt.kernels import kernels
from tfopt.kernels.update.commit import Assign, AssignRows, Count, Undo, carry_out
from tfopt.kernels.update.sparse_checks import sparse_call
from tfopt.optimizers.step.prepared_step import PreparedStep


def test_what_a_failed_block_has_changed_is_put_back() -> None:
    array, owner = np.ones((3, 2)), SimpleNamespace(kept=1, removed=2)
    with pytest.raises(KeyError), Undo([array, array[1:]], [owner]):
        array[1] = 5
        owner.kept, owner.new = 3, 4
        del owner.removed
        raise KeyError
    assert (array == 1).all() and vars(owner) == {"kept": 1, "removed": 2}


def test_an_array_that_is_another_now_stays() -> None:
    resized, closed = np.ones(4), np.ones(2)
    with pytest.raises(KeyError), Undo([resized, closed]):
        resized[:] = closed[:] = 5
        resized.resize(2, refcheck=False)
        closed.flags.writeable = False
        raise KeyError
    assert resized.tolist() == closed.tolist() == [5, 5]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_an_index_changed_after_the_checks_splits_no_step(dtype: type) -> None:
    """The rows that there are take it, and it is counted, before anything is raised."""
    var, count, ids = np.zeros((3, 2)), np.zeros((), np.int64), np.array([0, 2], dtype)
    rule = kernels["gradient_descent"]
    calls = [sparse_call(rule, (var, np.ones((2, 2))), ids, (1.0,), 0, 1.0) for _ in range(2)]
    ids[0] = 3
    with pytest.raises(IndexOutOfRangeError, match="changed"), Undo([var]) as undo:
        carry_out([*calls, Count(count)], undo)
    assert count == 1 and var.tolist() == [[0, 0], [0, 0], [-2, -2]]


TO, ROWS = np.arange(24.0).reshape(4, 3, 2), np.array([3, 1])
#: One argument of an assignment of rows that does not fit the others.
WRONG: dict[str, dict[str, Any]] = {
    "another dtype": {"values": np.ones((2, 3, 2), np.float32)},
    "another byte order": {"values": np.ones((2, 3, 2), ">f8")},
    "fewer rows": {"values": np.ones((1, 3, 2))},
    "another shape": {"values": np.ones((2, 2, 3))},
    "one dimension less": {"values": np.ones((2, 3))},
    "no rows": {"to": np.zeros(()), "values": np.ones(2)},
    "no numbers": {"to": TO.astype(object), "values": np.ones((2, 3, 2), object)},
    "read-only": {"to": np.frombuffer(TO.tobytes()).reshape(TO.shape)},
    "a row too far": {"rows": np.array([3, 4])},
    "a row before the first": {"rows": np.array([-1, 1])},
}


def test_rows_are_assigned() -> None:
    to, values = TO.copy(), -np.ones((2, 3, 2))
    carry_out([AssignRows(to, ROWS, values)])
    expected = TO.copy()
    expected[ROWS] = values
    np.testing.assert_array_equal(to, expected)


@pytest.mark.parametrize("wrong", WRONG)
def test_rows_that_do_not_fit_are_refused(wrong: str) -> None:
    given = {"to": TO.copy(), "rows": ROWS, "values": np.ones((2, 3, 2)), **WRONG[wrong]}
    with pytest.raises((InvalidTypeError, InvalidArgumentError)):
        AssignRows(given["to"], given["rows"], given["values"])
    if "rows" not in WRONG[wrong]:
        with pytest.raises(InvalidTypeError):
            Assign(given["to"], given["values"])


# ---- interrupts


def interrupted(launches: bool) -> tuple[PreparedStep, np.ndarray]:
    """Return a step in whose work Ctrl-C comes, and what it counts."""
    step, count = PreparedStep([]), np.zeros((), np.int64)
    step.launches = launches

    def work(writes: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        writes.append(Count(count))

    step.work.append(work)
    return step, count


@pytest.mark.parametrize("launches", [False, True])
def test_ctrl_c_waits_for_the_end_of_a_step_on_a_gpu_alone(launches: bool) -> None:
    step, count = interrupted(launches)
    # a shell's background processes ignore it
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            step.carry_out()
        assert count == launches and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("ignored", [False, True])
def test_where_ctrl_c_interrupts_nothing_the_step_is_taken(ignored: bool) -> None:
    """In another thread, which cannot change what Ctrl-C does, and where it does nothing."""
    step, count = PreparedStep([]), np.zeros((), np.int64)
    if ignored:
        step, count = interrupted(True)
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            step.carry_out()
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        finally:
            signal.signal(signal.SIGINT, before)
    else:
        step.launches = True
        step.work.append(lambda writes: writes.append(Count(count)))
        thread = threading.Thread(target=step.carry_out)
        thread.start()
        thread.join()
    assert count == 1
