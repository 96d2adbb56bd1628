"""Coefficients as a table by name, and as sparse matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from tfopt.errors import InvalidArgumentError
from tfopt.linear_model import FTRLClassifier, FTRLRegressor, SDCAClassifier, SDCARegressor

random = np.random.default_rng(0)
X = random.standard_normal((60, 4))
Y = X[:, 0] + 0.1 * random.standard_normal(60)
CLASSES = np.array(["high", "low", "mid"])[np.digitize(Y, [-0.5, 0.5])]
KINDS = [
    (SDCAClassifier(l1=3.0), CLASSES),
    (SDCAClassifier(l1=3.0), CLASSES == "low"),
    (SDCARegressor(l1=3.0), Y),
    (FTRLClassifier(l1=1.0), CLASSES),
    (FTRLRegressor(l1=1.0), Y),
]
each_kind = pytest.mark.parametrize(("model", "y"), KINDS)


@each_kind
def test_a_table_of_coefficients(model: Any, y: np.ndarray) -> None:
    model.fit(X, y)
    frame = model.coef_frame()
    assert frame.index.tolist() == ["x0", "x1", "x2", "x3", "intercept"]
    columns = {3: ["high", "low", "mid"], 1: [True if hasattr(model, "classes_") else "coef"]}
    assert frame.columns.tolist() == columns[len(np.atleast_2d(model.coef_))]
    np.testing.assert_array_equal(frame.to_numpy()[:-1], np.atleast_2d(model.coef_).T)
    np.testing.assert_array_equal(frame.loc["intercept"], np.ravel(model.intercept_))
    assert model.sparsify().coef_frame().equals(frame)


def test_names_of_the_table() -> None:
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = SDCARegressor().fit(frame, Y)
    assert model.coef_frame().index.tolist() == [*"abcd", "intercept"]
    assert model.coef_frame(list("wxyz")).index.tolist() == [*"wxyz", "intercept"]
    with pytest.raises(InvalidArgumentError, match="a name for each of 4 features, not 3 names"):
        model.coef_frame(list("abc"))


@each_kind
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csr_array, np.float32])
def test_sparse_coefficients(model: Any, y: np.ndarray, kind: Any) -> None:
    model = clone(model)
    before = model.fit(X, y).coef_.copy()
    name = "decision_function" if hasattr(model, "classes_") else "predict"
    expected = getattr(model, name)(kind(X))
    assert model.sparsify() is model and sparse.issparse(model.coef_)
    assert model.coef_.nnz == np.count_nonzero(before)
    found = getattr(model, name)(kind(X))
    assert isinstance(found, np.ndarray) and found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert model.sparsify() is model.densify() is model.densify()
    np.testing.assert_array_equal(model.coef_, before)
    assert model.coef_.shape == before.shape
    model.sparsify().fit(X, y)
    np.testing.assert_array_equal(model.coef_, before)


@each_kind
@pytest.mark.parametrize("method", ["coef_frame", "sparsify", "densify"])
def test_there_must_be_a_fit(model: Any, y: np.ndarray, method: str) -> None:
    with pytest.raises(NotFittedError):
        getattr(type(model)(), method)()
