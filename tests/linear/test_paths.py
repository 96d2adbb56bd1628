"""Paths of penalties, and the choice of one by cross-validation."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from common.linear_losses import DEFINITIONS
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.metrics import make_scorer, mean_absolute_error
from sklearn.model_selection import KFold, check_cv
from sklearn.utils.estimator_checks import parametrize_with_checks
from test_linear_model import data, each_loss, estimator

from tfopt.errors import InvalidArgumentError
from tfopt.linear_model import (
    SDCAClassifier,
    SDCAClassifierCV,
    SDCARegressorCV,
    evaluation,
    sdca_path,
)
from tfopt.linear_model.losses import loss_named

L2S = [0.1, 10.0, 1.0]


def cv_estimator(loss: str, **options: Any) -> Any:
    kind = SDCAClassifierCV if DEFINITIONS[loss].labels == "classes" else SDCARegressorCV
    return kind(loss, **options)


# ---- paths


@each_loss
@pytest.mark.parametrize("name", ["l1s", "l2s"])
def test_a_path_has_the_solutions_of_its_penalties(loss: str, name: str) -> None:
    X, y = data(loss)
    options: dict[str, Any] = {"tol": 1e-7, "max_iter": 20_000}
    weights = np.random.default_rng(0).choice([0.0, 1.0, 2.0], len(y))
    path = sdca_path(X + 3, y, loss, sample_weight=weights, **{name: L2S}, **options)
    assert path.coefs.shape == (3, 1, 7) and path.intercepts.shape == (3, 1)
    assert getattr(path, name).tolist() == L2S
    assert (path.l1s if name == "l2s" else path.l2s).tolist() == [float(name == "l1s")] * 3
    for k, value in enumerate(L2S):
        alone = estimator(loss, **{name[:2]: value}, **options).fit(X + 3, y, weights)
        np.testing.assert_allclose(path.objectives[k], alone.objective_, rtol=1e-7)
        np.testing.assert_allclose(path.coefs[k, 0], np.ravel(alone.coef_), atol=2e-2)
    assert (path.dual_gaps <= 1e-7 * path.objectives).all()


def test_a_path_is_warm() -> None:
    X, y = data("logistic", n=400)
    values = np.logspace(2, -2, 20)
    for options in ({}, {"l1": 1.0}, {"loss": "hinge", "solver": "sdca"}):
        path = sdca_path(X, y, l2s=values, max_iter=20_000, **options)
        cold = [
            SDCAClassifier(l2=value, tol=1e-4, max_iter=20_000, **options).fit(X, y).n_iter_[0]
            for value in values
        ]
        assert path.n_iters.sum() < sum(cold) * 0.6
        assert sdca_path(X, y, l2s=values[::-1], max_iter=20_000, **options).coefs.tobytes() == (
            path.coefs[::-1].tobytes()
        )


def test_a_path_of_several_classes() -> None:
    X, z = data("squared")
    y = np.array(list("abc"))[np.digitize(z, [-1, 1])]
    path = sdca_path(sparse.csr_matrix(X), y, l2s=L2S, tol=1e-8, class_weight="balanced")
    assert path.coefs.shape == (3, 3, 7) and path.n_iters.shape == (3, 3)
    alone = SDCAClassifier(l2=10.0, tol=1e-8, class_weight="balanced").fit(X, y)
    np.testing.assert_allclose(path.objectives[1], alone.objective_, rtol=1e-8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give l1s or l2s, or both for all pairs"),
        ({"l1s": [1.0], "l2s": [1.0], "l2": 1.0}, "l2s has the values of l2"),
        ({"l2s": [1.0], "l2": 1.0}, "l2s has the values of l2: do not give l2 as well"),
        ({"l1s": [1.0], "l1": 1.0}, "l1s has the values of l1"),
        (
            {"l2s": []},
            r"l2s must be a number of values, or a sequence of at least one, not of shape \(0,\)",
        ),
        ({"l2s": 1.0}, "not of shape \\(\\)"),
        ({"l2s": [1.0, 0.0]}, "each of l2s must be a finite number above 0, not 0.0"),
        ({"l1s": [-1.0]}, "each of l1s must be a finite number at least 0, not -1.0"),
        ({"l1s": [np.inf]}, "each of l1s must be a finite number"),
        ({"l2s": [1.0], "num_loss_partitions": [60, 60]}, "a path has no blocks"),
        ({"l2s": [1.0], "C": 1.0}, "C is 1 / l2"),
        ({"l1s": 0}, "l1s must be an integer of at least 1, not 0"),
        ({"l1s": [1.0], "eps": 0.1}, "eps is the smallest l1 as a share of the largest: give the"),
        ({"l2s": 3, "eps": 0.1}, "eps is the smallest l1"),
        ({"l1s": 3, "eps": 0.0}, "eps must be a finite number above 0 and below 1, not 0.0"),
        ({"l1s": 3, "eps": 1.0}, "eps must be a finite number above 0 and below 1, not 1.0"),
        ({"l2s": [1.0], "loss": "huge"}, "loss must be one of"),
    ],
)
def test_refused_paths(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sdca_path(*data("logistic"), **options)


# ---- cross-validation


@parametrize_with_checks(
    [
        SDCAClassifierCV(l2s=2, cv=2),
        SDCARegressorCV(l2s=2, cv=2),
    ]
)
def test_check(estimator: Any, check: Any) -> None:
    check(estimator)


def score(model: Any, X: np.ndarray, y: np.ndarray) -> float:
    """Return minus the mean loss."""
    phi = loss_named(model._phi.kernel, model._parameter())
    if isinstance(model, SDCAClassifier):
        y = np.where(y == model.classes_[1], 1.0, -1.0)
    return -float(phi.value(X @ np.ravel(model.coef_) + model.intercept_, y).mean())


@each_loss
def test_the_best_of_the_scores_is_refitted(loss: str) -> None:
    X, y = data(loss)
    folds = KFold(3)
    model = cv_estimator(loss, l2s=[1000.0, 10.0, 1.0], cv=folds, max_iter=20_000).fit(X, y)
    scores = np.empty((3, 3))
    for j, (train, test) in enumerate(folds.split(X)):
        for k, value in enumerate(model.l2s_):
            alone = estimator(loss, l2=value, tol=1e-4, max_iter=20_000).fit(X[train], y[train])
            scores[j, k] = score(alone, X[test], y[test])
    np.testing.assert_allclose(model.scores_, scores, atol=0.03)
    assert model.l2_ == model.l2s_[model.scores_.mean(axis=0).argmax()] and model.l1_ == 0.0
    again = estimator(loss, l2=model.l2_, max_iter=20_000).fit(X, y)
    for name in ("coef_", "intercept_", "objective_", "dual_gap_", "n_iter_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(again, name))
    np.testing.assert_array_equal(model.predict(X), again.predict(X))


def test_the_choices_are_scikit_learns() -> None:
    X, y = data("logistic", n=300)
    theirs = LogisticRegressionCV(
        Cs=10, cv=3, l1_ratios=(0,), use_legacy_attributes=False, scoring="neg_log_loss"
    ).fit(X, y)
    ours = SDCAClassifierCV(cv=3, tol=1e-8).fit(X, y)
    np.testing.assert_allclose(ours.l2s_, 1 / theirs.Cs_)
    np.testing.assert_allclose(ours.scores_, theirs.scores_.reshape(3, 10), atol=1e-3)
    assert ours.l2_ == pytest.approx(1 / theirs.C_)
    X, y = data("squared")
    ridge = RidgeCV(alphas=(0.1, 1.0, 10.0, 100.0), cv=3).fit(X, y)
    ours = SDCARegressorCV(l2s=(0.1, 1.0, 10.0, 100.0), cv=3).fit(X, y)
    assert ours.l2_ == ridge.alpha_
    np.testing.assert_allclose(ours.coef_, ridge.coef_, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scoring", ["neg_mean_absolute_error", make_scorer(mean_absolute_error)])
def test_scoring_is_heard(scoring: Any) -> None:
    X, y = data("squared")
    weights = np.random.default_rng(0).uniform(size=len(y))
    model = SDCARegressorCV(l2s=L2S, scoring=scoring, cv=3).fit(X, y, weights)
    assert (model.scores_ < 0).all() == isinstance(scoring, str)
    even = SDCARegressorCV(l2s=L2S, scoring=scoring, cv=3).fit(X, y)
    assert (model.scores_ != even.scores_).all()


@pytest.mark.parametrize("form", [np.float32, sparse.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("target", ["two", "three", "squared", "poisson", "constant"])
def test_the_default_scores_are_scikit_learns(
    form: Any, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "PIECE", 100)  # a few samples at a time
    classifies = target in ("two", "three")
    X, y = data(target if target == "poisson" else "squared")
    if classifies:
        y = np.digitize(y, [-1, 1] if target == "three" else [0])
    y = y * 0 if target == "constant" else y
    weights = np.random.default_rng(0).choice([0.0, 1.0, 2.5], len(y))
    losses = {"poisson": "poisson", "two": "logistic", "three": "multinomial"}
    cv: Any = SDCAClassifierCV if classifies else SDCARegressorCV
    cv = cv(losses.get(target, "squared"), l2s=L2S, cv=3)
    scoring = "neg_log_loss" if classifies else "neg_mean_squared_error"
    scoring = "neg_mean_poisson_deviance" if target == "poisson" else scoring
    for more in ({}, {"sample_weight": weights}):
        ours = clone(cv).fit(form(X), y, **more).scores_
        theirs = clone(cv).set_params(scoring=scoring).fit(form(X), y, **more).scores_
        if not classifies:  # theirs are twice the losses, up to what does not depend on the model
            ours, theirs = ours * 2, theirs + (ours * 2 - theirs)[:, :1] * (target == "poisson")
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_without_a_refit_the_coefficients_are_those_of_the_folds() -> None:
    X, z = data("squared")
    y = np.digitize(z, [-1, 1])
    for kind, target in ((SDCAClassifierCV, y), (SDCARegressorCV, z)):
        model = kind(l2s=[1.0], cv=3, refit=False, tol=1e-9).fit(X, target)
        folds = model.coef_ * 0
        splitter = check_cv(3, target, classifier=kind is SDCAClassifierCV)
        for train, _ in splitter.split(X, target):
            folds += model._kind(l2=1.0, tol=1e-9).fit(X[train], target[train]).coef_ / 3
        np.testing.assert_allclose(model.coef_, folds, rtol=1e-3, atol=1e-4)
        assert not hasattr(model, "dual_gap_") and model.predict(X).shape == (120,)
    apart = SDCAClassifierCV(l2s=[1.0], refit=False, cv=[(np.arange(60), np.arange(60, 120))] * 2)
    apart.cv = [(np.flatnonzero(y != k), np.flatnonzero(y == k)) for k in (0, 1)]
    with pytest.raises(InvalidArgumentError, match="refit=False takes the mean"):
        apart.fit(X, y)
    assert not hasattr(apart, "coef_")


def test_a_choice_of_l1_and_names_of_features() -> None:
    X, y = data("squared")
    frame = pd.DataFrame(X, columns=list("abcdefg"))
    model = SDCARegressorCV(l1s=[0.1, 1.0, 300.0], l2=2.0, cv=3).fit(frame, y)
    assert model.l2_ == 2.0 and model.l1_ in model.l1s_
    assert model.coef_frame().index.tolist() == [*"abcdefg", "intercept"]
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[list("gfedcba")])


def test_folds_may_be_fitted_at_a_time() -> None:
    X, y = data("hinge")
    one, two = (SDCAClassifierCV("hinge", l2s=L2S, cv=3, n_jobs=k).fit(X, y) for k in (1, 2))
    assert one.coef_.tobytes() == two.coef_.tobytes() and (one.scores_ == two.scores_).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"l2s": 0}, "l2s must be an integer of at least 1, not 0"),
        ({"l1s": [1.0], "l1": 0.0}, "l1s has the values of l1: do not give l1 as well"),
        ({"eps": 0.1}, "eps is the smallest l1 as a share of the largest"),
        ({"l2s": [0.0]}, "each of l2s must be a finite number above 0"),
        ({"l1": -1.0}, "l1 must be a finite number at least 0"),
        ({"l1s": [1.0], "l2s": None, "l2": -1.0}, "l2 must be a finite number at least 0"),
        ({"max_iter": 0}, "max_iter must be an integer"),
        ({"loss": "huge"}, "loss must be one of"),
    ],
)
def test_refused_choices(options: dict[str, Any], message: str) -> None:
    X, y = data("logistic")
    model = SDCAClassifierCV(l2s=[1.0], cv=2).fit(X, y)
    before = pickle.dumps(vars(model)["coef_"])
    model.set_params(**options)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)
    assert pickle.dumps(model.coef_) == before
    assert clone(model).get_params() == model.get_params()
