"""Coordinate descent for l1 and elastic nets: sweeps by their formulas, fits by certificates."""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

import numpy as np
import pytest
from certified import check
from common.linear_losses import SMOOTH, estimator, targets
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression

import tfopt
from tfopt.kernels.linear import coordinate_descent as kernels
from tfopt.linear_model._fit import plan, quadratic_model
from tfopt.linear_model._fit.penalty import Penalties
from tfopt.linear_model._fit.problem import as_rows

PARAMETER = 0.6
each_loss = pytest.mark.parametrize("loss", SMOOTH)


@functools.cache
def data(loss: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features that resemble each other, one of them twice and one constant."""
    random = np.random.default_rng(3)
    X = random.standard_normal((60, 7)) @ (np.eye(7) + random.standard_normal((7, 7)) / 4)
    X[:, 4], X[:, 6] = X[:, 3], 2.0
    z = X[:, 0] - X[:, 5] / 2 + 0.5 + random.standard_normal(60) / 2
    y = {"poisson": targets("poisson", z, random)}.get(loss, targets(loss, z, random))
    return X, y, random.choice([0.0, 0.5, 1.0, 2.0], 60)


def fitted(loss: str, X: Any, y: np.ndarray, weight: Any = None, **options: Any) -> Any:
    return estimator(loss, PARAMETER, **{"solver": "cd"} | options).fit(X, y, weight)


# ---- kernels


def swept(
    A: np.ndarray, gradient: np.ndarray, w: np.ndarray, down: np.ndarray, up: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Set each weight where ``gradient . d + d . A d / 2`` and the penalties are least.

    These are, of each weight, ``up * max(w, 0) + down * max(-w, 0)``. Returns the weights, the
    gradient there, and by how much steps have lowered the model at least.
    """
    w, gradient, lowered = w.copy(), gradient.copy(), 0.0
    for j, curvature in enumerate(np.diagonal(A).tolist()):
        z = w[j] * curvature - gradient[j]
        found = (z - min(max(z, -down[j]), up[j])) / curvature if curvature > 0 else 0.0
        step, w[j] = found - w[j], found
        gradient += A[j] * step
        lowered += curvature * step**2
    return w, gradient, lowered


def slopes_of(
    draws: st.DataObject, random: np.random.Generator, l1: float, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the penalties' slopes below 0 and above it: l1, or as factors and signs have them."""
    up = l1 * random.choice([1.0, 0.0, 2.0], n) if draws.draw(st.booleans()) else np.full(n, l1)
    return np.full(n, np.inf) if draws.draw(st.booleans()) else up, up


@settings(max_examples=40)
@given(st.data())
def test_sweeps_over_a_matrix_find_one_minimum_after_another(draws: st.DataObject) -> None:
    """Until a sweep lowers the model by no more than the tolerance."""
    random = np.random.default_rng(draws.draw(st.integers(0, 999)))
    n = draws.draw(st.integers(0, 6))
    half = random.standard_normal((n, n))
    A = half @ half.T
    if n and draws.draw(st.booleans()):
        A[0] = A[:, 0] = 0.0
    gradient = 3 * random.standard_normal(n) * (np.diagonal(A) > 0)
    w = random.standard_normal(n) * random.choice([0, 1], n)
    slopes = slopes_of(draws, random, draws.draw(st.sampled_from([0.0, 0.3, 5.0])), n)
    most = draws.draw(st.integers(0, 4))
    tolerance = draws.draw(st.sampled_from([0.0, 0.1, 10.0]))
    expected, lowered, n_sweeps = (w.copy(), gradient.copy()), math.inf, 0
    while n_sweeps < most and lowered > tolerance:
        *expected, lowered = swept(A, expected[1], expected[0], *slopes)
        n_sweeps += 1
    assert kernels.descend_matrix(A, gradient, w, *slopes, tolerance, most) == n_sweeps
    scale = 1e-12 * (1 + np.abs(expected[1]).max(initial=0.0))
    np.testing.assert_allclose(w, expected[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-9, atol=scale)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("alike", [0.1, 0.03])
def test_a_model_of_features_that_resemble_each_other_is_minimized(seed: int, alike: float) -> None:
    """Where rounds of sweeps alone would leave a millionth, or a hundredth."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((50, 1)) + alike * random.standard_normal((50, 6))
    A, l1, n = X.T @ X, 0.1, 6
    gradient = -X.T @ (X @ [1, 1, 0, 0, -1, 1] + alike * random.standard_normal(50))
    first, w = gradient.copy(), np.zeros(6)
    quadratic_model.minimize_model(A, gradient, w, Penalties.of(n, l1, 0.0), 1e-12)
    np.testing.assert_allclose(gradient, first + A @ w, atol=1e-9)
    pulls = np.where(w != 0, gradient + l1 * np.sign(w), np.maximum(np.abs(gradient) - l1, 0))
    assert np.abs(pulls).max() <= 1e-9


@settings(max_examples=40)
@given(st.data())
def test_sweeps_over_columns_are_those_over_their_matrix(draws: st.DataObject) -> None:
    """The first of five goes over all weights, the others over those that are not 0."""
    random = np.random.default_rng(draws.draw(st.integers(0, 999)))
    n_samples, n = draws.draw(st.integers(1, 9)), draws.draw(st.integers(1, 5))
    dtype = draws.draw(st.sampled_from([np.float32, np.float64]))
    X = (random.standard_normal((n_samples, n)) * random.choice([0, 1], (n_samples, n))).astype(
        dtype
    )
    by_column = X.T.copy()
    columns = as_rows(sparse.csr_array(by_column) if draws.draw(st.booleans()) else by_column)
    D = random.uniform(0, 1, n_samples)
    share = draws.draw(st.sampled_from([0.0, 1 / D.sum()]))
    l2 = draws.draw(st.sampled_from([0.0, 0.5])) * random.choice([1.0, 2.0], n)
    X, sums = X.astype(float), D @ X
    A = X.T @ (D[:, None] * X) - share * np.outer(sums, sums)
    curvatures = np.maximum(np.diagonal(A), 0) + l2
    curvatures[curvatures < 1e-12] = 0.0
    np.fill_diagonal(A, curvatures)
    slopes, start = 2 * random.standard_normal(n_samples), random.standard_normal(n)
    start *= random.choice([0, 1], n) * (curvatures > 0)
    if share:
        slopes -= D * slopes.sum() / D.sum()  # the intercept is the best one
    l1, tolerance = draws.draw(st.sampled_from([(0.1, 0.0), (1.0, 1e-3), (9.0, 1.0)]))
    most, around = draws.draw(st.integers(0, 12)), slopes_of(draws, random, l1, n)
    w, moved = start.copy(), slopes.copy()
    expected, gradient, n_sweeps = start.copy(), X.T @ slopes + l2 * start, 0
    while n_sweeps < most:
        some = expected != 0 if n_sweeps % 5 else np.ones(n, bool)
        at, _, lowered = swept(
            *(A[np.ix_(some, some)], gradient[some], expected[some]),
            *(slope[some] for slope in around),
        )
        step = np.zeros(n)
        step[some] = at - expected[some]
        expected, gradient, n_sweeps = expected + step, gradient + A @ step, n_sweeps + 1
        if some.all() and n_sweeps % 5 == 1 and lowered <= tolerance:
            break
    found = kernels.descend_columns(
        *columns, D, sums, curvatures, moved, w, share, *around, l2, tolerance, most
    )
    if tolerance or most < 6:  # to 0, sweeps end by rounding
        assert found[0] == n_sweeps
    b = -share * float(sums @ (w - start))
    assert found[1] == pytest.approx(b, rel=1e-9, abs=1e-12)
    np.testing.assert_allclose(w, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(moved, slopes + D * (X @ (w - start)), rtol=1e-9, atol=1e-9)


def test_columns_out_of_range_are_refused() -> None:
    columns = [np.ones(2), np.array([0, 3]), np.array([0, 1, 2]), np.zeros((2, 0))]
    arrays = np.ones(3), np.ones(2), np.ones(2), np.ones(3), np.zeros(2)
    slopes = np.ones(2), np.ones(2)
    with pytest.raises(tfopt.IndexOutOfRangeError):
        kernels.descend_columns(*columns, *arrays, 0.0, *slopes, np.zeros(2), 0.0, 4)
    with pytest.raises(tfopt.InvalidArgumentError):
        shorter = *arrays[:1], np.ones(1), *arrays[2:]
        kernels.descend_columns(*columns, *shorter, 0.0, *slopes, np.zeros(2), 0, 4)
    for place in range(3):
        each = [*slopes, np.zeros(2)]
        each[place] = np.ones(3)
        with pytest.raises(tfopt.InvalidArgumentError):
            kernels.descend_columns(*columns, *arrays, 0.0, *each, 0.0, 4)
    for matrix, slope in ((np.eye(2), np.ones(3)), (np.eye(3), np.ones(2))):
        with pytest.raises(tfopt.InvalidArgumentError):
            kernels.descend_matrix(matrix, np.ones(3), np.ones(3), slope, slope, 0.0, 4)


# ---- fits


@each_loss
@pytest.mark.parametrize("l2", [0.0, 0.5])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", ["dense", "csr", "columns"])
def test_few_iterations_lead_to_a_certificate(
    loss: str, l2: float, intercept: bool, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y, weight = data(loss)
    if kind == "columns":
        monkeypatch.setattr(quadratic_model, "MOST_IN_MATRIX", 0)
        monkeypatch.setattr(quadratic_model, "LARGEST_MATRIX", 0)
        monkeypatch.setattr(quadratic_model, "SMALLEST", 2)
    rows = sparse.csr_matrix(X) if kind == "csr" else X
    for l1 in (0.5, 6.0):
        options = {"l1": l1, "l2": l2, "fit_intercept": intercept}
        model = fitted(loss, rows, y, weight, **options, tol=1e-9, max_iter=2000)
        assert np.max(np.ravel(model.dual_gap_) / np.ravel(model.objective_)) <= 1e-9
        assert model.solver_ == ["cd"]
        assert np.ravel(model.n_iter_)[0] <= {"smooth_hinge": 120}.get(loss, 15)
        check(model, X, y, weight)
        for max_iter in (1, 3):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model = fitted(loss, rows, y, weight, **options, tol=1e-14, max_iter=max_iter)
            check(model, X, y, weight)


@each_loss
@pytest.mark.parametrize("size", [1, 3])
def test_working_sets_find_the_minimum(
    loss: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y, weight = data(loss)
    whole = fitted(loss, X, y, weight, l1=2.0, l2=0.0, tol=1e-9, max_iter=2000)
    monkeypatch.setattr(quadratic_model, "SMALLEST", size)
    for rows in (X, sparse.csr_matrix(X)):
        some = fitted(loss, rows, y, weight, l1=2.0, l2=0.0, tol=1e-9, max_iter=2000)
        assert some.objective_ == pytest.approx(whole.objective_, rel=1e-8)


def test_of_features_that_are_equal_one_is_enough() -> None:
    X, y, _ = data("squared")
    model = fitted("squared", X, y, l1=0.5, l2=0.0, tol=1e-12)
    assert model.coef_[6] == 0  # constant: the intercept's
    assert model.dual_gap_ <= 1e-12 * model.objective_


@pytest.mark.parametrize("intercept", [False, True])
def test_lasso_and_elastic_net_are_scikit_learns(intercept: bool) -> None:
    X, y, _ = data("squared")
    X = np.delete(X, [4], axis=1)
    n = len(y)
    lasso = Lasso(0.1, fit_intercept=intercept, tol=1e-12, max_iter=100_000).fit(X, y)
    ours = fitted("squared", X, y, l1=0.1 * n, l2=0.0, fit_intercept=intercept, tol=1e-12)
    np.testing.assert_allclose(ours.coef_, lasso.coef_, atol=1e-6)
    assert ours.intercept_ == pytest.approx(lasso.intercept_, abs=1e-6)
    net = ElasticNet(0.1, l1_ratio=0.7, fit_intercept=intercept, tol=1e-12, max_iter=100_000)
    net.fit(X, y)
    options = {"l1": 0.07 * n, "l2": 0.03 * n, "fit_intercept": intercept, "tol": 1e-12}
    ours = fitted("squared", sparse.csr_matrix(X), y, **options)
    np.testing.assert_allclose(ours.coef_, net.coef_, atol=1e-6)


def test_sparse_logistic_regression_is_liblinears() -> None:
    X, y, _ = data("logistic")
    X = np.delete(X, [4], axis=1)
    rival = LogisticRegression(
        C=0.5, l1_ratio=1.0, solver="liblinear", fit_intercept=False, tol=1e-10, max_iter=10_000
    )
    rival.fit(X, y)
    ours = fitted("logistic", X, y, l1=2.0, l2=0.0, fit_intercept=False, tol=1e-12)
    np.testing.assert_allclose(ours.coef_, rival.coef_, atol=1e-5)


def test_above_the_largest_useful_l1_all_weights_are_0() -> None:
    for loss in SMOOTH:
        X, y, _ = data(loss)
        model = fitted(loss, X, y, l1=1e4, l2=0.0)
        assert not model.coef_.any()
        assert (np.ravel(model.dual_gap_) <= 1e-12 * np.ravel(model.objective_)).all()


def test_several_classes_and_threads() -> None:
    X, y, _ = data("squared")
    classes, coefs = np.digitize(y, [-1.0, 0.5, 2.0]), set()
    for n_threads in (1, 3):
        tfopt.threads.set_num_threads(n_threads)
        model = fitted("logistic", X, classes, l1=0.5, l2=0.0, n_jobs=n_threads)
        coefs.add(model.coef_.tobytes())
        assert model.solver_ == ["cd"] * 4
    assert len(coefs) == 1


def test_a_warm_start_begins_at_the_weights() -> None:
    X, y, _ = data("logistic")
    model = fitted("logistic", X + 5, y, l1=0.5, l2=0.0, tol=1e-6, warm_start=True)
    assert model.n_iter_[0] > 3
    assert model.fit(X + 5, y).n_iter_[0] <= 2


def test_a_warm_start_where_losses_overflow_begins_at_0() -> None:
    X, y, _ = data("poisson")
    model = fitted("poisson", X, y, l1=0.5, l2=0.0, warm_start=True)
    coef = model.coef_
    model.coef_ = 1e4 * coef
    np.testing.assert_allclose(model.fit(X, y).coef_, coef, rtol=1e-4, atol=1e-6)


def test_more_iterations_than_allowed_warn() -> None:
    X, y, _ = data("logistic")
    with pytest.warns(ConvergenceWarning, match="after max_iter=2 iterations"):
        fitted("logistic", X, y, l1=0.5, l2=0.0, max_iter=2)
    with pytest.warns(ConvergenceWarning, match="no step lowers the objective further"):
        fitted("logistic", X, y, l1=0.5, l2=0.0, tol=0.0)


def test_small_problems_are_solved_further() -> None:
    X, y, _ = data("logistic")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = fitted("logistic", X, y, l1=0.5, l2=0.0)
    assert model.dual_gap_[0] <= 1e-9 * model.objective_[0]
    assert fitted("logistic", X, y, l1=0.5, l2=0.0, tol=1e-2).n_iter_ < model.n_iter_


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"l1": 0.0}, "l2=0 needs solver='auto' or 'newton-cholesky'$"),
        ({"solver": "sdca"}, "l2=0 needs solver='auto' or 'cd'"),
        ({"solver": "auto", "num_loss_partitions": [30, 30]}, "l2=0 needs no fixed blocks"),
        ({"solver": "auto", "adaptive": True}, "l2=0 needs num_loss_partitions=None and adaptive"),
    ],
)
def test_what_a_lasso_needs(options: dict[str, Any], message: str) -> None:
    X, y, _ = data("squared")
    with pytest.raises(ValueError, match=message):
        fitted("squared", X, y, **{"l1": 1.0, "l2": 0.0} | options)


# ---- which solver works


@each_loss
def test_few_features_with_l1_are_for_coordinate_descent(loss: str) -> None:
    X, y, _ = data(loss)
    assert fitted(loss, X, y, l1=1.0, solver="auto").solver_ == ["cd"]
    for options in ({"num_loss_partitions": 1}, {"adaptive": True}):  # are obeyed
        model = fitted(loss, X, y, l1=1.0, l2=9.0, solver="auto", **options)
        assert model.history_[0][0]["solver"] == "sdca"
    assert fitted(loss, X, y, l1=0.0, solver="auto").solver_ != ["cd"]


def test_epochs_begin_where_they_are_few() -> None:
    X, y, _ = data("logistic")
    X = np.tile(X, 20)
    options = {"l1": 0.5, "solver": "auto", "tol": 1e-4}
    for l2, solver in ((0.0, "cd"), (1e-2, "cd"), (10.0, "sdca"), (1e3, "sdca")):
        model = fitted("logistic", X, y, l2=l2, **options)
        assert model.history_[0][0]["solver"] == solver
    # with weights that are thought to be near, one step is
    model.set_params(warm_start=True, l2=10.0)
    assert model.fit(X, y).history_[0][0]["solver"] == "cd"


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_with_many_features_it_takes_over_from_slow_epochs(
    loss: str, n_classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y, _ = data(loss)
    if loss == "logistic" and n_classes > 2:
        y = np.digitize(data("squared")[1], [-0.5, 1.0])
    monkeypatch.setattr(plan, "MOST_CERTAIN_WEIGHTS", 3)
    monkeypatch.setattr(plan, "UNCERTAINTY", 1e9)
    options = {"l1": 1.0, "l2": 1e-3, "solver": "auto", "tol": 1e-8}
    model = fitted(loss, sparse.csr_matrix(X), y, **options)
    for history in model.history_:
        names = [record["solver"] for record in history]
        assert names[0] == "sdca" and names[-1] == "cd"
        assert names == sorted(names, reverse=True)
    expected = fitted(loss, X, y, **options | {"solver": "cd"})
    np.testing.assert_allclose(model.objective_, expected.objective_, rtol=2e-8)
    assert np.shape(model.dual_coef_)[-1] == len(y)
    again = model.set_params(warm_start=True).fit(sparse.csr_matrix(X), y)
    assert again.history_[0][0]["solver"] == "cd" and len(again.history_[0]) <= 2
    easy = fitted(loss, X, y, **options | {"l2": 1e3, "tol": 1e-4})
    assert easy.solver_[0] == "sdca"


@pytest.mark.parametrize("l2", [0.0, 1.0])
@pytest.mark.parametrize("loss", ["squared", "logistic", "poisson"])
def test_where_a_fit_begins_is_not_certified(loss: str, l2: float) -> None:
    """No multiple of the dual variables of the weights 0 proves anything."""
    X, y, _ = data(loss)
    model = fitted(loss, X, y, l1=1.0, l2=l2, solver="cd", tol=1e-8)
    first, *_, last = model.history_[0]
    assert last["certified"] and not first["certified"] and first["gap"] > 1e-3
