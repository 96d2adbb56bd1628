"""Grids of penalties, from the largest useful one down; choices of both, and what is passed on."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from common.linear_losses import CORNERED, DEFINITIONS, estimator, targets
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning, UnsetMetadataPassedError
from sklearn.linear_model import LassoCV, LogisticRegressionCV, enet_path, lasso_path
from sklearn.metrics import get_scorer, make_scorer
from sklearn.model_selection import GroupKFold, KFold, LeaveOneGroupOut, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tfopt.errors import InvalidArgumentError
from tfopt.linear_model import (
    LinearClassifier,
    LinearClassifierCV,
    LinearRegressor,
    LinearRegressorCV,
    sdca_path,
)

random = np.random.default_rng(0)
X = random.standard_normal((120, 6)) + 2
Y = X @ np.array([2.0, -1.0, 0.5, 0, 0, 0]) + random.standard_normal(120)
WEIGHTS = random.choice([0.0, 1.0, 2.5], 120)
GROUPS = random.integers(0, 6, 120)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("intercept", [True, False])
def test_the_grid_is_that_of_lasso_path(form: Any, intercept: bool) -> None:
    centered = (X - X.mean(axis=0), Y - Y.mean()) if intercept else (X, Y)
    for n, eps in ((7, 1e-2), (100, 1e-3)):
        theirs = lasso_path(*centered, alphas=n, eps=eps)[0] * len(Y)
        options = {} if eps == 1e-3 else {"eps": eps}
        ours = sdca_path(form(X), Y, "squared", l1s=n, l2=1.0, fit_intercept=intercept, **options)
        np.testing.assert_allclose(ours.l1s, theirs, rtol=1e-12)
        assert (ours.l2s == 1.0).all() and not ours.coefs[0].any()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("loss", DEFINITIONS)
def test_with_the_largest_all_weights_are_0(loss: str, intercept: bool, weighted: bool) -> None:
    """And with a little less they are not, if the loss is smooth."""
    y = targets(loss, Y - Y.mean(), np.random.default_rng(1))
    weights = WEIGHTS if weighted else np.ones(len(Y))
    options: dict[str, Any] = {"fit_intercept": intercept, "tol": 1e-9, "max_iter": 5000}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        path = sdca_path(X, y, loss, l1s=1, l2=1.0, sample_weight=weights, **options)
        ((largest,),) = (path.l1s,)
        assert np.abs(path.coefs).max() < 1e-6
        if loss not in CORNERED:
            less = estimator(loss, l1=largest * 0.99, l2=1.0, **options).fit(X, y, weights)
            assert less.coef_.any()


@pytest.mark.parametrize("loss", [loss for loss in DEFINITIONS if loss not in CORNERED])
@pytest.mark.parametrize("form", ["csr", "float32", "frame", "fortran"])
def test_the_grid_of_all_forms(loss: str, form: str) -> None:
    """Weighted; and, of regression, with an offset."""
    y = targets(loss, Y - Y.mean(), np.random.default_rng(1))
    rows = np.float32(X)
    forms = {"csr": sparse.csr_matrix, "frame": pd.DataFrame, "fortran": np.asfortranarray}
    given = forms.get(form, np.asarray)(rows)
    more: dict[str, Any] = {"sample_weight": WEIGHTS}
    if DEFINITIONS[loss].labels != "classes":
        more["offset"] = np.linspace(-0.5, 0.5, 120)
    expected, path = (sdca_path(each, y, loss, l1s=4, tol=1e-9, **more) for each in (rows, given))
    np.testing.assert_allclose(path.l1s, expected.l1s, rtol=1e-6)
    assert np.abs(path.coefs[0]).max() < 1e-6 and path.coefs[1].any()
    kind: Any = LinearRegressorCV if "offset" in more else LinearClassifierCV
    model = kind(loss, l1s=4, l2=1.0, cv=2, max_iter=5000).fit(given, y, **more)
    np.testing.assert_allclose(model.l1s_, path.l1s, rtol=1e-6)


def test_of_several_classes_it_is_the_largest_of_each() -> None:
    y = np.digitize(Y, [1.0, 5.0])
    path = sdca_path(X, y, l1s=3, class_weight="balanced")
    assert not path.coefs[0].any() and path.coefs[1].any()
    model = LinearClassifier(l1=path.l1s[0] * 0.999, class_weight="balanced", tol=1e-9)
    assert model.fit(X, y).coef_.any()


def test_targets_that_are_all_one_have_a_grid() -> None:
    path = sdca_path(X, np.ones(120), "squared", l1s=3, l2=0.0)
    assert (path.l1s > 0).all() and not path.coefs.any()


def test_both_penalties_are_paired() -> None:
    path = sdca_path(X, Y, "squared", l1s=[30.0, 3.0], l2s=[10.0, 1.0, 0.1], tol=1e-10)
    assert path.l1s.tolist() == [30.0] * 3 + [3.0] * 3
    assert path.l2s.tolist() == [10.0, 1.0, 0.1] * 2
    for l1, l2, coef in zip(path.l1s, path.l2s, path.coefs[:, 0], strict=True):
        alone = LinearRegressor(l1=l1, l2=l2, tol=1e-10).fit(X, Y)
        np.testing.assert_allclose(coef, alone.coef_, atol=1e-5)
    centered = X - X.mean(axis=0), Y - Y.mean()
    theirs = enet_path(*centered, l1_ratio=0.75, alphas=[0.2], tol=1e-10)[1][:, 0]
    l1, l2 = 0.2 * 0.75 * 120, 0.2 * 0.25 * 120
    ours = sdca_path(X, Y, "squared", l1s=[l1], l2s=[l2], tol=1e-12).coefs[0, 0]
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    counts = sdca_path(X, Y, "squared", l1s=4, l2s=3)
    assert len(counts.l1s) == 12 and counts.l2s[:3].tolist() == pytest.approx([1e4, 1.0, 1e-4])
    model = LinearRegressorCV(l1s=[30.0, 3.0], l2s=[10.0, 0.1], cv=3).fit(X, Y)
    assert model.scores_.shape == (3, 4) and model.l1s_.tolist() == [30.0, 30.0, 3.0, 3.0]
    best = int(model.scores_.mean(axis=0).argmax())
    assert (model.l1_, model.l2_) == (model.l1s_[best], model.l2s_[best])
    again = LinearRegressor(l1=model.l1_, l2=model.l2_).fit(X, Y)
    np.testing.assert_array_equal(again.coef_, model.coef_)


def test_the_choice_is_lasso_cvs() -> None:
    """Folds of one size: then penalties of sums are penalties of means."""
    ours = LinearRegressorCV(l1s=30, l2=0.0, cv=KFold(4), tol=1e-9).fit(X, Y)
    n = 90
    theirs = LassoCV(alphas=ours.l1s_ / n, cv=KFold(4), tol=1e-9, max_iter=10_000).fit(X, Y)
    assert ours.l1_ / n == pytest.approx(theirs.alpha_)
    np.testing.assert_allclose(-2 * ours.scores_.T, theirs.mse_path_, rtol=1e-5)


def test_the_choice_is_logistic_regression_cvs() -> None:
    y = (Y > 3).astype(int)
    ours = LinearClassifierCV(l2s=8, cv=KFold(4), tol=1e-9).fit(X, y)
    theirs = LogisticRegressionCV(
        Cs=1 / ours.l2s_,
        cv=KFold(4),
        tol=1e-9,
        scoring="neg_log_loss",
        max_iter=1000,
        l1_ratios=(0,),
        use_legacy_attributes=False,
    ).fit(X, y)
    assert 1 / ours.l2_ == pytest.approx(np.ravel(theirs.C_)[0])


@pytest.mark.parametrize(
    ("kind", "scoring"),
    [
        (LinearRegressorCV, "d2_pinball_score"),
        (LinearRegressorCV, "r2"),
        (LinearClassifierCV, "accuracy"),
        (LinearClassifierCV, "roc_auc"),
    ],
)
def test_scoring_is_scikit_learns(kind: Any, scoring: str) -> None:
    scorer = make_scorer(sklearn.metrics.d2_pinball_score, alpha=0.75)
    scorer = scorer if scoring.startswith("d2") else get_scorer(scoring)
    y = Y if kind is LinearRegressorCV else (Y > 3).astype(int)
    model = kind(l2s=[100.0, 0.1], cv=KFold(3), scoring=scorer, tol=1e-8).fit(X, y)
    for k, l2 in enumerate(model.l2s_):
        alone = model._kind(l2=l2, tol=1e-8)
        expected = cross_val_score(alone, X, y, cv=KFold(3), scoring=scorer)
        np.testing.assert_allclose(model.scores_[:, k], expected, rtol=1e-4)


# ---- metadata


def test_groups_go_through() -> None:
    given = LinearRegressorCV(l2s=2, cv=GroupKFold(3)).fit(X, Y, groups=GROUPS)
    folds = [*GroupKFold(3).split(X, Y, GROUPS)]
    assert (given.scores_ == LinearRegressorCV(l2s=2, cv=folds).fit(X, Y).scores_).all()
    with pytest.raises(InvalidArgumentError, match=r"fit takes colour .*metadata routing only"):
        given.fit(X, Y, colour=GROUPS)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = LinearRegressorCV(l2s=2, cv=GroupKFold(3)).fit(X, Y, groups=GROUPS)
        assert (routed.scores_ == given.scores_).all()
        pipeline = make_pipeline(StandardScaler(), LinearRegressorCV(l2s=2, cv=LeaveOneGroupOut()))
        pipeline.fit(X, Y, groups=GROUPS)
        assert pipeline[-1].scores_.shape == (6, 2)
        with pytest.raises(TypeError, match="unexpected argument"):
            LinearRegressorCV(l2s=2).fit(X, Y, groups=GROUPS)


def test_the_scorer_s_metadata_go_through() -> None:
    seen: list[tuple[int, Any, Any]] = []

    def scored(y: Any, z: Any, sample_weight: Any = None, price: Any = None) -> float:
        seen.append((len(y), sample_weight, price))
        return -float(np.average((y - z) ** 2, weights=sample_weight))

    prices = np.arange(120.0)
    with sklearn.config_context(enable_metadata_routing=True):
        scorer = make_scorer(scored)
        model = LinearRegressorCV(l2s=[1.0], cv=3, scoring=scorer)
        with pytest.raises(UnsetMetadataPassedError):
            model.fit(X, Y, sample_weight=WEIGHTS)
        assert not hasattr(model, "coef_") and not seen
        scorer = scorer.set_score_request(sample_weight=True, price=True)
        model.set_params(scoring=scorer).fit(X, Y, sample_weight=WEIGHTS, price=prices)
        for k, (n, weight, price) in enumerate(seen):
            test = slice(40 * k, 40 * k + 40)
            assert n == 40
            np.testing.assert_array_equal(weight, WEIGHTS[test])
            np.testing.assert_array_equal(price, prices[test])
        requested = model.set_fit_request(sample_weight=True).get_metadata_routing()
        assert requested.consumes("fit", ["sample_weight", "price"]) == {"sample_weight", "price"}
        by_loss = LinearRegressorCV(l2s=[1.0], cv=3).fit(X, Y, sample_weight=WEIGHTS)
    np.testing.assert_allclose(2 * by_loss.scores_, model.scores_, rtol=1e-9)


def test_a_score_that_is_not_a_number_never_wins() -> None:
    def scored(model: Any, X: Any, y: Any) -> float:
        return float("nan") if model.l2 > 5 else -model.l2

    model = LinearRegressorCV(l2s=[10.0, 1.0, 3.0], cv=3, scoring=scored).fit(X, Y)
    assert np.isnan(model.scores_[:, 0]).all() and model.l2_ == 1.0
