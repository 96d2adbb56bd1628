"""Fits without any penalty: against scikit-learn and the definitions, and where there is none."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from common.linear_losses import DEFINITIONS, conjugate, estimator, phi, targets
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import (
    GammaRegressor,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    TweedieRegressor,
)

from tfopt.errors import InvalidArgumentError
from tfopt.linear_model import LinearClassifier, LinearRegressor, sdca_path

#: The losses of generalized linear models, and scikit-learn's estimators.
RIVALS: dict[str, Any] = {
    "squared": LinearRegression,
    "logistic": lambda **more: LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000, **more),
    "poisson": lambda **more: PoissonRegressor(alpha=0, tol=1e-11, max_iter=10_000, **more),
    "gamma": lambda **more: GammaRegressor(alpha=0, tol=1e-11, max_iter=10_000, **more),
    "tweedie": lambda **more: TweedieRegressor(
        alpha=0, power=1.5, tol=1e-11, max_iter=10_000, **more
    ),
}
OTHERS = [loss for loss in DEFINITIONS if loss not in RIVALS]
each_loss = pytest.mark.parametrize("loss", RIVALS)
N = 200
LONG = np.longdouble


def data(loss: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    X = random.standard_normal((N, 5)) * (random.uniform(size=(N, 5)) < 0.7) + 1
    y = targets(loss, X @ random.standard_normal(5) + 2 * random.standard_normal(N), random)
    return X, y, random.choice([0.0, 0.5, 1.0, 2.0], N)


@each_loss
@pytest.mark.parametrize("form", [np.array, np.asfortranarray, np.float32, sparse.csr_matrix])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_the_minimum_is_that_of_scikit_learn_and_certified(
    loss: str, form: Any, intercept: bool, weighted: bool
) -> None:
    X, y, weights = data(loss)
    rows = np.asarray(sparse.csr_matrix(form(X)).toarray(), float)
    c = weights if weighted else None
    theirs = RIVALS[loss](fit_intercept=intercept).fit(rows, y, c)
    for solver in ("auto", "newton-cholesky"):
        options = {"l2": 0.0, "fit_intercept": intercept, "solver": solver}
        ours = estimator(loss, **options).fit(form(X), y, c)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-3, atol=1e-4)
        assert ours.solver_ == ["newton-cholesky"]
    c, a = (np.ones(N) if c is None else c).astype(LONG), np.ravel(ours.dual_coef_)
    z = rows.astype(LONG) @ np.ravel(ours.coef_) + np.ravel(ours.intercept_)
    primal = c @ phi(loss, z, y, LONG(ours._parameter()))
    dual = -(c @ np.where(c > 0, conjugate(loss, a, y, LONG(ours._parameter())), 0))
    objective, gap = (float(np.ravel(part)[0]) for part in (ours.objective_, ours.dual_gap_))
    assert objective == pytest.approx(float(primal), rel=1e-11)
    assert objective - gap <= float(dual) * (1 + 1e-14) + 1e-14
    assert gap <= 1e-9 * objective
    # what the dual variables have to satisfy, but for rounding
    assert np.abs(rows.T @ (c * a)).max() <= 1e-11 * (np.abs(rows).T @ (c * np.abs(a) + y**2)).max()


@each_loss
def test_a_tolerance_is_kept_and_each_gap_is_a_bound(loss: str) -> None:
    X, y, weights = data(loss)
    best = float(np.ravel(estimator(loss, l2=0.0).fit(X, y, weights).objective_)[0])
    for max_iter in (1, 2, 3):
        model = estimator(loss, l2=0.0, tol=1e-13, max_iter=max_iter)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, y, weights)
        assert model.n_iter_[0] <= max_iter
        low = np.ravel(model.objective_)[0] - np.ravel(model.dual_gap_)[0]
        assert low <= best * (1 + 1e-12) and np.ravel(model.objective_)[0] >= best * (1 - 1e-12)
    loose = estimator(loss, l2=0.0, tol=1e-2).fit(X, y, weights)
    assert np.ravel(loose.dual_gap_)[0] <= 1e-2 * np.ravel(loose.objective_)[0]


@each_loss
def test_it_goes_on_from_the_last_fit(loss: str) -> None:
    X, y, _ = data(loss)
    model = estimator(loss, l2=0.0, tol=1e-10, warm_start=True).fit(X, y)
    before = model.coef_.copy()
    assert model.fit(X, y).n_iter_[0] <= 2
    np.testing.assert_allclose(model.coef_, before, atol=1e-5)


def test_of_several_classes_and_targets() -> None:
    X, y, weights = data("squared")
    Y = np.column_stack([y, y**2])
    model = LinearRegressor(l2=0.0).fit(X, Y, weights)
    theirs = LinearRegression().fit(X, Y, weights)
    np.testing.assert_allclose(model.coef_, theirs.coef_, rtol=1e-9)
    codes = np.digitize(y, [-1.0, 2.0])
    of_each = LinearClassifier(l2=0.0).fit(X, codes)
    for k in range(3):
        alone = LinearClassifier(l2=0.0).fit(X, codes == k)
        np.testing.assert_allclose(of_each.coef_[k], alone.coef_[0], rtol=1e-6)


def refused(model: Any, *rows: Any) -> str:
    before = repr(vars(model))
    with pytest.raises(ValueError) as error:
        model.fit(*rows)
    assert repr(vars(model)) == before
    return str(error.value)


def test_where_there_is_no_minimum_it_is_refused() -> None:
    X, _, _ = data("squared")
    sides = X @ np.arange(1.0, 6.0) > 8
    assert "these weights separate the classes" in refused(LinearClassifier(l2=0.0), X, sides)
    # as if the sample on the wrong side were not there
    weight = np.ones(N)
    sides[0], weight[0] = ~sides[0], 0.0
    message = refused(LinearClassifier(l2=0.0), X, sides, weight)
    assert "these weights separate the classes" in message


@pytest.mark.parametrize("loss", RIVALS)
def test_features_that_depend_on_each_other_are_refused(loss: str) -> None:
    X, y, _ = data(loss)
    model = estimator(loss, l2=0.0)
    for rows in (np.column_stack([X, X[:, 0] - X[:, 1]]), np.column_stack([X, np.full(N, 3.0)])):
        assert "must not depend on each other" in refused(model, rows, y)
    few = np.random.default_rng(0).standard_normal((N, N))
    assert "must not depend on each other" in refused(model, few[:, : N // 2], y, np.arange(N) < 40)


def test_where_some_classes_are_known_for_sure_the_gap_is_true() -> None:
    """A feature that only one class has: its weight goes on for ever, and the losses to a limit."""
    X, y, _ = data("logistic")
    X = np.column_stack([X, (y > 0) & (np.arange(N) % 3 == 0)])
    rest = X[:, -1] == 0
    limit = LinearClassifier(l2=0.0).fit(X[rest, :5], y[rest]).objective_[0]
    model = LinearClassifier(l2=0.0, tol=1e-5).fit(X, y)
    assert model.dual_gap_[0] <= 1e-5 * model.objective_[0]
    assert model.objective_[0] - model.dual_gap_[0] <= limit * (1 + 1e-9) <= model.objective_[0]


@pytest.mark.parametrize("loss", OTHERS)
def test_other_losses_need_a_penalty(loss: str) -> None:
    X, y, _ = data(loss)
    message = "l2=0 needs l1 > 0 or the loss of a generalized linear model"
    assert message in refused(estimator(loss, l2=0.0), X, y)


def test_other_options_that_do_not_apply() -> None:
    X, y, _ = data("squared")
    assert "no fixed blocks" in refused(LinearRegressor(l2=0.0, num_loss_partitions=[N]), X, y)
    assert "adaptive=False" in refused(LinearRegressor(l2=0.0, adaptive=True), X, y)
    assert "solver='auto' or 'newton" in refused(LinearRegressor(l2=0.0, solver="cd"), X, y)
    message = refused(LinearClassifier("multinomial", l2=0.0), X, np.digitize(y, [-1, 1]))
    assert "l2=0.0" in message
    with pytest.raises(InvalidArgumentError, match="l1 and l2 are both 0 in a path"):
        sdca_path(X, y, "squared", l1s=[1.0, 0.0], l2=0.0)
    wide = sparse.random(20, 5001, 0.01, format="csr")
    assert "at most 5000 features" in refused(LinearRegressor(l2=0.0), wide, np.arange(20.0))
