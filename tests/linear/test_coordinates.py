"""Fewer dense rows than features: fits in coordinates of the rows, beside fits without."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from common.linear_losses import CORNERED, LOSSES, estimator, targets
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from tfopt.linear_model import SDCAClassifier, sdca_path
from tfopt.linear_model._fit.coordinates import RowSpace
from tfopt.linear_model._fit.problem import Problem as Prepared
from tfopt.linear_model._fit.problem import as_rows
from tfopt.linear_model.losses import loss_named as record_named
from tfopt_ref import linear
from tfopt_ref.losses import loss_named

WHERE = "in coordinates of the rows"
each_loss = pytest.mark.parametrize("loss", LOSSES)


def data(
    loss: str, shape: tuple[int, int] = (24, 300), kind: str = "plain"
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, labels and weights, some of them 0."""
    random = np.random.default_rng(3)
    n, m = shape
    X = random.standard_normal((n, 5)) @ random.standard_normal((5, m)) / 3
    X += 0.3 * random.standard_normal((n, m))
    z = X[:, :4].sum(axis=1) + random.standard_normal(n)
    if kind == "repeated":
        X[n // 2 :] = X[: n - n // 2]
    if kind == "shifted":
        X += 50
    if kind == "zeros":
        X[::3] = 0
    if kind == "columns":
        X = np.asfortranarray(X)
    if kind == "float32":
        X = X.astype(np.float32)
    return X, targets(loss, z, random), random.choice([0.0, 0.5, 1.0, 2.0], n)


def fitted(model: Any, *samples: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(*samples)


def reasons(model: Any) -> list[str]:
    return [record["reason"] for history in model.history_ for record in history]


def without_coordinates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfopt.linear_model.estimator.pays", lambda *_: False)


@each_loss
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", ["plain", "repeated", "shifted", "zeros", "columns", "float32"])
def test_the_minimum_is_that_without(
    loss: str, intercept: bool, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = data(loss, kind=kind)
    tol = 1e-6 if kind == "shifted" else 1e-9  # squares of 50 leave fewer digits to the products
    options = {"fit_intercept": intercept, "tol": tol, "max_iter": 20_000}
    found = fitted(estimator(loss, **options), *samples)
    assert WHERE in reasons(found)[0]
    without_coordinates(monkeypatch)
    other = fitted(estimator(loss, **options), *samples)
    assert not any(WHERE in reason for reason in reasons(other))
    least = (other.objective_ - other.dual_gap_).max()
    assert (least <= found.objective_ * (1 + 1e-12)).all()
    assert (found.dual_gap_ <= tol * found.objective_).all()


@each_loss
@pytest.mark.parametrize("intercept", [False, True])
def test_the_certificate_is_of_all_features(loss: str, intercept: bool) -> None:
    X, y, c = data(loss)
    l2, tol = 0.7, 1e-7
    model = estimator(loss, l2=l2, fit_intercept=intercept, tol=tol)
    model = fitted(model, X, y, c)
    w, b, a = (np.ravel(part) for part in (model.coef_, model.intercept_, model.dual_coef_))
    problem = linear.Problem(
        linear.rows_of(X), y, c, loss_named(f"{loss}_loss", model._parameter()), 0.0, l2
    )
    primal = linear.primal(problem, w, float(b[0]))
    assert np.ravel(model.objective_)[0] == pytest.approx(primal, rel=1e-10)
    gap = linear.gap(problem, w, float(b[0]), a)
    assert np.ravel(model.dual_gap_)[0] == pytest.approx(gap, abs=1e-9 * primal)
    if intercept:
        assert abs(c @ a) <= 1e-12 * (c @ np.abs(a))
    last = model.history_[0][-1]
    assert last["objective"] == np.ravel(model.objective_)[0]


@given(st.integers(0, 2**32 - 1), st.sampled_from([np.float32, np.float64]))
def test_coordinates_keep_products_and_lead_back(seed: int, dtype: Any) -> None:
    random = np.random.default_rng(seed)
    n, m = int(random.integers(1, 30)), int(random.integers(30, 5000))
    X = random.standard_normal((n, m)).astype(dtype)
    space = RowSpace(as_rows(X), 1)
    L, exact = space.rows[3], X.astype(np.float64)
    assert space.is_exact and L.shape == (n, n)
    scale = m * 1e-12
    np.testing.assert_allclose(L @ L.T, exact @ exact.T, rtol=1e-12, atol=scale)
    objective = Prepared(as_rows(X), m, record_named("logistic_loss"), 0.0, 1.0, True, 1)
    u = random.standard_normal(n)
    w = space.weights(objective, u)
    np.testing.assert_allclose(exact @ w, L @ u, rtol=1e-7, atol=1e-7)
    assert w @ w == pytest.approx(u @ u, rel=1e-7)
    np.testing.assert_allclose(space.of_weights(objective, w), u, rtol=1e-6, atol=1e-6)
    # what is orthogonal to the rows is left out
    other = random.standard_normal(m)
    other -= exact.T @ np.linalg.lstsq(exact.T, other, rcond=None)[0]
    np.testing.assert_allclose(space.of_weights(objective, w + other), u, rtol=1e-6, atol=1e-6)


def test_several_classes_share_coordinates(monkeypatch: pytest.MonkeyPatch) -> None:
    X, _, c = data("logistic", (40, 200))
    y = np.argmax(X[:, :3], axis=1)
    for loss in ("logistic", "hinge"):
        with monkeypatch.context() as patch:
            model = fitted(SDCAClassifier(loss, tol=1e-6), X, y, c)
            assert all(WHERE in history[0]["reason"] for history in model.history_)
            assert model.dual_coef_.shape == (3, 40) and model.coef_.shape == (3, 200)
            without_coordinates(patch)
            other = fitted(SDCAClassifier(loss, tol=1e-6, max_iter=10_000), X, y, c)
        np.testing.assert_allclose(model.objective_, other.objective_, rtol=3e-6)


@each_loss
def test_a_warm_start_goes_on_from_its_weights(loss: str) -> None:
    X, y, c = data(loss)
    model = fitted(estimator(loss, tol=1e-9, warm_start=True), X, y, c)
    first = model.n_iter_[0], np.ravel(model.objective_)[0]
    again = fitted(model, X, y, c)
    assert again.n_iter_[0] <= 2 or loss in CORNERED  # which begin on the central path
    assert np.ravel(again.objective_)[0] == pytest.approx(first[1], rel=1e-9)


def test_a_path_forms_the_products_once(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, _ = data("logistic")
    made = []
    new = RowSpace.__init__
    monkeypatch.setattr(
        RowSpace, "__init__", lambda self, *given: made.append(1) or new(self, *given)
    )
    l2s = np.logspace(2, -2, 6)
    path = sdca_path(X, y, "logistic", l2s=l2s)
    assert made == [1] and (path.dual_gaps <= 1e-4 * path.objectives).all()
    for k, l2 in enumerate(l2s):
        alone = fitted(SDCAClassifier(l2=l2, tol=1e-9), X, y)
        assert path.objectives[k, 0] == pytest.approx(alone.objective_[0], rel=1.1e-4)


def test_bits_do_not_depend_on_threads() -> None:
    X, y, c = data("logistic", (60, 9000))
    found = []
    for threads in (1, 2, 3):
        found.append(fitted(SDCAClassifier(n_jobs=threads), X, y, c).coef_)
    assert all(np.array_equal(each, found[0]) for each in found)


@pytest.mark.parametrize(
    "options",
    [
        {"l1": 1.0},
        {"solver": "sdca"},
        {"solver": "newton-cg"},
        {"adaptive": True},
        {"num_loss_partitions": 2},
    ],
)
def test_options_that_ask_for_something_else_are_obeyed(options: dict[str, Any]) -> None:
    X, y, c = data("logistic")
    model = fitted(SDCAClassifier(max_iter=20, **options), X, y, c)
    assert not any(WHERE in reason for reason in reasons(model))


def test_more_rows_than_features_or_too_many_or_few_have_no_coordinates() -> None:
    for shape in ((50, 50), (60, 40), (501, 600), (10, 30)):
        X, y, c = data("logistic", shape)
        model = fitted(SDCAClassifier(tol=1e-2), X, y, c)
        assert not any(WHERE in reason for reason in reasons(model))


def test_a_certificate_that_rounding_spoils_is_sought_with_all_features(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, y, c = data("logistic")
    weights = RowSpace.weights
    monkeypatch.setattr(
        RowSpace, "weights", lambda self, *given: weights(self, *given) * (1 + 1e-3)
    )
    model = fitted(SDCAClassifier(tol=1e-8), X, y, c)
    assert (model.dual_gap_ <= 1e-8 * model.objective_).all()
    assert not any(WHERE in reason for reason in reasons(model))
    assert len(model.history_[0]) == model.n_iter_[0]
    monkeypatch.setattr(RowSpace, "is_exact", False, raising=False)


def test_only_zeros() -> None:
    X, y, c = np.zeros((5, 40)), np.array([0, 1, 0, 1, 1]), np.ones(5)
    model = fitted(SDCAClassifier(tol=1e-10), X, y, c)
    assert not model.coef_.any()
    assert model.intercept_[0] == pytest.approx(np.log(3 / 2), rel=1e-4)
