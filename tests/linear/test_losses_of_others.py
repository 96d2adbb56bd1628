"""Minima of other solvers with the losses of linear models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.linear_losses import DEFINITIONS, estimator, phi
from scipy import optimize
from sklearn.linear_model import HuberRegressor, QuantileRegressor
from sklearn.svm import LinearSVC, LinearSVR

from tfopt.linear_model import SDCARegressorCV, sdca_path

random = np.random.default_rng(8)
X = random.standard_normal((150, 6)) @ random.standard_normal((6, 6))
Z = X @ random.standard_normal(6) / 4 + random.standard_t(3, 150) / 2 + 0.3
WEIGHT = random.choice([0.5, 1.0, 2.0], 150)


def objective(
    loss: str, parameter: float | None, w: np.ndarray, b: float, y: np.ndarray, l2: float
) -> float:
    """Return what is minimized."""
    return float(WEIGHT @ phi(loss, X @ w + b, y, parameter) + l2 / 2 * w @ w)


def check(ours: Any, parameter: float | None, w: np.ndarray, b: float, y: np.ndarray) -> None:
    """Compare with a point that another solver has found, and with the own certificate."""
    found = np.ravel(ours.coef_), float(np.ravel(ours.intercept_)[0])
    l2 = ours._l2()
    least = objective(ours.loss, parameter, *found, y, l2)
    assert np.ravel(ours.objective_)[0] == pytest.approx(least, rel=1e-10)
    assert np.ravel(ours.dual_gap_)[0] <= 1e-10 * least
    theirs = objective(ours.loss, parameter, w, b, y, l2)
    assert least * (1 - 1e-9) <= theirs <= least * (1 + 1e-5)


@pytest.mark.parametrize(("C", "dual"), [(0.01, True), (1.0, False), (1.0, True), (100.0, False)])
def test_squared_hinge(C: float, dual: bool) -> None:
    y = np.sign(Z)
    theirs = LinearSVC(C=C, dual=dual, fit_intercept=False, tol=1e-10, max_iter=10**6)
    theirs.fit(X, y, WEIGHT)
    ours = estimator("squared_hinge", C=C, fit_intercept=False, tol=1e-10).fit(X, y, WEIGHT)
    check(ours, None, theirs.coef_[0], 0.0, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    assert not hasattr(ours, "predict_proba")
    np.testing.assert_array_equal(ours.predict(X), np.sign(ours.decision_function(X)))


@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.4])
def test_squared_epsilon_insensitive(C: float, epsilon: float) -> None:
    loss = "squared_epsilon_insensitive"
    theirs = LinearSVR(C=C, epsilon=epsilon, loss=loss, dual=False, fit_intercept=False, tol=1e-8)
    theirs.fit(X, Z, WEIGHT)
    options = {"C": C, "fit_intercept": False, "tol": 1e-10}
    ours = estimator(loss, epsilon, **options).fit(X, Z, WEIGHT)
    check(ours, epsilon, theirs.coef_, 0.0, Z)
    if epsilon == 0:
        twice = estimator("squared", l2=0.5 / C, fit_intercept=False, tol=1e-12).fit(X, Z, WEIGHT)
        np.testing.assert_allclose(ours.coef_, twice.coef_, rtol=1e-5)


@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.4])
def test_epsilon_insensitive(C: float, epsilon: float) -> None:
    options = {"C": C, "fit_intercept": False}
    theirs = LinearSVR(epsilon=epsilon, tol=1e-9, max_iter=10**7, **options).fit(X, Z, WEIGHT)
    for solver in ("auto", "sdca") if C < 1 else ("auto",):
        ours = estimator(
            "epsilon_insensitive", epsilon, tol=1e-10, solver=solver, max_iter=10**5, **options
        )
        check(ours.fit(X, Z, WEIGHT), epsilon, theirs.coef_, 0.0, Z)
    if epsilon == 0:  # twice the distance from the median
        half = estimator("quantile", 0.5, l2=0.5 / C, fit_intercept=False, tol=1e-12)
        np.testing.assert_allclose(ours.coef_, half.fit(X, Z, WEIGHT).coef_, atol=1e-4)


@pytest.mark.parametrize("epsilon", [0.05, 1.35, 100.0])
def test_huber(epsilon: float) -> None:
    """scikit-learn's estimates a scale; the objective is that of a scale of 1."""

    def value(u: np.ndarray) -> tuple[float, np.ndarray]:
        slopes = WEIGHT * np.clip(X @ u[:-1] + u[-1] - Z, -epsilon, epsilon)
        gradient = np.append(X.T @ slopes + 0.5 * u[:-1], slopes.sum())
        return objective("huber", epsilon, u[:-1], u[-1], Z, 0.5), gradient

    theirs = optimize.minimize(value, np.zeros(7), jac=True, method="BFGS", tol=1e-9).x
    for solver in ("auto", "newton-cg", "cd"):
        ours = estimator("huber", epsilon, l2=0.5, tol=1e-10, solver=solver).fit(X, Z, WEIGHT)
        check(ours, epsilon, theirs[:-1], theirs[-1], Z)
        np.testing.assert_allclose(ours.coef_, theirs[:-1], atol=1e-4)


def test_huber_with_the_scale_that_scikit_learn_estimates() -> None:
    theirs = HuberRegressor(epsilon=1.2, alpha=0.3, tol=1e-9, max_iter=1000).fit(X, Z, WEIGHT)
    options = {"l2": 0.3 * theirs.scale_, "tol": 1e-10}
    ours = estimator("huber", 1.2 * theirs.scale_, **options).fit(X, Z, WEIGHT)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=1e-4)


@pytest.mark.parametrize("q", [0.1, 0.5, 0.8])
def test_quantile(q: float) -> None:
    """scikit-learn's has an l1 penalty: here both have next to none."""
    theirs = QuantileRegressor(quantile=q, alpha=0.0, solver="highs").fit(X, Z, WEIGHT)
    ours = estimator("quantile", q, l2=1e-9, tol=1e-10).fit(X, Z, WEIGHT)
    check(ours, q, theirs.coef_, theirs.intercept_, Z)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    below = WEIGHT[ours.predict(X) >= Z - 1e-6].sum() / WEIGHT.sum()
    assert below == pytest.approx(q, abs=0.06)


@pytest.mark.parametrize(
    ("loss", "parameter"),
    [
        ("quantile", 0.9),
        ("huber", 0.2),
        ("epsilon_insensitive", 1.0),
        ("squared_epsilon_insensitive", 1.0),
    ],
)
def test_paths_and_the_choice_of_a_penalty_have_the_parameter(loss: str, parameter: float) -> None:
    given = {DEFINITIONS[loss].option: parameter}
    alone = estimator(loss, parameter, l2=2.0, tol=1e-10).fit(X, Z)
    path = sdca_path(X, Z, loss, l2s=[2.0, 5.0], tol=1e-10, **given)
    np.testing.assert_allclose(path.coefs[0, 0], alone.coef_, atol=1e-4)
    chosen = SDCARegressorCV(loss, l2s=[2.0], cv=2, tol=1e-10, **given).fit(X, Z)
    np.testing.assert_allclose(chosen.coef_, alone.coef_, atol=1e-4)
    blocks = estimator(loss, parameter, l2=2.0, tol=1e-10, num_loss_partitions=[50, 100])
    np.testing.assert_allclose(blocks.fit(X, Z).coef_, alone.coef_, atol=1e-4)
    other = estimator(loss, l2=2.0, tol=1e-10).fit(X, Z)
    assert np.abs(other.coef_ - alone.coef_).max() > 1e-3
