"""The rows that the interior-point method leaves out, and that all count in the end."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from certified import check
from common.linear_losses import CORNERED, estimator, targets
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from tfopt.linear_model import SDCAClassifier
from tfopt.linear_model._fit import interior_rows, plan

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


@pytest.fixture
def left_out(few_are_many: None, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows are left out each time that they are chosen."""
    counts, choose = [], interior_rows.Choose.__call__

    def counted(self: Any, objective: Any, state: Any) -> Any:
        state, answer = choose(self, objective, state)
        counts.append(0 if state.near is None else len(state.examples) - len(state.near.at))
        return state, answer

    monkeypatch.setattr(interior_rows.Choose, "__call__", counted)
    return counts


@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.parametrize("intercept", [False, True])
def test_more_and_more_rows_are_left_out_of_steps_but_not_of_certificates(
    kind: str, intercept: bool, left_out: list[int]
) -> None:
    X, z, weight = overlapping(300)
    rows = sparse.csr_matrix(X) if kind == "csr" else X
    options = {"fit_intercept": intercept, "solver": "interior-point", "tol": 0.0}
    for n_iter in range(1, 13):
        left_out.clear()
        model = fitted(rows, np.sign(z), weight, **options, max_iter=n_iter)
        check(model, X, np.sign(z), weight)
    assert left_out[0] == 0 and len({*left_out}) > 2 and left_out[-1] > 200
    assert np.max(relative_gaps(model)) <= 1e-5


def test_near_the_minimum_rows_are_left_out_at_once(left_out: list[int]) -> None:
    """How far predictions move is known from the first step on."""
    X, z, weight = overlapping(300)
    y, options = np.sign(z), {"fit_intercept": False, "warm_start": True}
    first = fitted(X, y, weight, **options, solver="sdca", tol=1e-3)
    gap = relative_gaps(first)[0]
    model = first.set_params(solver="interior-point", tol=1e-8).fit(X, y, weight)
    check(model, X, y, weight)
    assert max(left_out[:4]) > 200 and model.n_iter_[0] < 12
    assert relative_gaps(model)[0] <= 1e-8 < gap


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
