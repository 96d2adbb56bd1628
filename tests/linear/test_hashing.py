"""Hashed columns: the bits of scikit-learn's FeatureHasher."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.feature_extraction import FeatureHasher

from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.io import hash_features
from tfopt.kernels.text.hashing import hash_columns
from tfopt.linear_model import FTRLClassifier

COLUMNS = 2**31 - 1
ROW = st.dictionaries(
    st.integers(0, COLUMNS - 1) | st.integers(0, 20), st.sampled_from([0.0, 1.0, 0.1, -2.5, 1e-9])
)


def _matrix(rows: list[dict[int, float]], dtype: Any = np.float64, index: Any = np.int32) -> Any:
    indptr = np.cumsum([0, *map(len, rows)]).astype(index)
    indices = np.array([column for row in rows for column in row], index)
    data = np.array([x for row in rows for x in row.values()], dtype)
    return sparse.csr_array((data, indices, indptr), (len(rows), COLUMNS))


@given(
    st.lists(ROW, min_size=1, max_size=4),
    st.sampled_from([1, 7, 16, 2**18, 2**31 - 1]),
    st.sampled_from([np.float32, np.float64]),
    st.sampled_from([np.int32, np.int64]),
)
def test_the_bits_of_feature_hasher(rows: Any, n_features: int, dtype: Any, index: Any) -> None:
    X = _matrix(rows, dtype, index)
    before = X.copy()
    hashed = hash_features(X, n_features)
    named = [{str(column): x for column, x in row.items()} for row in rows]
    expected = FeatureHasher(n_features, dtype=dtype).transform(named)
    assert hashed.shape == expected.shape and hashed.dtype == dtype
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(hashed, part), getattr(expected, part))
        np.testing.assert_array_equal(getattr(X, part), getattr(before, part))


def test_the_ends_of_64_bits() -> None:
    columns = np.array([-(2**63), -1, 2**63 - 1])
    names = [[(str(column), 1.0)] for column in columns]
    expected = FeatureHasher(1000, input_type="pair").transform(names)
    signs, hashed = np.zeros(3, np.int8), np.zeros(3, np.int32)
    hash_columns(columns, 1000, hashed, signs)
    np.testing.assert_array_equal(signs, expected.data)
    np.testing.assert_array_equal(hashed, expected.indices)


def test_integers_become_float64() -> None:
    X = sparse.csr_array(np.array([[0, 3, 1]]))
    assert hash_features(X, 8).dtype == np.float64


def test_streams_of_matrices_and_of_names_are_one() -> None:
    rows = [{k * 10**8: 1.0 + k, k + 3: 2.0} for k in range(20)]
    named = [{str(column): x for column, x in row.items()} for row in rows]
    y = np.arange(20) % 2
    models = [
        FTRLClassifier(n_hashes=64).partial_fit(X, y, classes=[0, 1])
        for X in (_matrix(rows), _matrix(rows).tocoo(), named)
    ]
    for model in models:
        np.testing.assert_array_equal(model.coef_, models[2].coef_)
        np.testing.assert_array_equal(
            model.decision_function(_matrix(rows)), models[2].decision_function(named)
        )


@pytest.mark.parametrize("n_features", [0, -1, 2**31])
def test_numbers_of_features_out_of_range(n_features: int) -> None:
    with pytest.raises(InvalidArgumentError, match="n_features must be from 1 to"):
        hash_features(_matrix([{1: 1.0}]), n_features)


def test_a_number_of_features_that_is_no_integer() -> None:
    with pytest.raises(TypeError, match="integer"):
        hash_features(_matrix([{1: 1.0}]), 8.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("X", [np.ones((2, 2)), [{"a": 1.0}], sparse.csc_array(np.ones((2, 2)))])
def test_other_matrices(X: Any) -> None:
    with pytest.raises(InvalidTypeError, match="X must be a CSR matrix"):
        hash_features(X, 8)


def test_an_index_out_of_bounds() -> None:
    X = _matrix([{1: 1.0, 5: 2.0}])
    X.indices[1] = -3
    with pytest.raises(InvalidArgumentError):
        hash_features(X, 8)
    with pytest.raises(InvalidArgumentError):
        FTRLClassifier(n_hashes=8).partial_fit(X, [1], classes=[0, 1])


@pytest.mark.parametrize(("n", "n_features", "m"), [(3, 0, 3), (2, 4, 3), (3, 4, 2)])
def test_arrays_that_do_not_fit(n: int, n_features: int, m: int) -> None:
    signs, hashed = np.ones(n, np.int8), np.full(m, 9, np.int32)
    with pytest.raises(InvalidArgumentError):
        hash_columns(np.arange(3), n_features, hashed, signs)
    assert (signs == 1).all() and (hashed == 9).all()
