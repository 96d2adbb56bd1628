"""The rows that the interior-point method leaves out, against the twin's, and that all count."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from common.linear_losses import CORNERED, estimator, targets
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from tfopt.linear_model import SDCAClassifier
from tfopt.linear_model._fit import interior_rows, plan
from tfopt_ref import sdca_interior_point as twin
from tfopt_ref.sdca_certificate import Problem
from tfopt_ref.sdca_losses import loss_named

L2 = 0.5


def fitted(*rows: Any, **options: Any) -> Any:
    options = {"l2": L2, "tol": 1e-9} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return SDCAClassifier("hinge", **options).fit(*rows)


def relative_gaps(model: Any) -> np.ndarray:
    return np.ravel(model.dual_gap_) / np.ravel(model.objective_)


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have rows left out of small data, too."""
    monkeypatch.setattr(interior_rows, "FEW", 0)
    monkeypatch.setattr(plan, "MANY_ROWS", 1)


def overlapping(n: int, seed: int = 2) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, scores that these explain in part, and weights, some of them 0."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, 5))
    z = X @ random.standard_normal(5) + random.standard_normal(n)
    return X, z, random.choice([0.0, 0.5, 1.0, 2.0], n)


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_rows_are_left_out_as_by_the_twin(kind: str, few_are_many: None) -> None:
    X, z, weight = overlapping(300)
    y = np.sign(z)
    problem = Problem(X, y, weight, loss_named("hinge_loss", 1.0), 0.0, L2, False)
    low, high = twin.corner(y)
    rows = sparse.csr_matrix(X) if kind == "csr" else X
    options = {"fit_intercept": False, "solver": "interior-point", "tol": 0.0}
    counts = []
    for n_iter, at in zip(range(1, 13), twin.steps(problem, low, high, True), strict=False):
        found = twin.certificate(problem, low, high, at, n_iter)
        model = fitted(rows, y, weight, **options, max_iter=n_iter)
        np.testing.assert_allclose(model.coef_[0], found.w, rtol=1e-6, atol=1e-8)
        kept = weight > 0
        np.testing.assert_allclose(model.dual_coef_[0][kept], found.a[kept], rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(
            model.dual_gap_[0], found.gap, rtol=1e-4, atol=1e-9 * found.primal
        )
        counts.append(int(at.out.sum()))
    assert counts[0] == 0 and len(set(counts)) > 2 and counts[-1] > 200


def test_near_the_minimum_rows_are_left_out_as_by_the_twin(few_are_many: None) -> None:
    """How far predictions move is known from the first step on."""
    X, z, weight = overlapping(300)
    y, options = np.sign(z), {"fit_intercept": False, "warm_start": True}
    problem = Problem(X, y, weight, loss_named("hinge_loss", 1.0), 0.0, L2, False)
    low, high = twin.corner(y)
    first = fitted(X, y, weight, **options, solver="sdca", tol=1e-3)
    w, a, gap = first.coef_[0], first.dual_coef_[0], float(first.dual_gap_[0])
    near = twin.near_start(problem, low, high, w, a, gap)
    counts = []
    for n_iter, at in zip(range(2, 9), twin.steps(problem, low, high, True, near), strict=False):
        found = twin.certificate(problem, low, high, at, n_iter)
        model = SDCAClassifier("hinge", l2=L2, **options, solver="interior-point", tol=0.0)
        model.coef_, model.intercept_, model.dual_coef_ = w[None], np.zeros(1), a[None]
        with pytest.warns(ConvergenceWarning):
            model.set_params(max_iter=n_iter).fit(X, y, weight)
        if found.gap < gap:  # else the best is still the first
            np.testing.assert_allclose(model.coef_[0], found.w, rtol=1e-6, atol=1e-8)
        counts.append(int(at.out.sum()))
    assert found.gap < 1e-5 * gap and counts[0] == 0 and max(counts[:4]) > 200


@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-3, 1.0, 1e3]), st.booleans())
@example(810528, 1.0, True)  # predictions come a short way from the beginning at first
def test_without_far_rows_the_minimum_is_the_same(seed: int, l2: float, intercept: bool) -> None:
    X, z, weight = overlapping(200, seed)
    y = np.sign(z)
    options = {"l2": l2, "fit_intercept": intercept, "tol": 1e-8, "solver": "interior-point"}
    least = SDCAClassifier("hinge", **options).fit(X, y, weight)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interior_rows, "FEW", 0)
        patch.setattr(plan, "MANY_ROWS", 1)
        model = SDCAClassifier("hinge", **options).fit(X, y, weight)
    assert np.max(relative_gaps(model)) <= 1e-8
    np.testing.assert_allclose(model.objective_, least.objective_, rtol=2e-8)


@pytest.mark.parametrize("loss", CORNERED)
def test_rows_of_numbers_are_not_left_out(
    loss: str, few_are_many: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, z, weight = overlapping(300)
    y, chosen = targets(loss, z, np.random.default_rng(0)), []
    choose = interior_rows.Choose.__call__
    monkeypatch.setattr(
        interior_rows.Choose, "__call__", lambda *given: chosen.append(1) or choose(*given)
    )
    estimator(loss, tol=1e-8, solver="interior-point").fit(X, y, weight)
    assert bool(chosen) == (loss == "hinge")


def test_rows_that_were_left_out_in_error_come_back(
    few_are_many: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of residuals that are all said to be long, the certificate says otherwise."""
    X, z, weight = overlapping(300)
    kept = []

    def residuals(*arguments: Any) -> np.ndarray:
        kept.append(None)
        found = plain(*arguments)
        return found if len(kept) > 5 else np.where(np.abs(found) < 0.1, found, 1e3 * found)

    plain = interior_rows._residuals
    least = fitted(X, np.sign(z), weight, tol=1e-9).objective_
    monkeypatch.setattr(interior_rows, "_residuals", residuals)
    model = fitted(X, np.sign(z), weight, tol=1e-9, solver="interior-point")
    assert relative_gaps(model) <= 1e-9
    np.testing.assert_allclose(model.objective_, least, rtol=2e-9)


@pytest.mark.parametrize("intercept", [False, True])
def test_the_unit_of_the_objective_is_nothing_to_the_choice(
    intercept: bool, few_are_many: None
) -> None:
    X, z, weight = overlapping(300)
    options = {"fit_intercept": intercept, "solver": "interior-point"}
    seen = set()
    for unit in (1.0, 2.0**-20, 2.0**20):
        model = fitted(X, np.sign(z), weight * unit, l2=L2 * unit, **options)
        seen.add((model.coef_.tobytes(), int(model.n_iter_[0])))
    assert len(seen) == 1


def test_many_rows_are_visited_first(few_are_many: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "SHARE_BEFORE", 1.0)
    X, z, weight = overlapping(300)
    solvers = [record["solver"] for record in fitted(X, np.sign(z), weight).history_[0]]
    assert solvers[: plan.EPOCHS_BEFORE] == ["sdca"] * plan.EPOCHS_BEFORE
    assert solvers[-1] == "interior-point"
