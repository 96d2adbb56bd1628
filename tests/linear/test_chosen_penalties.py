"""The penalty that cross-validation chooses is the best of its criterion, found by separate fits.

For all losses of the estimators, and all splitters of scikit-learn.
"""

from __future__ import annotations

import tracemalloc
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn import model_selection
from sklearn.exceptions import ConvergenceWarning

from tfopt import linear_model
from tfopt.errors import InvalidArgumentError
from tfopt.linear_model import (
    SDCAClassifier,
    SDCAClassifierCV,
    SDCARegressor,
    SDCARegressorCV,
    sdca_path,
)
from tfopt.linear_model.losses import loss_named

N = 24
GROUPS = np.arange(N) // 4
L2S = [1e3, 30.0, 1.0, 1e-2]
#: What splitters cannot do without.
NEEDS: dict[str, dict[str, Any]] = {
    "LeavePOut": {"p": 1},
    "LeavePGroupsOut": {"n_groups": 1},
    "PredefinedSplit": {"test_fold": np.arange(N) % 3},
    "GroupShuffleSplit": {"n_splits": 3, "random_state": 0},
    "ShuffleSplit": {"n_splits": 3, "random_state": 0},
    "StratifiedShuffleSplit": {"n_splits": 3, "random_state": 0},
    "RepeatedKFold": {"n_repeats": 2, "n_splits": 3, "random_state": 0},
    "RepeatedStratifiedKFold": {"n_repeats": 2, "n_splits": 3, "random_state": 0},
}
SPLITTERS = [
    name
    for name in dir(model_selection)
    if isinstance(kind := getattr(model_selection, name, None), type)
    and "get_n_splits" in dir(kind)
    and "split" in dir(kind)
    and not name.startswith("Base")
]


def data(is_classifier: bool) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    X = random.standard_normal((N, 6))
    y = X @ np.array([1.0, -1.0, 0, 0, 0, 0]) + random.gamma(0.5, 3.0, N)
    return X, (y > np.median(y)).astype(int) if is_classifier else np.maximum(y, 0.125)


def fitted(model: Any, *arguments: Any, **more: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "R.2 score is not well-defined")
        return model.fit(*arguments, **more)


def criterion(model: Any, X: np.ndarray, y: np.ndarray) -> float:
    """Return minus the mean loss by its definition."""
    if isinstance(model, SDCAClassifier):
        y = np.where(y == model.classes_[-1], 1.0, -1.0)
    phi = loss_named(model._phi.kernel, model._parameter())
    return -float(np.mean(phi.value(X @ np.ravel(model.coef_) + model.intercept_, y)))


def judged(loss: str, options: dict[str, Any], *fold: np.ndarray) -> list[float]:
    """Return the criterion of each penalty on the rest of a fold; many minima are not unique."""
    X, y, X_rest, y_rest = fold
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        path = sdca_path(X, y, loss, l2s=L2S, **options)
    model: Any = (SDCAClassifier if loss in SDCAClassifier._LOSSES else SDCARegressor)(
        loss, **{k: v for k, v in options.items() if k == "quantile"}
    )
    criteria = []
    for coef, intercept in zip(path.coefs, path.intercepts, strict=True):
        model.coef_, model.intercept_, model.classes_ = coef, intercept, np.unique(y)
        if loss not in SDCAClassifier._LOSSES:
            model.coef_, model.intercept_ = coef[0], intercept[0]
        criteria.append(criterion(model, X_rest, y_rest))
    return criteria


@pytest.mark.parametrize("splitter", [None, *SPLITTERS])
@pytest.mark.parametrize("loss", [*SDCAClassifier._LOSSES, *SDCARegressor._LOSSES])
def test_the_best_penalty_is_chosen(loss: str, splitter: str | None) -> None:
    is_classifier = loss in SDCAClassifier._LOSSES
    if not is_classifier and splitter and "Stratified" in splitter:
        pytest.skip("strata are of classes")
    X, y = data(is_classifier)
    kind = getattr(model_selection, splitter) if splitter else None
    cv = kind(**NEEDS.get(splitter or "", {})) if kind else None
    options = {"tol": 1e-6, "max_iter": 300, "quantile": 0.9} if loss == "quantile" else {}
    model = (SDCAClassifierCV if is_classifier else SDCARegressorCV)(
        loss, l2s=L2S, cv=cv, refit=False, **options
    )
    if splitter == "TimeSeriesSplit" and is_classifier:
        y = np.arange(N) % 2
    groups = {"groups": GROUPS} if splitter and "Group" in splitter else {}
    fitted(model, X, y, **groups)
    folds = [*model_selection.check_cv(cv, y, classifier=is_classifier).split(X, y, **groups)]
    expected = np.array([judged(loss, options, X[a], y[a], X[b], y[b]) for a, b in folds])
    np.testing.assert_allclose(model.scores_, expected, rtol=1e-9, atol=1e-9)
    assert model.l2_ == L2S[int(expected.mean(axis=0).argmax())]


def test_scores_that_are_not_numbers_choose_nothing() -> None:
    X, y = data(False)
    model = SDCARegressorCV(l2s=L2S, cv=model_selection.LeaveOneOut(), scoring="r2")
    with pytest.raises(InvalidArgumentError, match="scoring='r2' is not a number"):
        fitted(model, X, y)
    assert not hasattr(model, "coef_")
    fitted(model.set_params(scoring=None), X, y)
    assert model.scores_.shape == (N, len(L2S))


def test_a_fold_without_weight_says_nothing() -> None:
    for kind, is_classifier in ((SDCAClassifierCV, True), (SDCARegressorCV, False)):
        X, y = data(is_classifier)
        weight = np.ones(N)
        weight[: N // 3] = 0
        model = kind(l2s=L2S, cv=model_selection.PredefinedSplit(np.arange(N) // (N // 3)))
        fitted(model, X, y, sample_weight=weight)
        assert np.isfinite(model.scores_).all() and model.l2_ in L2S


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("kind", ["FTRLClassifier", "FTRLRegressor"])
def test_epochs_take_no_memory(kind: str, shuffle: bool) -> None:
    X, y = np.zeros((20_000, 1)), np.arange(20_000) % 2
    peaks = []
    for epochs in (2, 60):
        model = getattr(linear_model, kind)(max_iter=epochs, shuffle=shuffle)
        tracemalloc.start()
        model.fit(X, y)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 200_000


@pytest.mark.parametrize("solver", ["sdca", "newton-cholesky", "newton-cg", "cd"])
def test_a_bar_never_runs_backwards(monkeypatch: pytest.MonkeyPatch, solver: str) -> None:
    import tqdm.auto

    steps: list[float] = []

    class Bar(tqdm.auto.tqdm):  # type: ignore[type-arg]
        def update(self, n: float | None = 1) -> bool | None:
            steps.append(n or 0)
            return super().update(n)

    monkeypatch.setattr(tqdm.auto, "tqdm", Bar)
    X = np.random.default_rng(0).standard_normal((300, 5))
    model = SDCAClassifier(verbose=True, tol=1e-10, solver=solver, max_iter=40)
    fitted(model, X * [1, 10, 1, 1, 1], X[:, :3].argmax(axis=1))
    assert steps and min(steps) >= 0 and sum(steps) <= 40
