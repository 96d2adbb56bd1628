"""Sums over dense rows, bit for bit those of the specification."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

import tfopt
from tfopt.kernels.linear import multiclass, second_order, visits
from tfopt_ref import sdca_sums


def rows_of(n: int, d: int, dtype: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features of several sizes, and slopes and curvatures some of which are 0."""
    random = np.random.default_rng(n + 1000 * d)
    X = random.standard_normal((n, d)) * np.logspace(-3, 3, d) + 1
    return X.astype(dtype), random.choice([-0.7, 0.0, 0.3], n), random.choice([0.0, 0.1, 1.3], n)


def as_rows(X: np.ndarray) -> Any:
    return np.zeros(0, X.dtype), np.zeros(0, np.int32), np.zeros(len(X) + 1, np.int32), X


def newton_system(X: np.ndarray, slopes: np.ndarray, bends: np.ndarray) -> Any:
    return second_order.newton_system(*as_rows(X), slopes, bends, X.shape[1])


sizes = given(
    n=st.integers(0, 300), d=st.integers(1, 20), dtype=st.sampled_from(["float32", "float64"])
)


@sizes
@example(n=130, d=7, dtype="float64")
@example(n=130, d=15, dtype="float32")
@example(n=400, d=1, dtype="float32")
def test_a_newton_system_is_the_specified_sums(n: int, d: int, dtype: str) -> None:
    given = rows_of(n, d, dtype)
    for found, expected in zip(newton_system(*given), sdca_sums.newton_system(*given), strict=True):
        assert found.tobytes() == expected.tobytes()


@sizes
@example(n=0, d=1, dtype="float64")
def test_moments_are_the_specified_sums(n: int, d: int, dtype: str) -> None:
    X, *_ = rows_of(n, d, dtype)
    assert visits.moments(X).tobytes() == sdca_sums.moments(X).tobytes()


@sizes
@example(n=8, d=8, dtype="float64")
@example(n=135, d=17, dtype="float64")
def test_products_of_lanes_are_the_specified_sums(n: int, d: int, dtype: str) -> None:
    X, *_ = rows_of(n, d, dtype)
    random = np.random.default_rng(n)
    w, factors = (random.standard_normal((length, multiclass.LANES)) for length in (d, n))
    found = multiclass.predictions(*as_rows(X), w)
    assert found.tobytes() == sdca_sums.lane_predictions(X, w).tobytes()
    found = multiclass.weights_of(*as_rows(X), factors, d)
    assert found.tobytes() == sdca_sums.lane_sums(X, factors).tobytes()


def test_threads_change_no_bits_of_the_sums() -> None:
    X, *weights = rows_of(3000, 60, "float64")
    answers = set()
    for threads in (1, 2, 3):
        tfopt.threads.set_num_threads(threads)
        sums = *newton_system(X, *weights), visits.moments(X)
        answers.add(tuple(each.tobytes() for each in sums))
    assert len(answers) == 1
