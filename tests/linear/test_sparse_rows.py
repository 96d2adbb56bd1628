"""Batches of sparse rows: their products and gradients, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits, numbers
from common.two_orders import gradients_of_two_orders
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

import tfopt
from tfopt import IndexOutOfRangeError, InvalidArgumentError, InvalidTypeError, SparseRows
from tfopt_ref import sparse_rows
from tfopt_ref.update import Rows, summed

FLOATS, INTEGERS = ["f4", "f8"], ["i4", "i8"]


@st.composite
def matrices(draw: st.DrawFn) -> sparse.csr_matrix:
    """CSR matrices with empty rows, repeated columns in any order, and any numbers."""
    n_columns = draw(st.integers(1, 6))
    lengths = draw(st.lists(st.integers(0, 5), max_size=6))
    ends = np.cumsum([0, *lengths])
    columns = draw(arrays(draw(st.sampled_from(INTEGERS)), int(ends[-1]),
                          elements=st.integers(0, n_columns - 1)))  # fmt: skip
    values = draw(numbers(draw(st.sampled_from(FLOATS)), (int(ends[-1]),)))
    X = sparse.csr_matrix((len(lengths), n_columns), dtype=values.dtype)
    X.data, X.indices, X.indptr = values, columns, ends.astype(columns.dtype)
    return X


def listed(X: sparse.csr_matrix) -> list[sparse_rows.Row]:
    starts, stops = X.indptr[:-1].tolist(), X.indptr[1:].tolist()
    return [(X.indices[a:b].tolist(), X.data[a:b]) for a, b in zip(starts, stops, strict=True)]


def laid_out(array: np.ndarray, how: str) -> np.ndarray:
    """Return an equal array: read-only, or every second element of a larger one."""
    array = array.copy() if how == "read-only" else np.repeat(array, 2, axis=0)[::2]
    array.flags.writeable = how != "read-only"
    return array


layouts = st.sampled_from(["read-only", "strided"])


@given(data=st.data(), X=matrices(), how=layouts, threads=st.sampled_from([1, 3]))
def test_batches_have_the_bits_of_the_specification(
    data: st.DataObject, X: sparse.csr_matrix, how: str, threads: int
) -> None:
    tfopt.threads.set_num_threads(threads)
    tfopt.set_flush_denormals(data.draw(st.booleans()))
    n, m = X.shape
    chosen = data.draw(st.lists(st.integers(0, n - 1), max_size=9) if n else st.just([]))
    width = data.draw(st.sampled_from([(), (1,), (3,)]))
    dtype = data.draw(st.sampled_from(FLOATS))
    w = data.draw(numbers(dtype, (m, *width)))
    slopes = data.draw(numbers(dtype, (len(chosen), *width)))
    rows = listed(X)
    X.data, X.indices = laid_out(X.data, how), laid_out(X.indices, how)
    given_rows = laid_out(np.array(chosen, data.draw(st.sampled_from(INTEGERS))), how)
    batch = SparseRows(X).take(given_rows)
    expected = [rows[i] for i in chosen]
    assert len(batch) == len(chosen)
    assert batch.shape == (len(chosen), m)
    assert batch.values.dtype == X.dtype
    assert batch.columns.dtype == X.indices.dtype
    for a, b, (columns, values) in zip(batch.ends, batch.ends[1:], expected, strict=False):
        assert batch.columns[a:b].tolist() == columns
        assert_same_bits(batch.values[a:b], values, "values")
    assert_same_bits(batch.dot(laid_out(w, how)), sparse_rows.dot(expected, w), "products")
    gradient = batch.gradient(laid_out(slopes, how))
    terms = sparse_rows.gradient(expected, slopes)
    assert gradient.dense_shape == w.shape
    assert gradient.indices.tolist() == terms.indices.tolist()
    assert_same_bits(gradient.values, terms.values, "terms")


@given(data=st.data(), X=matrices())
def test_the_gradient_is_the_transposed_product(data: st.DataObject, X: sparse.csr_matrix) -> None:
    """Of small integers, whose sums are exact."""
    X.data = data.draw(arrays("f8", X.data.size, elements=st.integers(-9, 9)))
    n, m = X.shape
    w = data.draw(arrays("f8", m, elements=st.integers(-9, 9)))
    slopes = data.draw(arrays("f8", n, elements=st.integers(-9, 9)))
    rows, dense = SparseRows(X), X.toarray()
    assert rows.dot(w).tolist() == (dense @ w).tolist()
    assert np.asarray(rows.gradient(slopes)).tolist() == (slopes @ dense).tolist()
    assert rows.dot(w) @ slopes == w @ np.asarray(rows.gradient(slopes))


@given(data=st.data(), how=st.sampled_from(["zipf", "distinct", "one row"]))
@pytest.mark.parametrize("dtype", FLOATS)
def test_many_single_rows_are_summed_as_the_twin_sums_them(
    data: st.DataObject, how: str, dtype: str
) -> None:
    """Any number of threads, more rows than a thread looks at together."""
    random, n = np.random.default_rng(data.draw(st.integers(0, 99))), 9000
    ids = {
        "zipf": np.minimum(random.zipf(1.5, n), 300),
        "distinct": random.permutation(n),
        "one row": np.full(n, 7),
    }[how]
    values = random.standard_normal(n).astype(dtype)
    values[random.integers(n, size=5)] = [np.nan, np.inf, -0.0, 1e-40, -np.inf]
    expected = summed(Rows(values, ids)) if how != "distinct" else Rows(values + 0, ids)
    for threads in (1, 3):
        tfopt.threads.set_num_threads(threads)
        merged = tfopt.IndexedSlices(values, ids).sum_duplicates()
        assert merged.indices.tolist() == expected.indices.tolist()
        if how != "distinct":
            assert_same_bits(merged.values, expected.values, f"{threads} threads")


def test_what_is_no_float_becomes_one() -> None:
    X = sparse.csr_matrix(np.array([[0, 2], [3, 0]]))
    rows = SparseRows(X)
    assert rows.values.dtype == np.float64
    assert rows.dot(tfopt.Variable(np.array([1.0, 2.0], np.float32))).tolist() == [4, 3]
    assert repr(rows) == "SparseRows(shape (2, 2) and dtype float64, 2 entries)"


def test_entries_behind_the_last_row_are_none() -> None:
    X = sparse.csr_matrix((2, 2))
    X.data, X.indices, X.indptr = np.ones(3), np.array([1, 0, 7]), np.array([0, 1, 1])
    rows = SparseRows(X)
    assert rows.values.size == 1
    assert rows.dot(np.array([2.0, 5.0])).tolist() == [5, 0]


ROWS = SparseRows(sparse.csr_matrix(np.eye(3, 4)))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: SparseRows(np.eye(3)), InvalidTypeError, "a CSR matrix, not ndarray"),
        (lambda: SparseRows(sparse.eye(3, format="csc")), InvalidTypeError, "a CSR matrix"),
        (lambda: ROWS.take([[0]]), InvalidArgumentError, "rows must be one-dimensional"),
        (lambda: ROWS.take([0.0]), InvalidTypeError, "rows must be integers, not float64"),
        (lambda: ROWS.take([True]), InvalidTypeError, "rows must be integers, not bool"),
        (lambda: ROWS.take([3]), IndexOutOfRangeError, r"rows\[0\] is 3"),
        (lambda: ROWS.take([0, -1]), IndexOutOfRangeError, r"rows\[1\] is -1"),
        (lambda: ROWS.dot(np.ones(3)), InvalidArgumentError, r"the shape \(4,\) or \(4, k\)"),
        (lambda: ROWS.dot(np.ones((4, 1, 1))), InvalidArgumentError, r"not \(4, 1, 1\)"),
        (lambda: ROWS.dot(np.ones(4, np.float16)), InvalidTypeError, "not float16"),
        (lambda: ROWS.dot(np.ones(4, int)), InvalidTypeError, "not int64"),
        (lambda: ROWS.gradient(np.ones(4)), InvalidArgumentError, r"the shape \(3,\) or \(3, k\)"),
        (lambda: ROWS.gradient(1.0), InvalidArgumentError, r"not \(\)"),
        (lambda: ROWS.gradient(np.ones(3, int)), InvalidTypeError, "not int64"),
    ],
)
def test_what_is_refused(call: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("index", INTEGERS)
@pytest.mark.parametrize("bad", [-1, 4, 2**31 - 1])
def test_columns_that_change_after_the_check(index: str, bad: int) -> None:
    X = sparse.csr_matrix(np.eye(3, 4))
    X.indices = X.indices.astype(index)
    rows = SparseRows(X)
    batch = rows.take([1, 2])
    rows.columns[2] = batch.columns[1] = bad
    with pytest.raises(IndexOutOfRangeError, match=r"indices\[2\]"):
        rows.take([1, 2])
    with pytest.raises(IndexOutOfRangeError, match=r"indices\[1\]"):
        batch.dot(np.ones(4))


def test_ends_that_change_after_the_check() -> None:
    rows = SparseRows(sparse.csr_matrix(np.eye(3, 4)))
    rows.ends[1] = 9
    with pytest.raises(InvalidArgumentError, match="indptr must not decrease"):
        rows.take([0])
    with pytest.raises(InvalidArgumentError, match="indptr must not decrease"):
        rows.dot(np.ones(4))


# ---- tapes and traces

SPARSE = sparse.random(5, 4, 0.6, "csr", random_state=3)


@pytest.mark.parametrize("k", [None, 3])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("traced", [False, True])
def test_gradients_are_those_of_a_dense_matrix(k: int | None, dtype: str, traced: bool) -> None:
    """Of both products, with respect to what is multiplied, of the first and the second order."""
    rows, dense = SparseRows(SPARSE), SPARSE.toarray().astype(dtype)
    random = np.random.default_rng(0)
    shapes = [(n, *(() if k is None else (k,))) for n in (4, 5)]
    w, s = (random.uniform(0.5, 1.5, shape).astype(dtype) for shape in shapes)
    products = {
        "dot": (w, rows.dot, lambda x: dense @ x),
        "gradient": (s, lambda x: np.add(rows.gradient(x), 0.0), lambda x: dense.T @ x),
    }

    for at, ours, theirs in products.values():
        f = tfopt.function(ours) if traced else ours
        both = gradients_of_two_orders(f, at), gradients_of_two_orders(theirs, at)
        for found, wanted in zip(*both, strict=True):
            assert found.dtype == wanted.dtype
            np.testing.assert_allclose(found, wanted, 1e-4 if dtype == "f4" else 1e-12)


def test_the_gradient_of_weights_has_the_rows_of_the_batch() -> None:
    rows, v = SparseRows(SPARSE), tfopt.Variable(np.ones((4, 2)))
    with tfopt.GradientTape() as tape:
        y = np.sum(rows.take([3, 1]).dot(v))
    found = tape.gradient(y, v)
    assert isinstance(found, tfopt.IndexedSlices)
    assert np.asarray(found.indices).tolist() == rows.take([3, 1]).columns.tolist()
    np.testing.assert_allclose(
        np.asarray(found), SPARSE.toarray()[[3, 1]].sum(0)[:, None] @ [[1, 1]]
    )
