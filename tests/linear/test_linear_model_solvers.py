"""The option `solver`: which method works is as asked for, and the history says so."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from common.linear_losses import DEFINITIONS, SMOOTH, estimator
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import tfopt
from tfopt.linear_model import SDCAClassifier
from tfopt.linear_model._fit import monitor, newton
from tfopt.linear_model._fit import plan as plans
from tfopt.linear_model._fit.certificate import Certificate
from tfopt.linear_model._fit.intercept import intercept_search
from tfopt.linear_model.losses import LOSSES
from tfopt.linear_model.parameters import Parameters

random = np.random.default_rng(2)
X = random.standard_normal((60, 4)) @ random.standard_normal((4, 4)) + 0.3
Z = X @ [0.5, -1.0, 0.0, 0.2] + 0.3 * random.standard_normal(60)
Y = {
    "classes": np.digitize(Z, [-0.5, 0.5]),
    "numbers": Z,
    "counts": random.poisson(np.exp(Z.clip(-2, 2))).astype(float),
    "amounts": random.gamma(2.0, np.exp(Z.clip(-2, 2)) / 2),
}
each_loss = pytest.mark.parametrize("loss", SMOOTH)
#: Those that have curvature from the beginning.
CURVED = [loss for loss in SMOOTH if not LOSSES[loss].is_linear_far]


def fitted(loss: str, features: Any = X, **options: Any) -> Any:
    options = {"l2": 5.0, "tol": 1e-9, "max_iter": 3000} | options
    return estimator(loss, **options).fit(features, Y[DEFINITIONS[loss].labels])


def solvers(model: Any) -> set[str]:
    return {record["solver"] for history in model.history_ for record in history}


@each_loss
@pytest.mark.parametrize("intercept", [False, True])
def test_all_solvers_find_the_minimum_and_are_heard(loss: str, intercept: bool) -> None:
    expected = fitted(loss, fit_intercept=intercept, tol=1e-13, solver="newton-cholesky")
    for solver in ("sdca", "newton-cholesky", "newton-cg", "cd"):
        for features in (X, sparse.csr_matrix(X)):
            model = fitted(loss, features, fit_intercept=intercept, solver=solver)
            assert solvers(model) == {solver} == {*model.solver_}
            assert len(model.solver_) == len(model.history_)
            gap, objective = np.ravel(model.dual_gap_), np.ravel(model.objective_)
            assert (gap <= 1e-9 * objective).all()
            np.testing.assert_allclose(objective, np.ravel(expected.objective_), rtol=2e-9)
            np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-3)


def test_auto_may_begin_with_visits_and_end_with_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "begins_with_newton", lambda objective: False)
    model = fitted("logistic", X * [1, 1, 30, 1], tol=None)
    for history in model.history_:
        names = [record["solver"] for record in history]
        assert names[0] == "sdca" and names[-1] == "newton-cholesky"
        assert names == sorted(names, reverse=True)


@pytest.mark.parametrize("mean", [0.0, 100.0, 1e4, 1e9])
@pytest.mark.parametrize("loss", [*CURVED, "hinge"])
def test_means_need_not_be_subtracted_from_the_features(loss: str, mean: float) -> None:
    """They are where rounding would count: the minimum is that without them."""
    offset = mean * np.array([1.0, -0.5, 0.0, 0.1])
    expected = fitted(loss, X - X.mean(axis=0), tol=1e-12)
    model = fitted(loss, X + offset)
    # what the features themselves lose by the sum
    np.testing.assert_allclose(model.objective_, expected.objective_, rtol=1e-9 + 1e-15 * mean)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-3)
    assert (np.ravel(model.dual_gap_) <= 1e-9 * np.ravel(model.objective_)).all()


@pytest.mark.parametrize("loss", [*CURVED, "hinge"])
def test_features_are_copied_to_subtract_their_means_only_for_visits(loss: str) -> None:
    """Where equations are solved, the intercept is among the unknowns."""
    y, weight = Y[DEFINITIONS[loss].labels], np.ones(len(X))
    solving = "newton-cholesky" if loss in CURVED else "interior-point"
    for solver in (solving, "sdca"):
        model = estimator(loss, solver=solver)
        data = model._samples(X + 10, lambda k: y, 1, weight)
        assert (data.shift is None) == (solver == solving)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("loss", CURVED)
def test_auto_begins_with_steps_if_they_are_less_work(loss: str) -> None:
    for features in (X, sparse.csr_matrix(X)):
        assert solvers(fitted(loss, features)) == {"newton-cholesky"}
    assert solvers(fitted(loss, adaptive=True, max_iter=1)) == {"sdca"}
    assert solvers(fitted(loss, num_loss_partitions=2, max_iter=1)) == {"sdca"}
    rows_for_many_features = sparse.random(60, 501, 0.01, random_state=0, format="csr")
    assert "sdca" in solvers(fitted(loss, rows_for_many_features))


@pytest.mark.parametrize("loss", CURVED)
def test_auto_begins_with_visits_if_a_strong_l2_makes_them_few(loss: str) -> None:
    wide = np.random.default_rng(0).normal(size=(60, 40)) / 10
    first = []
    for l2 in (1e-3, 1e-1, 1e1, 1e3):
        model = fitted(loss, wide, l2=l2, tol=1e-6)
        first.append(model.history_[0][0]["solver"])
        steps = fitted(loss, wide, l2=l2, tol=1e-6, solver="newton-cholesky")
        np.testing.assert_allclose(model.objective_, steps.objective_, rtol=2e-6)
    assert first[0] == "newton-cholesky" and first == sorted(first)
    assert loss == "squared" or first[-1] == "sdca"  # a step is the solution


@pytest.mark.parametrize("loss", DEFINITIONS)
@pytest.mark.parametrize("solver", ["auto", "sdca", "newton-cholesky", "newton-cg", "cd"])
def test_a_fit_to_a_tolerance_ends_where_it_is_reached(loss: str, solver: str) -> None:
    if loss not in SMOOTH and solver not in ("auto", "sdca"):
        return  # which do not apply
    tol = 1e-4 if loss in SMOOTH else 1e-2
    for history in fitted(loss, solver=solver, tol=tol, max_iter=20_000).history_:
        reached = [record["certified"] and record["gap"] <= tol for record in history]
        assert reached.index(True) == len(history) - 1


@pytest.mark.parametrize("polish", [False, True])
def test_epochs_polish_only_what_is_to_be_polished(polish: bool) -> None:
    options = Parameters(max_iter=100, tol=1e-3, polish=polish)
    follows = monitor.ConvergenceMonitor(options, plans.Plan("sdca", "sdca", polishing_epochs=9), 0)
    follows.update(Certificate(np.ones(1), 0.0, 1.0, 1e-4), 5, 1e-4)
    assert follows.is_done != polish


def test_visits_alone_polish_small_problems_too() -> None:
    assert solvers(fitted("logistic", tol=None, solver="sdca")) == {"sdca"}


def test_blocks_say_what_they_do() -> None:
    model = fitted("squared", num_loss_partitions=[20, 40])
    assert model.solver_ == ["newton-cholesky"]
    model = fitted("squared", l1=0.1, l2=10.0, num_loss_partitions=[20, 40])
    assert model.solver_ == ["cd"]
    model = fitted("squared", np.tile(X, 20), l1=0.1, l2=1e3, num_loss_partitions=[20, 40])
    assert model.solver_ == ["cd"]


def test_matrices_of_too_many_features_are_refused() -> None:
    wide = sparse.csr_matrix((60, 5001))
    with pytest.raises(ValueError, match="at most 5000 are allowed; set solver='newton-cg'"):
        fitted("squared", wide, solver="newton-cholesky")
    assert fitted("squared", wide, solver="newton-cg").solver_ == ["newton-cg"]


def test_the_interior_point_method_is_for_the_hinge_of_few_features() -> None:
    labels = Y["classes"] > 0
    for features in (X, sparse.csr_matrix(X)):
        for solver in ("auto", "interior-point"):
            model = SDCAClassifier("hinge", solver=solver).fit(features, labels)
            assert solvers(model) == {"interior-point"}
    model = SDCAClassifier("hinge", tol=1e-2, max_iter=20_000, solver="sdca").fit(X, labels)
    assert solvers(model) == {"sdca"}
    slow = SDCAClassifier("hinge", adaptive=True, l2=1e-3).fit(X, labels)
    assert slow.history_[0][0]["solver"] == "sdca" and slow.solver_ == ["interior-point"]
    wide = sparse.random(60, 501, 0.01, random_state=0, format="csr")
    assert solvers(SDCAClassifier("hinge").fit(wide, labels)) == {"sdca"}
    with pytest.raises(ValueError, match="at most 5000 are allowed; set solver='sdca'"):
        SDCAClassifier("hinge", solver="interior-point").fit(sparse.csr_matrix((60, 5001)), labels)


def searched(loss: str, derivatives: Any) -> list[float]:
    """Return the places where a search from 0 asks for derivatives."""
    search, seen = intercept_search(LOSSES[loss.removesuffix("_loss")], 0.0, 0.0), []
    while True:
        (place,) = search.places
        seen.append(place)
        if search.update(np.array([[part] for part in derivatives(place)])):
            return seen


@pytest.mark.parametrize("positive", [1e-3, 1.0, 50.0, 1e6])
def test_the_best_intercept_of_counts_or_numbers_is_one_step_away(positive: float) -> None:
    """And where the second place is."""
    rises, falls = (lambda b: 10 * np.exp(b / 2)), (lambda b: positive * np.exp(-b / 2))
    for loss, derivatives, best in (
        ("poisson_loss", lambda b: (10 * np.exp(b) - positive, 10 * np.exp(b)), positive / 10),
        ("gamma_loss", lambda b: (10 - falls(2 * b), falls(2 * b)), positive / 10),
        (
            "tweedie_loss",
            lambda b: (rises(b) - falls(b), (rises(b) + falls(b)) / 2),
            positive / 10,
        ),
        ("squared_loss", lambda b: (10 * b - positive, 10.0), positive / 10),
    ):
        best = best if loss == "squared_loss" else np.log(best)
        assert searched(loss, derivatives)[:2] == [0.0, pytest.approx(best, rel=1e-9)]
        assert len(searched(loss, derivatives)) <= 3


def test_where_losses_are_linear_steps_of_a_search_find_the_scale_of_y() -> None:
    """Those of y become twice as long each time, and no search goes on for ever."""
    numbers = searched("huber_loss", lambda b: (-1.0, 0.0) if b < 1000 else (0.0, 1.0))
    assert np.diff(numbers).tolist() == [4.0 * 2**k for k in range(8)]
    scores = searched("logistic_loss", lambda b: (-1.0, 0.0))
    assert scores == [4.0 * k for k in range(100)]


def test_steps_that_end_too_early_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(ConvergenceWarning, match="after max_iter=2 iterations"):
        fitted("squared", tol=0.0, max_iter=2, solver="newton-cholesky")
    monkeypatch.setattr(newton, "armijo_holds", lambda *_: False)
    with pytest.warns(ConvergenceWarning, match="no step lowers the objective further") as caught:
        model = fitted("squared", solver="newton-cholesky")
    assert caught[0].filename == __file__
    assert model.n_iter_.tolist() == [2]  # the step that failed, and the certificate of its start


def test_epochs_go_on_where_the_interior_point_method_takes_longer_than_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = np.random.default_rng(0)
    rows = random.normal(size=(400, 20))
    labels = np.where(rows[:, 0] + random.normal(size=400) > 0, 1, -1)
    options: dict[str, Any] = {"l2": 0.1, "tol": 1e-3}
    assert solvers(SDCAClassifier("hinge", **options).fit(rows, labels)) == {
        "sdca",
        "interior-point",
    }
    monkeypatch.setattr(monitor, "INTERIOR_STEPS", 1e-9)  # each takes much more than all should
    model = SDCAClassifier("hinge", **options, max_iter=100_000).fit(rows, labels)
    taken = [record["solver"] for record in model.history_[0]]
    assert taken.count("interior-point") == 1 and taken[-1] == "sdca"
    assert model.dual_gap_ <= 1e-3 * model.objective_
    alone = SDCAClassifier("hinge", **options, solver="interior-point").fit(rows, labels)
    assert len(alone.history_[0]) > 1 and solvers(alone) == {"interior-point"}


def test_epochs_begin_where_a_strong_l2_makes_few_of_them_do() -> None:
    """Also of a loss whose visits take no logarithm, which makes them cheap."""
    rows = np.random.default_rng(0).normal(size=(569, 30))
    labels = np.where(rows[:, 0] > 0, 1, -1)
    for l2, solver in ((100.0, "sdca"), (1.0, "newton-cholesky")):
        model = SDCAClassifier("squared_hinge", l2=l2, tol=1e-6, fit_intercept=False)
        assert model.fit(rows, labels).history_[0][0]["solver"] == solver


def test_steps_that_do_not_reach_the_tolerance_are_not_certified() -> None:
    (history,) = fitted("poisson", l2=1e-3, tol=1e-9, solver="newton-cholesky").history_
    certified = [record["certified"] for record in history]
    assert certified[-1] and not any(certified[:2])
    for record in history[:-1]:
        assert record["certified"] or (record["gap"] > 1e-9 and np.isnan(record["objective"]))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", ["newton-cholesky", "auto"])
def test_where_steps_end_there_is_a_certificate(
    solver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the step before was not worth one."""
    steps = iter([True])
    monkeypatch.setattr(newton, "armijo_holds", lambda *_: next(steps, False))
    model = fitted("poisson", l2=1e-3, tol=1e-9, solver=solver)
    certified = [record["certified"] for record in model.history_[0]]
    assert certified[:3] == [False, False, True] and certified[-1]
    assert (solver == "auto") == ("sdca" in solvers(model))


@pytest.mark.parametrize("solver", ["newton-cholesky", "newton-cg"])
def test_a_warm_start_begins_where_the_last_fit_ended(solver: str) -> None:
    model = fitted("logistic", warm_start=True, solver=solver)
    again = model.fit(X, Y["classes"])
    assert (again.n_iter_ <= 2).all()


@pytest.mark.parametrize("solver", ["sdca", "newton-cholesky", "newton-cg"])
def test_bits_do_not_depend_on_threads(solver: str) -> None:
    coefs = set()
    for n_threads in (1, 3):
        tfopt.threads.set_num_threads(n_threads)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            coefs.add(fitted("logistic", solver=solver, n_jobs=n_threads).coef_.tobytes())
    assert len(coefs) == 1
