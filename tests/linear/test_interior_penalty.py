"""l1 with losses that have corners, by the interior-point method; l2 may be 0."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from certified import check
from common.linear_losses import CORNERED, estimator, targets
from scipy import optimize, sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import QuantileRegressor

import tfopt
from tfopt.linear_model import LinearClassifier, LinearRegressor, LinearRegressorCV, sdca_path

PARAMETER = 0.3
each_loss = pytest.mark.parametrize("loss", CORNERED)


def data(loss: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features of several sizes, one twice and one constant; labels, and weights, some 0."""
    random = np.random.default_rng(1)
    X = random.standard_normal((120, 9)) * np.logspace(-1, 1, 9)
    X[:, 3], X[:, 6] = X[:, 2], 1.5
    z = X[:, 2] - X[:, 7] / 3 + 0.5 + random.standard_normal(120)
    return X, targets(loss, z, random), random.choice([0.0, 0.5, 1.0, 2.0], 120)


def fitted(loss: str, X: Any, y: np.ndarray, weight: Any = None, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        return estimator(loss, PARAMETER, **options).fit(X, y, weight)


@each_loss
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("l2", [0.0, 1e-3, 1.0])
def test_certificates_are_those_of_the_definitions(loss: str, intercept: bool, l2: float) -> None:
    X, y, weight = data(loss)
    for l1 in (0.1, 5.0):
        for rows in (X, sparse.csr_matrix(X), X.astype(np.float32)):
            for tol in (1e-2, 1e-8):
                options = {"l1": l1, "l2": l2, "fit_intercept": intercept, "tol": tol}
                model = fitted(loss, rows, y, weight, solver="interior-point", **options)
                assert model.dual_gap_ <= tol * model.objective_ and model.n_iter_[0] <= 60
                check(model, rows, y, weight)
        assert l1 < 1 or (model.coef_ == 0).any()


@each_loss
def test_epochs_and_interior_points_have_the_same_minimum(loss: str) -> None:
    X, y, weight = data(loss)
    options = {"l1": 2.0, "l2": 1.0, "max_iter": 10**5}
    inside = fitted(loss, X, y, weight, solver="interior-point", tol=1e-9, **options)
    epochs = fitted(loss, X, y, weight, solver="sdca", tol=1e-6, **options)
    assert inside.objective_ == pytest.approx(epochs.objective_, rel=2e-6)
    both = fitted(loss, X, y, weight, tol=1e-9, **options)  # whichever is less work
    assert both.objective_ == pytest.approx(inside.objective_, rel=1e-8)


@pytest.mark.parametrize("quantile", [0.3, 0.9])
@pytest.mark.parametrize("intercept", [False, True])
def test_quantiles_with_l1_are_scikit_learns(quantile: float, intercept: bool) -> None:
    X, y, weight = data("quantile")
    X = np.delete(X, [3, 6], axis=1)
    for alpha in (0.003, 0.1):
        rival = QuantileRegressor(quantile=quantile, alpha=alpha, fit_intercept=intercept)
        rival.fit(X, y, weight)
        more = {"fit_intercept": intercept, "l1": alpha * weight.sum(), "l2": 0.0, "tol": 1e-10}
        ours = LinearRegressor("quantile", quantile=quantile, **more).fit(X, y, weight)
        np.testing.assert_allclose(ours.coef_, rival.coef_, atol=1e-6)
        assert ours.intercept_ == pytest.approx(rival.intercept_, abs=1e-6)
        np.testing.assert_array_equal(ours.coef_ == 0, np.abs(rival.coef_) < 1e-9)


def test_a_support_vector_machine_with_l1_alone_is_the_linear_programs() -> None:
    X, y, weight = data("hinge")
    n, m = X.shape
    # w = p - q, margins: y (x . (p - q) + b+ - b-) + s >= 1
    A = np.column_stack([y[:, None] * X, -y[:, None] * X, y, -y, np.eye(n)])
    cost = np.concatenate([np.full(2 * m, 2.0), [0, 0], weight])
    least = optimize.linprog(cost, A_ub=-A, b_ub=-np.ones(n), method="highs").fun
    ours = fitted("hinge", X, y, weight, l1=2.0, l2=0.0, tol=1e-9)
    assert ours.objective_[0] == pytest.approx(least, rel=1e-8)
    assert ours.solver_ == ["interior-point"]


def test_several_classes_and_quantiles_are_fitted_by_themselves() -> None:
    X, y, _ = data("quantile")
    classes = np.digitize(y, [-1, 1])
    model = LinearClassifier("hinge", l1=1.0, l2=0.0, tol=1e-8).fit(X, classes)
    for k in range(3):
        one = LinearClassifier("hinge", l1=1.0, l2=0.0, tol=1e-8).fit(X, classes == k)
        assert model.objective_[k] == pytest.approx(one.objective_[0], rel=2e-8)
    levels = LinearRegressor("quantile", quantile=[0.2, 0.8], l1=1.0, l2=0.0, tol=1e-8).fit(X, y)
    assert levels.coef_.shape == (2, 9) and (levels.dual_gap_ <= 1e-8 * levels.objective_).all()


def test_paths_and_warm_starts_end_where_fits_do() -> None:
    X, y, _ = data("quantile")
    path = sdca_path(X, y, "quantile", l1s=4, l2=0.0, tol=1e-8)
    model = LinearRegressor("quantile", l2=0.0, tol=1e-8, warm_start=True)
    for l1, objective in zip(path.l1s.tolist(), path.objectives[:, 0].tolist(), strict=True):
        cold = LinearRegressor("quantile", l1=l1, l2=0.0, tol=1e-8).fit(X, y)
        warm = model.set_params(l1=l1).fit(X, y)
        assert objective == pytest.approx(cold.objective_, rel=2e-8)
        assert warm.objective_ == pytest.approx(cold.objective_, rel=2e-8)
    chosen = LinearRegressorCV("quantile", l1s=[1e4, 1.0], l2=0.0).fit(X, y)
    assert chosen.l1_ == 1.0 and chosen.scores_.shape == (5, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"l2": 0.0}, "l2=0 needs l1 > 0"),
        ({"l1": 1.0, "l2": 0.0, "solver": "sdca"}, "solver='auto' or 'interior-point'"),
        ({"l1": 1.0, "l2": 0.0, "num_loss_partitions": 2}, "num_loss_partitions=None"),
        ({"l1": 1.0, "l2": 0.0, "num_loss_partitions": [60, 60]}, "no fixed blocks"),
    ],
)
def test_what_does_not_apply_is_refused(options: dict[str, Any], message: str) -> None:
    X, y, _ = data("quantile")
    with pytest.raises(ValueError, match=message):
        LinearRegressor("quantile", **options).fit(X, y)


def test_without_l2_there_may_be_5000_features() -> None:
    X = sparse.csr_matrix((60, 5001))
    with pytest.raises(tfopt.InvalidArgumentError, match="at most 5000 features, and X has 5001"):
        LinearClassifier("hinge", l1=1.0, l2=0.0).fit(X, np.arange(60) % 2)
