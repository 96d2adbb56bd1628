"""A looser tolerance takes no longer: the solver is chosen by the whole way to it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from tfopt.linear_model import SDCAClassifier, SDCARegressor
from tfopt.linear_model._fit import quadratic_model
from tfopt.linear_model._fit.monitor import CERTIFY_EVERY

TOLERANCES = [1e-2, 1e-3, 1e-4, 1e-5, 1e-6]


def categories(n_rows: int, n_levels: int, n_columns: int, seed: int) -> tuple[Any, np.ndarray]:
    """Return one-hot columns, whose levels have heavy tails, and scores."""
    random = np.random.default_rng(seed)
    levels = (random.pareto(1.1, (n_rows, n_columns)) * 5).astype(np.int64) % n_levels
    places = levels + n_levels * np.arange(n_columns)
    ends = np.arange(0, levels.size + 1, n_columns)
    shape = (n_rows, n_levels * n_columns)
    X = sparse.csr_matrix((np.ones(levels.size), places.ravel(), ends), shape)
    return X, X @ random.standard_normal(shape[1]) / 2


def iterations(model: Any, X: Any, y: np.ndarray) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        return int(model.fit(X, y).n_iter_[0])


@pytest.mark.parametrize("l2", [1.0, 0.1])
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "squared", "poisson", "huber"])
@pytest.mark.parametrize("share", [0.0, 0.003, 0.03, 0.3])
def test_a_looser_tolerance_takes_no_longer(loss: str, share: float, l2: float) -> None:
    """With and without l1, as a share of the least for which all weights are 0.

    But for the epochs between two certificates. A step takes about as long as an epoch here.
    """
    X, z = categories(20_000, 150, 10, 0)
    random = np.random.default_rng(1)
    of_classes = loss in SDCAClassifier._LOSSES
    y = random.poisson(np.exp(z / 4)) if loss == "poisson" else z + random.standard_normal(z.size)
    y = np.where(y > 0, 1.0, -1.0) if of_classes else y.astype(float)
    l1 = share * float(np.abs(X.T @ (y - y.mean())).max())
    kind = SDCAClassifier if of_classes else SDCARegressor
    taken = [iterations(kind(loss, l1=l1, l2=l2, tol=tol), X, y) for tol in TOLERANCES]
    for k, of_looser in enumerate(taken[:-1]):
        assert of_looser <= min(taken[k + 1 :]) + CERTIFY_EVERY, taken


def test_a_matrix_of_few_features_is_swept_over_instead_of_many_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of more features than those whose matrix is always formed."""

    def by_columns(*_: Any) -> None:
        raise AssertionError("the columns have more values than the matrix")

    monkeypatch.setattr(quadratic_model.coordinate_descent, "descend_columns", by_columns)
    X, z = categories(70_000, 60, 10, 2)
    assert quadratic_model.MOST_IN_MATRIX < X.shape[1] <= X.nnz // X.shape[1]
    model = SDCAClassifier(l1=2.0, solver="cd", tol=1e-6).fit(X, z > z.mean())
    assert np.count_nonzero(model.coef_) > quadratic_model.MOST_IN_MATRIX / 4
