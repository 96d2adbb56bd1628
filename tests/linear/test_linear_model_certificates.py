"""The certificates of fits are what their dual variables prove, for every solver."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from certified import check
from common.linear_losses import DEFINITIONS, LOSSES, estimator, phi, targets
from hypothesis import assume, given
from hypothesis import strategies as st
from linear_data import bike_hour, libsvm
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge

from tfopt.linear_model import SDCAClassifier, SDCARegressor
from tfopt.linear_model._fit.certificate import penalty_gap, scaled_gap
from tfopt.linear_model._fit.problem import NO_ROWS, Problem
from tfopt.linear_model.losses import loss_named as record_named

each_loss = pytest.mark.parametrize("loss", LOSSES)
REGRESSION = [loss for loss in LOSSES if DEFINITIONS[loss].labels != "classes"]
CLASSIFICATION = [loss for loss in LOSSES if loss not in REGRESSION]
LONG = np.longdouble


def fitted(model: Any, *rows: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(*rows)


def data(loss: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features of several sizes, a third of them 0; labels, and weights, some of them 0."""
    random = np.random.default_rng(0)
    X = random.standard_normal((150, 6)) @ random.standard_normal((6, 6)) * np.logspace(-1, 1, 6)
    X[random.uniform(size=X.shape) < 0.3] = 0
    z = X @ random.standard_normal(6) / 5 + 0.5 + random.standard_normal(150)
    y = targets(loss, z + 9 * (loss == "poisson"), random)
    return X, y, random.choice([0.0, 0.5, 1.0, 2.0], 150)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no intercept": {"fit_intercept": False},
    "narrow": {"parameter": 1e-6, "fit_intercept": False},
    "l1": {"l1": 5.0},
    "C": {"C": 100.0},
    "hardly penalized": {"l2": 1e-6, "fit_intercept": False},
    "adaptive": {"adaptive": True},
    "partitions": {"num_loss_partitions": 3, "fit_intercept": False},
    "blocks": {"num_loss_partitions": [50, 1, 99]},
    "blocks, no intercept": {"num_loss_partitions": [50, 1, 99], "fit_intercept": False},
}


@each_loss
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("stored", [np.asarray, sparse.csr_matrix])
def test_what_is_said_is_what_the_dual_variables_prove(
    loss: str, options: dict[str, Any], stored: Any
) -> None:
    """Wherever the fit ends: after visits, or in the middle of Newton's method."""
    X, y, weight = data(loss)
    for max_iter in (1, 3, 5, 40):
        model = estimator(loss, tol=1e-12, max_iter=max_iter, **options)
        check(fitted(model, stored(X), y, weight), X, y, weight)


@each_loss
@pytest.mark.parametrize("which", [*(name for name in OPTIONS if name != "adaptive"), "visits"])
def test_the_unit_of_the_objective_changes_nothing(loss: str, which: str) -> None:
    """What is added up is then larger or smaller, and no decision of a solver another."""
    options = OPTIONS.get(which, {})
    if which == "visits" or (loss == "squared_hinge" and "num_loss_partitions" not in options):
        options = {**options, "solver": "sdca"}  # else features alone say if these come first
    X, y, weight = data(loss)
    seen = []
    for unit in (1.0, 2.0**-20, 2.0**20):
        l1, l2 = options.get("l1", 0.0), options.get("l2", 1 / options.get("C", 1.0))
        scaled = {**options, "C": None, "l1": l1 * unit, "l2": l2 * unit}
        model = estimator(loss, tol=1e-5, max_iter=60, random_state=0, **scaled)
        fitted(model, X, y, weight * unit)
        (history,) = model.history_
        decided = [[record[name] for name in ("solver", "certified", "gap")] for record in history]
        seen.append((model.coef_.tobytes(), repr(decided)))
    assert seen[0] == seen[1] == seen[2]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("max_iter", [5, 20])
def test_steps_that_go_astray_leave_the_best_as_it_was(seed: int, max_iter: int) -> None:
    """A smooth hinge that is hardly smooth: Newton's method does not lower the gap at each step."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((300, 5))
    X[random.random(300) < 0.6] = 0
    y = random.integers(0, 2, 300)
    options = {"gamma": 1e-6, "fit_intercept": False, "max_iter": max_iter}
    check(fitted(SDCAClassifier("smooth_hinge", **options), X, y), X, y)


@pytest.mark.parametrize("loss", CLASSIFICATION)
@pytest.mark.parametrize("blocks", [None, [70, 80]])
def test_of_each_class(loss: str, blocks: list[int] | None) -> None:
    X, z, weight = data("squared")
    y = np.digitize(z, [-0.5, 1.0])
    for max_iter in (2, 5, 30):
        model = estimator(loss, tol=1e-9, max_iter=max_iter, num_loss_partitions=blocks)
        check(fitted(model, X, y, weight), X, y, weight)


@each_loss
def test_after_a_warm_start(loss: str) -> None:
    X, y, weight = data(loss)
    model = fitted(estimator(loss, warm_start=True, max_iter=3), X, y, weight)
    if DEFINITIONS[loss].labels == "numbers":
        y = y + 1
    check(fitted(model, X[::-1].copy(), y, weight), X[::-1], y, weight)


# ---- real data


@pytest.mark.parametrize("l1", [0.0, 1.0])
@pytest.mark.parametrize("name", ["heart_scale", "agaricus", "abalone_scale"])
def test_of_real_data(name: str, l1: float) -> None:
    X, y = libsvm(name)
    for loss in REGRESSION if name == "abalone_scale" else CLASSIFICATION:
        model = fitted(estimator(loss, l1=l1, max_iter=40), X, y)
        check(model, X, y)


def test_a_count_is_measured_by_its_deviance() -> None:
    """Not by exp(z) - y * z, of which the deviance is next to nothing where counts are large."""
    X, y = bike_hour()
    model = SDCARegressor("poisson", l2=1e-4 * len(y)).fit(X, y)
    optimum = 16.42160715 * len(y)
    assert optimum * (1 - 1e-9) <= model.objective_ <= optimum * (1 + 1e-4)
    assert model.dual_gap_ <= 1e-4 * optimum


@pytest.mark.parametrize("mean", [0.01, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("blocks", [None, [300, 700]])
def test_one_tol_is_as_near_whatever_the_counts(mean: float, blocks: list[int] | None) -> None:
    """Against scikit-learn's optimum: the weights are within what the gap allows."""
    random = np.random.default_rng(0)
    X = random.standard_normal((1000, 8))
    y = random.poisson(mean * np.exp(X @ random.standard_normal(8) / 4)).astype(float)
    model = SDCARegressor("poisson", tol=1e-4, num_loss_partitions=blocks).fit(X, y)
    rival = PoissonRegressor(alpha=1e-3, tol=1e-10 * max(1, mean), solver="newton-cholesky")
    rival.fit(X, y)
    least = np.sum(phi("poisson", X @ rival.coef_ + rival.intercept_, y, 1.0))
    least += rival.coef_ @ rival.coef_ / 2
    assert 0 < model.dual_gap_ <= 1e-4 * model.objective_
    assert model.objective_ - model.dual_gap_ <= least * (1 + 1e-9)
    assert least <= model.objective_ * (1 + 1e-9)
    assert np.square(model.coef_ - rival.coef_).sum() <= 2 * model.dual_gap_ * (1 + 1e-6)


@pytest.mark.parametrize("intercept", [False, True])
def test_the_other_objectives_are_scikit_learns(intercept: bool) -> None:
    X, y = libsvm("abalone_scale")
    X = X.toarray()
    options = {"fit_intercept": intercept, "tol": 1e-10}
    rival = Ridge(2.0, fit_intercept=intercept).fit(X, y)
    of = np.sum((rival.predict(X) - y) ** 2) / 2 + rival.coef_ @ rival.coef_
    assert SDCARegressor(l2=2.0, **options).fit(X, y).objective_ == pytest.approx(of, rel=1e-9)
    X, y = libsvm("heart_scale")
    rival = LogisticRegression(C=0.5, fit_intercept=intercept, tol=1e-10, max_iter=9999).fit(X, y)
    of = np.logaddexp(0, -y * rival.decision_function(X)).sum() + np.sum(rival.coef_**2)
    model = SDCAClassifier(C=0.5, **options).fit(X, y)
    assert model.objective_[0] == pytest.approx(of, rel=1e-9)


@given(
    st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3, 2.0]), st.sampled_from([0.0, 1e-3, 1.0])
)
def test_the_gap_of_the_penalties_is_that_of_their_conjugate(
    seed: int, l1: float, l2: float
) -> None:
    """With bounds of errors it is a bound of the gaps of all that the errors allow."""
    assume(l1 + l2 > 0)
    random = np.random.default_rng(seed)
    w, u = random.standard_normal((2, 9)) * random.choice([0.0, 0.3, 1.0, 5.0], (2, 9))
    errors = random.choice([0.0, 1e-3, 0.1], 9)
    objective = Problem(NO_ROWS, 9, record_named("squared_loss"), l1, l2, False, 1)

    def gap(dual: np.ndarray) -> float:
        above = np.maximum(np.abs(dual) - l1, 0)
        conjugate = np.square(above).sum() / (2 * l2) if l2 else 0.0
        return float(objective.penalty(w) + conjugate - dual @ w)

    found, scale = scaled_gap(objective, w, 1.0, u)
    assert 0 < scale <= 1 and found == pytest.approx(gap(scale * u), rel=1e-9, abs=1e-9)
    if l2:
        assert penalty_gap(objective, w, u / l2) == pytest.approx(gap(u), rel=1e-9, abs=1e-9)
        assert found + (1 - scale) ** 2 <= gap(u) * (1 + 1e-9) + 1e-9
    else:
        assert np.abs(scale * u).max() <= l1 * (1 + 1e-12)
    bound, scale = scaled_gap(objective, w, 1.0, u, errors)
    for _ in range(5):
        moved = scale * (u + errors * random.uniform(-1, 1, 9))
        assert gap(moved) <= bound * (1 + 1e-9) + 1e-9
