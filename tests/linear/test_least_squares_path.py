"""Least squares along a path of penalties and in folds: from sums over the rows, taken once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LassoCV
from sklearn.model_selection import KFold, ShuffleSplit

from tfopt import threads
from tfopt.linear_model import SDCARegressor, SDCARegressorCV, sdca_path
from tfopt.linear_model._fit import least_squares
from tfopt.linear_model.paths import FoldFits, WarmFits

each_form = pytest.mark.parametrize("form", [np.array, sparse.csr_matrix], ids=["dense", "sparse"])


def samples(n: int, m: int, far: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(n + m)
    X = random.standard_normal((n, m)) @ (np.eye(m) + random.standard_normal((m, m)) / 3) + far
    w = np.where(random.random(m) < 0.4, random.standard_normal(m), 0.0)
    y = X @ w + random.standard_normal(n) * np.sqrt(m)
    weights = random.choice([0.0, 0.5, 1.0, 3.0], n)
    weights[:2] = 1.0
    return X, y, weights


def gap_of(
    X: np.ndarray, y: np.ndarray, c: np.ndarray, w: np.ndarray, b: float, l1: float, l2: float
) -> tuple[float, float]:
    """Return the objective and the gap of the better multiple, in extended precision."""
    X, y, c, w = (np.asarray(each, np.longdouble) for each in (X, y, c, w))
    r = y - X @ w - np.longdouble(b)
    value = c @ r**2 / 2 + l1 * np.abs(w).sum() + l2 / 2 * (w @ w)
    if b:
        r = r - (c @ r) / c.sum()
    v = X.T @ (c * r)
    best = np.longdouble(-np.inf)
    scales = {1.0, min(1.0, l1 / float(np.abs(v).max()))} if l1 else {1.0}
    for scale in scales:
        a, outside = scale * r, np.maximum(np.abs(scale * v) - l1, 0.0)
        if l2 == 0 and outside.max() > 1e-17 * l1:
            scale, outside = scale * (1 - np.longdouble(1e-17)), 0.0
        least = c @ (a * y - a**2 / 2)
        best = max(best, least - (outside**2).sum() / (2 * l2) if l2 else least)
    return float(value), float(value - best)


@each_form
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("n", "m", "far"), [(300, 12, 0.0), (500, 5, 30.0), (30, 60, 0.0)])
@pytest.mark.parametrize("l2", [0.0, 1e-3, 10.0])
def test_gaps_hold_in_extended_precision(
    form: Any, intercept: bool, n: int, m: int, far: float, l2: float
) -> None:
    X, y, weights = samples(n, m, far)
    strongest = np.abs(X.T @ (weights * (y - y.mean()))).max()
    l1s = np.append(np.geomspace(strongest, strongest / 300, 12), [0.0] if l2 else [])
    for tol in (1e-4, 1e-9):
        path = sdca_path(
            form(X),
            y,
            "squared",
            l1s=l1s,
            l2=l2,
            tol=tol,
            fit_intercept=intercept,
            sample_weight=weights,
        )
        assert (path.n_iters == 1).all()
        assert (path.dual_gaps <= tol * path.objectives).all()
        for k, l1 in enumerate(l1s):
            at = path.coefs[k, 0], float(path.intercepts[k, 0]), float(l1), l2
            value, gap = gap_of(X, y, weights, *at)
            objective, claimed = path.objectives[k, 0], path.dual_gaps[k, 0]
            assert abs(objective - value) <= claimed + 1e-15 * value
            assert gap <= claimed * (1 + 1e-6) + 1e-16 * value
            assert objective - claimed <= (value - gap) * (1 + 1e-15)


def test_a_path_takes_one_pass_for_all_penalties(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, _ = samples(300, 4)
    passes: list[str] = []
    for name in ("tangents", "newton_system", "gradient"):
        method = getattr(least_squares.rows, name)

        def counted(*args: Any, name: str = name, method: Any = method) -> Any:
            passes.append(name)
            return method(*args)

        monkeypatch.setattr(least_squares.rows, name, counted)
    path = sdca_path(X, y, "squared", l2s=np.logspace(3, -3, 9))
    assert passes == ["tangents", "newton_system"] and (path.n_iters == 1).all()
    passes.clear()
    path = sdca_path(X, y, "squared", l1s=np.logspace(3, -3, 9))
    assert passes == ["tangents", "newton_system"] and (path.n_iters == 1).all()
    # where rounding is too much for the model, rows are read again
    exact = X @ [1.0, -1.0, 2.0, 0.5] + 1e-9 * y
    passes.clear()
    path = sdca_path(X, exact, "squared", l2s=[1e-12], tol=1e-3)
    assert passes[2:4] == ["tangents", "gradient"]
    assert (path.dual_gaps <= 1e-3 * path.objectives).all()


@each_form
@pytest.mark.parametrize("far", [0.0, 1e3])
@pytest.mark.parametrize("penalties", [{"l1s": [300.0, 30.0, 3.0], "l2": 0.5}, {"l2s": [9.0, 0.1]}])
def test_a_fold_is_fitted_from_the_sums_of_all(
    form: Any, far: float, penalties: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y, weights = samples(400, 8, far)
    model = SDCARegressorCV(**penalties, cv=KFold(4), tol=1e-9).fit(form(X), y, weights)

    def of_samples(fits: FoldFits, train: np.ndarray, test: np.ndarray) -> WarmFits:
        taken = [each[train] for each in fits._samples]
        return WarmFits(fits._new_model(), *taken, *fits._penalties)

    monkeypatch.setattr(FoldFits, "of", of_samples)
    alone = SDCARegressorCV(**penalties, cv=KFold(4), tol=1e-9).fit(form(X), y, weights)
    np.testing.assert_allclose(model.scores_, alone.scores_, rtol=1e-5)
    assert model.l1_ == alone.l1_ and (model.coef_ == alone.coef_).all()


def test_of_a_fold_only_the_samples_held_out_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, weights = samples(100, 5)
    of, sizes = least_squares.Moments.of, []

    def counted(objective: Any, examples: Any, bias: float) -> Any:
        sizes.append(len(examples))
        return of(objective, examples, bias)

    monkeypatch.setattr(least_squares.Moments, "of", counted)
    options = {"l1s": [30.0, 3.0], "refit": False}
    SDCARegressorCV(**options, cv=KFold(5)).fit(X, y)
    assert sizes == [100, *[20] * 5]
    sizes.clear()  # these folds do not have all samples
    splitter = ShuffleSplit(2, train_size=0.5, test_size=0.2, random_state=0)
    SDCARegressorCV(**options, cv=splitter).fit(X, y)
    assert sizes == [100, 50, 50]
    weights[:80], sizes[:] = 0.0, []  # nor do sums say what has no weight at all
    with pytest.raises(ValueError, match="weight"):
        SDCARegressorCV(**options, cv=[(np.arange(80), np.arange(80, 100))]).fit(X, y, weights)


def test_a_fold_whose_sums_are_mostly_rounding_is_fitted_to_its_samples() -> None:
    X, y, _ = samples(200, 3)
    y[100:] *= 1e12  # only in the first fold
    cv = [(np.arange(100), np.arange(100, 200))]
    options = {"l2": 0.0, "tol": 1e-10}
    model = SDCARegressorCV(l1s=[20.0, 2.0], **options, cv=cv, refit=False).fit(X, y)
    alone = SDCARegressor(l1=model.l1_, **options).fit(X[:100], y[:100])
    np.testing.assert_allclose(model.coef_, alone.coef_, rtol=1e-4)


def test_the_same_penalty_is_chosen_as_by_another_library() -> None:
    X, y, _ = samples(300, 10)
    alphas = np.geomspace(2.0, 0.02, 20)
    theirs = LassoCV(alphas=alphas, cv=KFold(5), tol=1e-6, max_iter=100_000).fit(X, y)
    ours = SDCARegressorCV(l1s=alphas * 240, l2=0.0, cv=KFold(5), tol=1e-8, refit=False).fit(X, y)
    assert ours.l1_ / 240 == pytest.approx(theirs.alpha_)
    np.testing.assert_allclose(-2 * ours.scores_, theirs.mse_path_.T, rtol=1e-3)  # by their tol


def test_bits_do_not_depend_on_threads() -> None:
    X, y, _ = samples(20_000, 30)
    before, found = threads.get_num_threads(), []
    try:
        for n in (1, 2):
            threads.set_num_threads(n)
            path = sdca_path(X, y, "squared", l1s=np.geomspace(1e4, 1e2, 5))
            cv = SDCARegressorCV(l1s=[1e4, 1e3], n_jobs=n).fit(X, y)
            found.append((path.coefs, path.dual_gaps, cv.scores_, cv.coef_))
    finally:
        threads.set_num_threads(before)
    for one, two in zip(*found, strict=True):
        assert (one == two).all()
