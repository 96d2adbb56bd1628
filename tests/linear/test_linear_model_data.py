"""Converged objectives on real data are the reference optima; sparse solutions scikit-learn's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from linear_data import beMTPL97, bike_hour, cal_housing, libsvm, rcv1_small, training_part
from sklearn.linear_model import LogisticRegression

from tfopt.linear_model import SDCAClassifier, SDCARegressor
from tfopt.linear_model._fit import plan

EXACT: dict[str, Any] = {"tol": 1e-10}

#: Without and with an intercept; over all rows, l2 = 1.
LOGISTIC = {
    "a9a": (10529.56258464, 10528.57243054),
    "agaricus": (98.51364476, 98.47967310),
    "heart_scale": (98.22679951, 94.65522422),
    "w8a": (6277.36297321, 2540.86291976),
}


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("name", LOGISTIC)
def test_logistic(name: str, intercept: bool) -> None:
    model = SDCAClassifier(fit_intercept=intercept, **EXACT).fit(*libsvm(name))
    assert model.objective_[0] == pytest.approx(LOGISTIC[name][intercept], rel=1e-8)


@pytest.mark.parametrize(("intercept", "optimum"), [(False, 476.81383370), (True, 476.66463093)])
def test_logistic_with_more_features_than_rows(intercept: bool, optimum: float) -> None:
    model = SDCAClassifier(fit_intercept=intercept, **EXACT).fit(*rcv1_small())
    assert model.objective_[0] == pytest.approx(optimum, rel=1e-8)


@pytest.mark.parametrize("partitions", [2, 4])
def test_partitions_find_the_same_optimum(partitions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "has_hessian", lambda problem: False)
    X, y = libsvm("agaricus")
    model = SDCAClassifier(num_loss_partitions=partitions, **EXACT).fit(X, y)
    assert model.objective_[0] == pytest.approx(98.47967310, rel=1e-8)


def test_one_versus_rest() -> None:
    model = SDCAClassifier(**EXACT).fit(*libsvm("dna.scale"))
    optima = [133.67366678, 141.82069490, 227.07520399]
    assert model.objective_ == pytest.approx(optima, rel=1e-8)


def test_ridge() -> None:
    model = SDCARegressor(**EXACT).fit(*training_part(*libsvm("abalone_scale")))
    assert 2 * model.objective_ == pytest.approx(16525.83147793, rel=1e-8)


def test_ridge_of_correlated_features() -> None:
    model = SDCARegressor(**EXACT).fit(*cal_housing())
    assert 2 * model.objective_ == pytest.approx(7988.43277193, rel=1e-8)


def test_poisson() -> None:
    X, y = bike_hour()
    model = SDCARegressor("poisson", l2=1e-4 * len(y), **EXACT).fit(X, y)
    assert model.objective_ / len(y) == pytest.approx(16.42160715, rel=1e-8)


def test_poisson_with_exposure() -> None:
    X, y, years = beMTPL97()
    model = SDCARegressor("poisson", l2=1e-4 * years.sum(), **EXACT).fit(X, y, years)
    assert model.objective_ / years.sum() == pytest.approx(0.29937377, rel=1.7e-8)  # 8 decimals


@pytest.mark.parametrize("penalty", [1.0, 5.0, 15.0])
def test_l1_selects_the_features_that_saga_does(penalty: float) -> None:
    X, y = libsvm("heart_scale")
    ours = SDCAClassifier(l1=penalty, l2=penalty, tol=1e-9, max_iter=5000).fit(X, y)
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)  # required by saga
    saga = LogisticRegression(
        l1_ratio=0.5, C=0.5 / penalty, solver="saga", tol=1e-9, max_iter=20_000, random_state=0
    ).fit(X, y)
    chosen = ours.coef_ != 0
    assert 0 < chosen.sum() < chosen.size
    np.testing.assert_array_equal(chosen, np.abs(saga.coef_) > 1e-7)
    np.testing.assert_allclose(ours.coef_, saga.coef_, atol=2e-4)
