"""Sums over dense rows: those of exact arithmetic but for rounding, in an order of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

import tfopt
from tfopt.kernels.linear import multiclass, second_order, visits

EPS = np.finfo(float).eps


def rows_of(n: int, d: int, dtype: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features of several sizes, and slopes and curvatures some of which are 0."""
    random = np.random.default_rng(n + 1000 * d)
    X = random.standard_normal((n, d)) * np.logspace(-3, 3, d) + 1
    return X.astype(dtype), random.choice([-0.7, 0.0, 0.3], n), random.choice([0.0, 0.1, 1.3], n)


def as_rows(X: np.ndarray) -> Any:
    return np.zeros(0, X.dtype), np.zeros(0, np.int32), np.zeros(len(X) + 1, np.int32), X


def newton_system(X: np.ndarray, slopes: np.ndarray, bends: np.ndarray) -> Any:
    return second_order.newton_system(*as_rows(X), slopes, bends, X.shape[1])


def assert_product(found: np.ndarray, A: np.ndarray, B: np.ndarray) -> None:
    """Compare with A @ B in long double, to the rounding of as many additions, in any order."""
    A, B = np.longdouble(A), np.longdouble(B)
    size = (A.shape[1] + 3) * EPS * (np.abs(A) @ np.abs(B))
    assert found.shape == size.shape and (np.abs(found - A @ B) <= size).all()


sizes = given(
    n=st.integers(0, 300), d=st.integers(1, 20), dtype=st.sampled_from(["float32", "float64"])
)


@sizes
@example(n=130, d=7, dtype="float64")
@example(n=130, d=15, dtype="float32")
@example(n=400, d=1, dtype="float32")
def test_a_newton_system_is_the_products_with_a_last_feature_of_1(
    n: int, d: int, dtype: str
) -> None:
    X, slopes, bends = rows_of(n, d, dtype)
    A = np.column_stack([X, np.ones(n)]).astype(float)
    gradient, hessian = newton_system(X, slopes, bends)
    assert_product(gradient[None], slopes[None], A)
    assert_product(hessian, (bends[:, None] * A).T, A)
    np.testing.assert_array_equal(hessian, hessian.T)


@sizes
@example(n=0, d=1, dtype="float64")
def test_moments_are_sums_of_columns_and_of_their_squares(n: int, d: int, dtype: str) -> None:
    X, *_ = rows_of(n, d, dtype)
    sums, squares = visits.moments(X)
    X = X.astype(float)
    assert_product(sums[None], np.ones((1, n)), X)
    assert_product(squares[None], np.ones((1, n)), X * X)


@sizes
@example(n=8, d=8, dtype="float64")
@example(n=135, d=17, dtype="float64")
def test_products_of_lanes_are_those_of_matrices(n: int, d: int, dtype: str) -> None:
    X, *_ = rows_of(n, d, dtype)
    random = np.random.default_rng(n)
    w, factors = (random.standard_normal((length, multiclass.LANES)) for length in (d, n))
    assert_product(multiclass.predictions(*as_rows(X), w), X, w)
    assert_product(multiclass.weights_of(*as_rows(X), factors, d), X.T, factors)


@sizes
def test_lanes_and_dtypes_change_no_bits(n: int, d: int, dtype: str) -> None:
    """Each lane's sums are as if it were alone, and float32's those of the same numbers."""
    X, slopes, bends = rows_of(n, d, dtype)
    w = np.random.default_rng(n).standard_normal((d, multiclass.LANES))
    found = multiclass.predictions(*as_rows(X), w)
    for k in range(multiclass.LANES):
        alone = multiclass.predictions(*as_rows(X), np.where(np.arange(w.shape[1]) == k, w, 0.0))
        np.testing.assert_array_equal(found[:, k], alone[:, k])
    wide = X.astype(float)
    pairs = zip(newton_system(X, slopes, bends), newton_system(wide, slopes, bends), strict=True)
    assert all(narrow.tobytes() == other.tobytes() for narrow, other in pairs)
    assert visits.moments(X).tobytes() == visits.moments(wide).tobytes()


def test_threads_change_no_bits_of_the_sums() -> None:
    X, *weights = rows_of(3000, 60, "float64")
    answers = set()
    for threads in (1, 2, 3):
        tfopt.threads.set_num_threads(threads)
        sums = *newton_system(X, *weights), visits.moments(X)
        answers.add(tuple(each.tobytes() for each in sums))
    assert len(answers) == 1
