"""Penalties of each weight: factors, none at all, and weights that may not be negative."""

from __future__ import annotations

import copy
import math
import warnings
from typing import Any

import numpy as np
import pytest
from common.linear_losses import LOSSES, SMOOTH, parameter_of
from hypothesis import given, settings
from hypothesis import strategies as st
from own_penalties import FACTORS, OWN, PARAMETER, check, data, fitted
from scipy import optimize, sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, Lasso, LinearRegression, Ridge

import tfopt
from tfopt.linear_model import (
    LinearClassifier,
    LinearClassifierCV,
    LinearRegressor,
    LinearRegressorCV,
    sdca_path,
)
from tfopt.linear_model._fit import quadratic_model
from tfopt.linear_model._fit.penalty import Penalties
from tfopt_ref import linear
from tfopt_ref.losses import loss_named

each_loss = pytest.mark.parametrize("loss", SMOOTH)
each_own = pytest.mark.parametrize("own", OWN)


# ---- each weight's own penalty


@each_own
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("intercept", [False, True])
def test_certificates_are_those_of_the_definitions(loss: str, own: str, intercept: bool) -> None:
    X, y, weight = data(loss)
    for rows in (X, sparse.csr_matrix(X), np.asfortranarray(X)):
        for tol in (1e-2, 1e-8):
            model = fitted(
                *(loss, rows, y, weight),
                tol=tol,
                fit_intercept=intercept,
                max_iter=5000,
                **OWN[own],
            )
            assert model.dual_gap_ <= tol * model.objective_
            assert model.solver_ == ["cd" if loss in SMOOTH else "interior-point"]
            check(model, rows, y, weight)


@each_own
@each_loss
def test_small_working_sets_and_columns_find_the_same_minimum(
    loss: str, own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y, weight = data(loss)
    whole = fitted(loss, X, y, weight, tol=1e-9, max_iter=5000, **OWN[own])
    phi_of = loss_named(f"{loss}_loss", parameter_of(loss, PARAMETER))
    of_each = whole.penalty_factor, whole.positive
    problem = linear.Problem(
        *(linear.rows_of(X), y, weight, phi_of, whole.l1, whole._l2(), True), *of_each
    )
    point = np.ravel(whole.coef_), float(np.ravel(whole.intercept_)[0])
    expected = pytest.approx(np.ravel(whole.objective_)[0], rel=1e-12)
    assert linear.primal(problem, *point) == expected
    monkeypatch.setattr(quadratic_model, "SMALLEST", 1)
    for most in (512, 0):
        monkeypatch.setattr(quadratic_model, "MOST_IN_MATRIX", most)
        monkeypatch.setattr(quadratic_model, "LARGEST_MATRIX", most)
        for rows in (X, sparse.csr_matrix(X)):
            some = fitted(loss, rows, y, weight, tol=1e-9, max_iter=5000, **OWN[own])
            assert some.objective_ == pytest.approx(whole.objective_, rel=2e-9)


@given(st.integers(0, 2**32 - 1))
def test_gaps_of_penalties_are_those_of_their_conjugates(seed: int) -> None:
    random = np.random.default_rng(seed)
    l1, l2 = random.choice([0.0, 0.3, 2.0]), random.choice([0.0, 1e-3, 1.0])
    positive, factor = bool(random.integers(2)), random.choice([0.0, 0.5, 1.0, 2.0], 9)
    w, u = random.standard_normal((2, 9)) * random.choice([0.0, 0.3, 1.0, 5.0], (2, 9))
    w = np.abs(w) if positive else w
    penalties = Penalties.of(9, l1, l2, factor, positive)
    beyond = np.maximum(np.maximum(u, -np.inf if positive else -u) - l1 * factor, 0)
    has_square = l2 * factor > 0
    lowest = np.full(9, -np.inf) if positive else -l1 * factor
    u = np.where(has_square, u, np.clip(u, lowest, l1 * factor))  # within the conjugate's domain
    conjugates = np.divide(np.square(beyond), 2 * l2 * factor, out=np.zeros(9), where=has_square)
    value = l1 * factor * np.abs(w) + l2 * factor * np.square(w) / 2
    np.testing.assert_allclose(penalties.gaps(w, u), value + conjugates - u * w, atol=1e-12)
    phi_of = loss_named("squared_loss", 1.0)
    problem = linear.Problem([], [], [], phi_of, l1, l2, False, factor, positive)
    each = zip(w.tolist(), u.tolist(), problem.penalties(9), strict=True)
    twins = [linear.penalty_gap(*given) for given in each]
    np.testing.assert_allclose(penalties.gaps(w, u), twins, atol=1e-12)
    assert penalties.value(w) == pytest.approx(math.fsum(value))
    errors = random.choice([0.0, 1e-3, 0.1], 9)
    bound = penalties.gaps(w, u, errors)
    for _ in range(5):
        moved = u + errors * random.uniform(-1, 1, 9)
        assert (penalties.gaps(w, moved) <= bound * (1 + 1e-9) + 1e-9).all()


def test_violations_are_0_at_the_minimum_and_only_there() -> None:
    penalties = Penalties.of(4, 2.0, 0.0, np.array([1.0, 0.5, 0.0, 1.0]))
    w = np.array([1.0, -1.0, 0.0, 0.0])
    found = penalties.violations(w, np.array([-2.0, 1.0, 0.0, 1.5]))
    np.testing.assert_array_equal(found, [0.0, 0.0, 0.0, -0.5])
    found = penalties.violations(w, np.array([-1.0, 0.0, 0.5, 3.0]))
    np.testing.assert_array_equal(found, [1.0, 1.0, 0.5, 1.0])
    bounded = Penalties.of(2, 2.0, 0.0, positive=True)
    assert bounded.violations(np.zeros(2), np.array([9.0, -3.0])).tolist() == [-11.0, 1.0]


# ---- others' answers


@pytest.mark.parametrize("intercept", [False, True])
def test_positive_fits_are_scikit_learns(intercept: bool) -> None:
    X, y, weight = data("squared")
    n, more = len(y), {"fit_intercept": intercept, "positive": True}
    exact: dict[str, Any] = {"tol": 1e-14, "max_iter": 10**6}
    rivals = (
        ({"l1": 0.2 * n, "l2": 0.0}, Lasso(0.2, **more, **exact).fit(X, y), None),
        ({"l1": 0.1 * n, "l2": 0.1 * n}, ElasticNet(0.2, **more, **exact).fit(X, y), None),
        ({"l2": 0.5}, Ridge(0.5, **more, solver="lbfgs", **exact).fit(X, y), None),
        ({"l2": 0.0}, LinearRegression(**more).fit(X, y), None),
        ({"l2": 0.0}, LinearRegression(**more).fit(X, y, weight), weight),
    )
    for options, rival, weights in rivals:
        ours = fitted("squared", X, y, weights, tol=1e-12, **options, **more)
        np.testing.assert_allclose(ours.coef_, rival.coef_, atol=1e-5)
        assert ours.intercept_ == pytest.approx(rival.intercept_, abs=1e-5)
        assert (ours.coef_ == 0).any()


@pytest.mark.parametrize("scale", [1.0, 1e5])
def test_factors_of_a_ridge_are_those_of_the_normal_equations(scale: float) -> None:
    X, y, weight = data("squared")
    X = X + scale * (scale > 1)  # is centered then
    Z = np.column_stack([X, np.ones(len(X))])
    for factor in (FACTORS, FACTORS + 0.1):
        A = Z.T @ (weight[:, None] * Z) + np.diag(np.append(0.7 * factor, 0.0))
        best = np.linalg.solve(A, Z.T @ (weight * y))
        ours = fitted("squared", X, y, weight, l2=0.7, penalty_factor=factor, tol=1e-12)
        np.testing.assert_allclose(ours.coef_, best[:-1], rtol=1e-7 * scale, atol=1e-9 * scale)


@pytest.mark.parametrize("own", [name for name in OWN if "l1" in OWN[name]])
def test_l1_of_logistic_regression_is_that_of_a_general_solver(own: str) -> None:
    X, y, weight = data("logistic")
    options = OWN[own]
    factor = options.get("penalty_factor", np.ones(6))

    def value(parts: np.ndarray) -> float:  # w is the difference of two parts
        w = parts[:6] - parts[6:12]
        losses = np.logaddexp(0, -y * (X @ w + parts[12]))
        l1, l2 = options["l1"] * factor, options["l2"] * factor
        return float(weight @ losses + l1 @ (parts[:6] + parts[6:12]) + l2 @ w**2 / 2)

    below = (0, 0) if options.get("positive") else (0, None)
    bounds = [(0, None)] * 6 + [below] * 6 + [(None, None)]
    rival = optimize.minimize(
        value, np.zeros(13), bounds=bounds, method="L-BFGS-B", options={"maxfun": 10**5}
    )
    ours = fitted("logistic", X, y, weight, tol=1e-9, **options)
    assert ours.objective_[0] <= rival.fun * (1 + 1e-9)
    assert ours.objective_[0] == pytest.approx(rival.fun, rel=1e-5)


# ---- factors by scaling


@pytest.mark.parametrize("loss", LOSSES)
def test_factors_of_l2_are_for_every_loss(loss: str) -> None:
    """They are what scaled features have without them."""
    X, y, weight = data(loss)
    factor = FACTORS + 0.25
    scale = 1 / np.sqrt(factor)
    for rows in (X, sparse.csr_matrix(X), X.astype(np.float32)):
        model = fitted(loss, rows, y, weight, penalty_factor=factor, tol=1e-8, max_iter=10**4)
        moved = rows.multiply(scale).tocsr() if sparse.issparse(rows) else rows * scale
        plain = fitted(loss, moved, y, weight, tol=1e-8, max_iter=10**4)
        np.testing.assert_array_equal(np.ravel(model.coef_), np.ravel(plain.coef_) * scale)
        assert model.objective_ == plain.objective_ and model.dual_gap_ == plain.dual_gap_
        np.testing.assert_array_equal(model.dual_coef_, plain.dual_coef_)
        check(model, rows, y, weight)


def test_factors_of_a_multinomial_loss_are_those_of_scaled_features() -> None:
    X, _, _ = data("squared")
    y = np.digitize(X[:, 0] + X[:, 1] ** 2, [0, 1])
    factor = FACTORS + 0.25
    model = LinearClassifier("multinomial", penalty_factor=factor).fit(X, y)
    plain = LinearClassifier("multinomial").fit(X * (1 / np.sqrt(factor)), y)
    np.testing.assert_array_equal(model.coef_, plain.coef_ * (1 / np.sqrt(factor)))


def test_factors_of_1_are_none() -> None:
    X, y, _ = data("squared")
    for l1 in (0.0, 1.0):
        ones = LinearRegressor(l1=l1, penalty_factor=np.ones(6)).fit(X, y)
        plain = LinearRegressor(l1=l1).fit(X, y)
        assert ones.coef_.tobytes() == plain.coef_.tobytes()
        assert ones.solver_ == plain.solver_


@pytest.mark.parametrize("factor", [FACTORS, FACTORS + 0.25])
def test_a_warm_start_ends_where_a_cold_one_does(factor: np.ndarray) -> None:
    X, y, _ = data("logistic")
    model = LinearClassifier(penalty_factor=factor, warm_start=True, tol=1e-10).fit(X + 50, y)
    weak = copy.deepcopy(model).set_params(l2=0.1).fit(X + 50, y)
    cold = LinearClassifier(penalty_factor=factor, l2=0.1, tol=1e-10).fit(X + 50, y)
    assert weak.objective_[0] == pytest.approx(cold.objective_[0], rel=1e-9)
    again = model.fit(X + 50, y)
    assert again.n_iter_[0] <= 2


# ---- paths and the choice of a penalty


@pytest.mark.parametrize("factor", [None, FACTORS, FACTORS + 0.25])
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize(
    "grid",
    [{"l2s": [5.0, 0.5]}, {"l1s": [9.0, 1.0], "l2": 0.0}, {"l1s": [9.0, 0.0], "l2s": [0.1, 1.0]}],
)
@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge"])
def test_paths_are_fits_by_themselves(
    loss: str, grid: dict[str, Any], positive: bool, factor: Any
) -> None:
    X, y, weight = data(loss)
    own = {"penalty_factor": factor, "positive": positive, "tol": 1e-9}
    path = sdca_path(X, y, loss, sample_weight=weight, **grid, **own)
    for k, (l1, l2) in enumerate(zip(path.l1s.tolist(), path.l2s.tolist(), strict=True)):
        model = fitted(loss, X, y, weight, l1=l1, l2=l2, **own)
        np.testing.assert_allclose(path.objectives[k], model.objective_, rtol=1e-8)
        if loss in SMOOTH:  # others need not have one minimum
            np.testing.assert_allclose(path.coefs[k, 0], np.ravel(model.coef_), atol=1e-3)


@pytest.mark.parametrize("own", [{"penalty_factor": FACTORS + 0.25}, {"positive": True}])
@pytest.mark.parametrize("l2", [0.0, 1.0])
def test_a_grid_begins_where_all_weights_are_0(own: dict[str, Any], l2: float) -> None:
    X, y, _ = data("squared")
    path = sdca_path(X, y, "squared", l1s=3, l2=l2, tol=1e-10, **own)
    assert not path.coefs[0].any() and path.coefs[1].any()
    below = LinearRegressor(l1=path.l1s[0] * 0.999, l2=l2, tol=1e-12, **own).fit(X, y)
    assert np.count_nonzero(below.coef_) == 1


def test_a_chosen_model_is_that_of_its_penalty() -> None:
    X, y, _ = data("squared")
    for own in ({"penalty_factor": FACTORS + 0.25}, {"penalty_factor": FACTORS, "positive": True}):
        for grid in ({"l2s": [9.0, 0.1]}, {"l1s": [20.0, 0.5]}):
            chosen = LinearRegressorCV(**grid, **own, tol=1e-9).fit(X, y)
            penalty = {"l1": chosen.l1_, "l2": chosen.l2_}
            model = LinearRegressor(**penalty, **own, tol=1e-9).fit(X, y)
            np.testing.assert_allclose(chosen.coef_, model.coef_, atol=1e-6)
    labels = y > np.median(y)
    chosen = LinearClassifierCV(l2s=[9.0, 0.1], positive=True).fit(X, labels)
    assert (chosen.coef_ >= 0).all() and (chosen.coef_ == 0).any()


# ---- standard errors


def test_standard_errors_have_the_factors() -> None:
    X, y, _ = data("squared")
    Z = np.column_stack([X, np.ones(len(X))])
    for factor in (FACTORS, FACTORS + 0.25):
        model = LinearRegressor(l2=2.0, penalty_factor=factor, tol=1e-12).fit(X, y)
        inverse = np.linalg.inv(Z.T @ Z + np.diag(np.append(2.0 * factor, 0.0)))
        left = y - model.predict(X)
        expected = left @ left / (len(y) - 7) * (inverse @ (Z.T @ Z) @ inverse)
        np.testing.assert_allclose(model.covariance(X, y), expected, rtol=1e-8)
    with pytest.raises(tfopt.InvalidArgumentError, match="positive=True"):
        LinearRegressor(positive=True).fit(X, y).covariance(X, y)


# ---- refusals


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("squared", {"penalty_factor": [1.0, 2.0]}, "2 numbers, and X has 6 features"),
    ("squared", {"penalty_factor": [[1.0] * 6]}, "a finite number for each feature"),
    ("squared", {"penalty_factor": [-1.0] * 6}, "none below 0"),
    ("squared", {"penalty_factor": [math.inf] * 6}, "a finite number"),
    ("squared", {"penalty_factor": "none"}, "a finite number for each feature"),
    ("squared", {"penalty_factor": 2.0}, "a finite number for each feature"),
    ("squared", {"penalty_factor": [2.0] * 6, "l2": 0.0}, "which are both 0"),
    ("squared", {"positive": "yes"}, "True or False"),
    ("squared", {"positive": True, "num_loss_partitions": [40, 40]}, "fits in blocks"),
    ("squared", {"penalty_factor": [2.0] * 6, "num_loss_partitions": [40, 40]}, "in blocks"),
    ("squared", {"positive": True, "solver": "newton-cholesky"}, "solver='auto' or 'cd'"),
    ("squared", {"positive": True, "num_loss_partitions": 2}, "num_loss_partitions=None"),
    ("squared", {"positive": True, "adaptive": True}, "adaptive=False"),
    ("hinge", {"positive": True, "solver": "cd"}, "solver='auto' or 'interior-point'"),
    ("quantile", {"penalty_factor": FACTORS, "solver": "sdca"}, "or 'interior-point'"),
    ("logistic", {"positive": True, "solver": "interior-point"}, "solver='auto' or 'cd'"),
    ("hinge", {"positive": True, "num_loss_partitions": [40, 40]}, "fits in blocks"),
    ("multinomial", {"positive": True}, "not loss='multinomial'"),
]


@pytest.mark.parametrize(("loss", "options", "message"), WRONG)
def test_what_does_not_apply_is_refused(loss: str, options: dict[str, Any], message: str) -> None:
    X, y, _ = data("squared" if loss in LinearRegressor._LOSSES else "logistic")
    kind = LinearClassifier if loss in LinearClassifier._LOSSES else LinearRegressor
    model = kind(loss).fit(X, y)
    before = copy.deepcopy(vars(model))
    model.set_params(**options)
    with pytest.raises(tfopt.InvalidArgumentError, match=message):
        model.fit(X, y)
    for name, value in before.items():
        if name not in options:
            np.testing.assert_equal(getattr(model, name), value)


def test_an_offset_of_classes_has_factors_of_scaled_features() -> None:
    X, y, _ = data("logistic")
    offset = np.linspace(-1, 1, len(y))
    factor = FACTORS + 0.25
    model = LinearClassifier(penalty_factor=factor, tol=1e-10).fit(X, y, offset=offset)
    plain = LinearClassifier(tol=1e-10).fit(X * (1 / np.sqrt(factor)), y, offset=offset)
    np.testing.assert_array_equal(model.coef_, plain.coef_ * (1 / np.sqrt(factor)))


def test_a_grid_of_l1_is_not_known_for_weights_without_a_penalty() -> None:
    X, y, _ = data("squared")
    with pytest.raises(tfopt.InvalidArgumentError, match="give the values as l1s"):
        sdca_path(X, y, "squared", l1s=3, penalty_factor=FACTORS)


# ---- where there is no minimum, or no single one


def test_features_without_a_penalty_may_depend_on_each_other() -> None:
    X, y, weight = data("squared")
    X = X.copy()
    X[:, 5], X[:, 1] = X[:, 0], 2.0  # without a penalty twice, and a constant
    factor = [0.0, 0.0, 1.0, 1.0, 1.0, 0.0]
    model = fitted("squared", X, y, weight, penalty_factor=factor, tol=1e-10)
    check(model, X, y, weight)
    one = fitted("squared", X[:, [0, 2, 3, 4]], y, weight, penalty_factor=[0, 1, 1, 1], tol=1e-10)
    assert model.objective_ == pytest.approx(one.objective_, rel=1e-9)


@pytest.mark.parametrize("positive", [False, True])
def test_weights_without_a_penalty_that_separate_classes_are_refused(positive: bool) -> None:
    X, _, _ = data("squared")
    y = X[:, 0] + X[:, 5] > 0.1
    own = {"penalty_factor": FACTORS, "positive": positive}
    with pytest.raises(tfopt.InvalidArgumentError, match="separate the classes"):
        LinearClassifier(**own).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        least = LinearClassifier("squared_hinge", **own, max_iter=30).fit(X, y)
    assert least.objective_[0] < 1e-9  # which losses that end at 0 attain


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1))
def test_many_features_that_are_not_negative_are_certified(seed: int) -> None:
    """With many more features than are not 0, and no penalty at all."""
    random = np.random.default_rng(seed)
    X = sparse.random_array((300, 150), density=0.1, format="csr", rng=random)
    y = X[:, :10] @ random.standard_normal(10) + random.standard_normal(300)
    weight = random.choice([0.0, 1.0, 2.0], 300)
    model = fitted("squared", X, y, weight, l2=0.0, positive=True, tol=1e-9)
    best, residual = optimize.nnls(
        np.sqrt(weight)[:, None] * np.column_stack([X.toarray(), np.ones(300), -np.ones(300)]),
        np.sqrt(weight) * y,
    )
    assert model.objective_ == pytest.approx(residual**2 / 2, rel=1e-8)
    np.testing.assert_allclose(model.coef_, best[:150], atol=1e-5)
    check(model, X, y, weight)
