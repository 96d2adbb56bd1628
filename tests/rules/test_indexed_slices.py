"""IndexedSlices and the summing of repeated rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.cases import DTYPES, assert_same_bits, numbers
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

import tfopt
import tfopt_ref
from tfopt_ref.update import Rows, summed


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
@given(data=st.data())
def test_sums_equal_the_twins(dtype: str, index_dtype: Any, data: st.DataObject) -> None:
    shape = data.draw(array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=6))
    values = data.draw(numbers(dtype, shape))
    some = data.draw(st.sampled_from([st.integers(0, 3), st.integers(-(2**31), 2**31 - 1)]))
    indices = data.draw(arrays(index_dtype, shape[0], elements=some))
    flush = data.draw(st.booleans())
    for package in (tfopt, tfopt_ref):
        package.set_flush_denormals(flush)
    fast = tfopt.IndexedSlices(values, indices, (9,)).sum_duplicates()
    ref = summed(Rows(values, indices))
    assert fast.indices.dtype == ref.indices.dtype == index_dtype
    assert fast.indices.tolist() == ref.indices.tolist() == list(dict.fromkeys(indices.tolist()))
    assert fast.values.shape == ref.values.shape == (len(ref.indices), *shape[1:])
    assert fast.values.dtype == ref.values.dtype == dtype
    assert_same_bits(fast.values, ref.values, "sums")
    assert fast.dense_shape == (9,)


def test_many_repeats() -> None:
    random = np.random.default_rng(0)
    indices = random.integers(0, 5000, 60_000) * 1_000_003
    values = random.integers(-9, 9, (60_000, 2)).astype(np.float64)
    merged = tfopt.IndexedSlices(values, indices).sum_duplicates()
    expected = np.zeros((5000, 2))
    np.add.at(expected, indices // 1_000_003, values)
    assert len(set(merged.indices.tolist())) == len(merged.indices)
    assert (merged.values == expected[merged.indices // 1_000_003]).all()


def test_rows_are_added_in_their_order() -> None:
    values = np.array([1e8, 1, -1e8, 1], np.float32)
    merged = tfopt.IndexedSlices(values, [4, 4, 4, 2]).sum_duplicates()
    assert merged.indices.tolist() == [4, 2]
    assert merged.values.tolist() == [0, 1]


def test_arrays_are_kept_and_lists_converted() -> None:
    values, indices = np.ones((2, 3)), np.array([1, 0])
    slices = tfopt.IndexedSlices(values, indices)
    assert slices.values is values and slices.indices is indices and slices.dense_shape is None
    assert tfopt.IndexedSlices([[1.0]], [0], [5, 1]).dense_shape == (5, 1)
    assert "2 indices" in repr(slices)


@pytest.mark.parametrize("factor", [2, 2.0, np.float64(2), np.int64(2), np.array(2.0)])
def test_products_with_a_number_are_slices(factor: Any) -> None:
    slices = tfopt.IndexedSlices([[1.0], [3.0]], [4, 1], (5, 1))
    for product in (factor * slices, slices * factor, np.multiply(factor, slices)):
        assert isinstance(product, tfopt.IndexedSlices)
        assert product.values.tolist() == [[2], [6]]
        assert product.indices.tolist() == [4, 1] and product.dense_shape == (5, 1)
    dense = np.multiply(np.full((5, 1), factor), slices)
    assert isinstance(dense, np.ndarray)
    assert dense.tolist() == [[0], [6], [0], [0], [2]]


def test_strided_and_read_only_input() -> None:
    values = np.arange(24.0).reshape(4, 6)[::2, ::3]
    indices = np.array([3, 9, 3, 9])[::2]
    values.flags.writeable = indices.flags.writeable = False
    merged = tfopt.IndexedSlices(values, indices).sum_duplicates()
    assert merged.values.tolist() == [[12, 18]]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16"])
def test_values_of_the_other_byte_order(dtype: str) -> None:
    native = np.array([[1.5, 2], [0.25, 4], [3, 8]], dtype)
    given = native.astype(native.dtype.newbyteorder())
    merged = tfopt.IndexedSlices(given, [7, 2, 7]).sum_duplicates()
    assert merged.values.dtype == given.dtype
    assert merged.values.tolist() == [[4.5, 10], [0.25, 4]]


@pytest.mark.parametrize(
    ("values", "indices", "error", "message"),
    [
        (
            np.ones(2, int),
            [0, 1],
            "InvalidTypeError",
            "values must be floats or complex of at most double precision, not int",
        ),
        (np.ones(2, "g"), [0, 1], "InvalidTypeError", "not (longdouble|float128)"),
        (np.ones(2, "G"), [0, 1], "InvalidTypeError", "double precision, not complex256"),
        (np.ones(2), np.array([0, 1], ">i8"), "InvalidTypeError", "int32 or int64, not >i8"),
        (np.ones(2), [0.0, 1.0], "InvalidTypeError", "indices must be int32 or int64, not float"),
        (np.ones(2), np.zeros(2, np.int16), "InvalidTypeError", "not int16"),
        (np.ones(2), [[0, 1]], "InvalidArgumentError", r"one-dimensional: \[1, 2\]"),
        (np.ones(3), [0, 1], "InvalidArgumentError", r"same size as indices .*: \[3\] 2"),
        (np.ones(()), [0], "InvalidArgumentError", r"same size as indices"),
    ],
)
def test_refusals(values: Any, indices: Any, error: str, message: str) -> None:
    with pytest.raises(getattr(tfopt, error), match=message):
        tfopt.IndexedSlices(values, indices).sum_duplicates()
