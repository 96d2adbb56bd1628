"""Threads of fits, checkpoints and readers: what Ctrl-C and errors leave of them."""

from __future__ import annotations

import _thread
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common.interrupted import interrupting, raising_at, wait_for_threads

from tfopt.core.worker_threads import WorkerThreads
from tfopt.linear_model import SDCAClassifier


def mapped() -> list[int]:
    with WorkerThreads(2) as threads:
        return threads.map(pow, range(9), [2] * 9)


def fitted_in_blocks() -> list[float]:
    random = np.random.default_rng(0)
    X = random.standard_normal((120, 4))
    model = SDCAClassifier(num_loss_partitions=[40] * 3, n_jobs=2, max_iter=9, tol=0.3)
    return model.fit(X, X[:, 0] > 0).coef_.tolist()


@interrupting
@pytest.mark.parametrize(("call", "step"), [(mapped, 1), (fitted_in_blocks, 7)])
def test_ctrl_c_leaves_no_thread(call: Callable[[], Any], step: int) -> None:
    """Wherever it comes in Python's code; and the next call does all."""
    expected, before, event = call(), _thread._count(), 1
    while raising_at(event, call):
        wait_for_threads(before, event)
        event += step
    assert event > 50
    assert call() == expected


def test_a_map_is_in_order() -> None:
    def late(k: int) -> int:
        time.sleep(0.01 * (3 - k))
        return k

    with WorkerThreads(3) as threads:
        assert threads.map(late, range(3)) == [0, 1, 2]


def test_the_first_error_is_raised_and_the_rest_is_left_out() -> None:
    called = []

    def call(k: int) -> None:
        called.append(k)
        if k in (1, 2):
            raise ValueError(f"row {k}")
        time.sleep(0.01 * (k > 2))

    with pytest.raises(ValueError, match="row 1"), WorkerThreads(1) as threads:
        threads.map(call, range(1000))
    assert called[:3] == [0, 1, 2][: len(called)] and len(called) < 1000


def test_threads_have_the_settings_of_their_caller() -> None:
    """NumPy's warnings are a matter of the context, which a thread would not have."""
    with np.errstate(divide="raise"), WorkerThreads(1) as threads:
        with pytest.raises(FloatingPointError):
            threads.submit(np.divide, 1.0, 0.0).result()
        with np.errstate(divide="ignore"):
            assert threads.submit(np.divide, 1.0, 0.0).result() == np.inf
