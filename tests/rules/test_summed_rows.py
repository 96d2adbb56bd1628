"""Rows summed on the way into a step, against summing them first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits
from hypothesis import given
from hypothesis import strategies as st

import tfopt
from tfopt import IndexedSlices
from tfopt.core.workspace import Workspace
from tfopt.errors import InvalidArgumentError
from tfopt.kernels import kernels
from tfopt.kernels.update import dedup
from tfopt.kernels.update.sparse_checks import sparse_call
from tfopt.training_ops import apply_adamax, apply_gradient_descent

HYPERS = {"beta1_power": 0.9, "lr": 0.1, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-7}
ROWS = 300


def drawn_ids(random: np.random.Generator, how: str, n: int) -> np.ndarray:
    if how == "uniform":
        return random.integers(ROWS, size=n)
    if how == "one row":
        return np.full(n, 7)
    if how == "distinct":
        return random.permutation(ROWS)[:n]
    return np.minimum(random.zipf(1.5, n), ROWS) - 1


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("index", ["i4", "i8", "strided"])
@pytest.mark.parametrize("how", ["uniform", "one row", "distinct", "zipf"])
@pytest.mark.parametrize("inner", [1, 2, 33, 1000])
def test_the_result_is_that_of_summing_first(
    how: str, index: str, dtype: str, threads: int, inner: int
) -> None:
    random = np.random.default_rng(3)
    n = 290 if how == "distinct" else 9000 if inner < 100 else 600  # more than a piece
    ids = drawn_ids(random, how, n)
    indices = np.repeat(ids, 2)[::2] if index == "strided" else ids.astype(index)
    grad = random.standard_normal((n, inner)).astype(dtype)
    grad[random.integers(n, size=5), 0] = [np.nan, np.inf, -0.0, 1e-40, -np.inf]
    grad[-2:] = -0.0
    first = [random.uniform(0.1, 1, (ROWS, inner)).astype(dtype) for _ in range(3)]
    ours, theirs = ([array.copy() for array in first] for _ in range(2))
    tfopt.threads.set_num_threads(threads)
    apply_adamax(*ours, grad, indices=indices, duplicates="sum", **HYPERS)
    summed = IndexedSlices(grad, indices).sum_duplicates()
    apply_adamax(*theirs, summed.values, indices=summed.indices, **HYPERS)
    for a, b in zip(ours, theirs, strict=True):
        assert_same_bits(a, b, how)


@given(
    rows=st.integers(1, 30_000),
    once=st.integers(0, 15_000),
    again=st.integers(0, 15_000),
    width=st.integers(1, 5),
    threads=st.integers(1, 4),
    seed=st.integers(0, 2**32),
)
def test_rows_that_occur_once_and_rows_that_occur_again(
    rows: int, once: int, again: int, width: int, threads: int, seed: int
) -> None:
    """Each is stepped once, by its gradients added to zero in their order."""
    random = np.random.default_rng(seed)
    some = random.permutation(rows)[:once]
    ids = random.permutation(np.append(some, random.integers(rows, size=again)))
    grad = random.standard_normal((ids.size, width)).astype(np.float32)
    grad[random.random(grad.shape) < 0.1] = -0.0
    ours = np.full((rows, width), -0.0, np.float32)
    sums = np.zeros_like(ours)
    np.add.at(sums, ids, grad)
    expected = ours.copy()
    expected[ids] = ours[ids] - np.float32(0.5) * sums[ids]
    tfopt.threads.set_num_threads(threads)
    tfopt.training_ops.apply_gradient_descent(ours, grad, alpha=0.5, indices=ids, duplicates="sum")
    assert_same_bits(ours, expected, "rows")


@pytest.mark.parametrize(
    ("var", "grad", "expected"),
    [
        (np.ones((5, 4)), np.ones((3, 4)), True),
        (np.ones((5, 4), np.float32), np.ones((3, 4), np.float32), True),
        (np.ones((5, 8))[:, ::2], np.ones((3, 4)), False),
        (np.ones((5, 4)), np.ones((3, 8))[:, ::2], False),
        (np.ones((5, 8))[:, :4], np.ones((3, 4)), True),  # rows apart, each of them a run
        (np.ones((5, 4), np.float16), np.ones((3, 4), np.float16), False),
        (np.ones((5, 4), np.complex64), np.ones((3, 4), np.complex64), False),
        (np.ones(5), np.ones(3), True),
        (np.ones((5, 9000)), np.ones((3, 9000)), False),
    ],
)
def test_which_rows_are_summed_on_the_way(var: Any, grad: Any, expected: bool) -> None:
    """Others are summed first, with the same result."""
    kernel, indices = kernels["gradient_descent"], np.array([0, 1, 0])
    call = sparse_call(kernel, (var, grad), indices, (0.5,), 0, 1.0, workspace=Workspace())
    assert call.sums is expected
    assert sparse_call(kernel, (var, grad), indices, (0.5,), 0, 1.0).sums is False
    tfopt.training_ops.apply_gradient_descent(
        var, grad, alpha=0.5, indices=indices, duplicates="sum"
    )
    assert var.reshape(5, -1)[:3, 0].tolist() == [0, 0.5, 1]


def test_memory_lasts_from_step_to_step() -> None:
    workspace, kernel = Workspace(), kernels["gradient_descent"]
    var, grad = np.ones((50, 4)), np.ones((30, 4))
    held = []
    for n in (30, 20, 30):
        ids = np.arange(n)
        sparse_call(kernel, (var, grad[:n]), ids, (0.5,), 0, 1.0, workspace=workspace)
        held.append(workspace._kept["own"][0].ctypes.data)
    assert len(set(held)) == 1


@pytest.mark.parametrize("width", [3, 5])
def test_sums_of_another_width_are_refused(width: int) -> None:
    sums = np.full((2, width), 7.0)
    with pytest.raises(InvalidArgumentError, match="a row of sums"):
        dedup.add_rows(np.ones((3, 4)), np.zeros(3, np.intp), sums, np.inf, 1.0)
    assert (sums == 7).all()


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("width", [1, 4])
def test_denormal_rows_add_up_unless_they_are_flushed(flush: bool, width: int) -> None:
    var, tiny = np.zeros((3, width)), 0.75 * np.finfo(np.float64).tiny
    tfopt.set_flush_denormals(flush)
    rows = np.full((2, width), tiny)
    apply_gradient_descent(var, rows, alpha=1.0, indices=np.array([1, 1]), duplicates="sum")
    assert (var[1] == (0 if flush else -2 * tiny)).all()
