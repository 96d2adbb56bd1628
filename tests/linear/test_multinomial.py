"""The multinomial logistic loss against its definition and against scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import check_sample_weight_equivalence_on_dense_data

from tfopt.errors import InvalidArgumentError
from tfopt.linear_model import SDCAClassifier, SDCAClassifierCV, from_json, sdca_path, to_json
from tfopt.linear_model._fit import multinomial as solver
from tfopt.linear_model._fit import multinomial_system

random = np.random.default_rng(0)
X = random.standard_normal((90, 4)) * (random.uniform(size=(90, 4)) < 0.8)
Z = X @ random.standard_normal((4, 3)) + random.gumbel(size=(90, 3))
Y = Z.argmax(axis=1)
WEIGHTS = random.choice([0.0, 0.5, 1.0, 2.0], 90)


def primal_of(
    rows: Any, y: np.ndarray, c: np.ndarray, W: np.ndarray, b: np.ndarray, l2: float
) -> Any:
    """``sum c * (logsumexp(z) - z[y]) + l2 / 2 * |W|**2`` with z = W x + b, in long double"""
    z = np.longdouble(rows) @ W.T + b
    least = z.max(axis=1)
    heights = np.log(np.exp(z - least[:, None]).sum(axis=1)) + least
    return c @ (heights - z[np.arange(len(y)), y]) + l2 / 2 * (W * W).sum()


def dual_of(rows: Any, y: np.ndarray, c: np.ndarray, a: np.ndarray, l2: float) -> Any:
    """``sum c * entropy(e[y] - a) - l2 / 2 * |V|**2``, V = sum c * a x^T / l2

    It is at most the least primal, for all a that leave probabilities and, with an intercept, have
    a weighted sum of 0.
    """
    q = np.eye(a.shape[1])[y] - np.longdouble(a)
    assert (q[c > 0] >= -1e-12).all()
    q = np.maximum(q, 0)
    entropies = -np.where(q > 0, q * np.log(np.where(q > 0, q, 1)), 0).sum(axis=1)
    V = (c[:, None] * np.longdouble(a)).T @ rows / l2
    return c @ entropies - l2 / 2 * (V * V).sum()


def gradient_of(
    rows: Any, y: np.ndarray, c: np.ndarray, W: np.ndarray, b: np.ndarray, l2: float
) -> Any:
    """The primal's derivatives by W and by b."""
    z = rows @ W.T + b
    p = np.exp(z - z.max(axis=1, keepdims=True))
    r = c[:, None] * (p / p.sum(axis=1, keepdims=True) - np.eye(len(b))[y])
    return l2 * W + r.T @ rows, r.sum(axis=0)


def model(**options: Any) -> SDCAClassifier:
    return SDCAClassifier("multinomial", **options)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("tol", [0.3, 1e-3, 1e-9])
@pytest.mark.parametrize("shift", [0.0, 10.0])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_the_certificate_is_that_of_the_definitions(
    intercept: bool, tol: float, shift: float, kind: Any
) -> None:
    rows = X + shift
    fit = model(l2=0.7, tol=tol, fit_intercept=intercept).fit(kind(rows), Y, WEIGHTS)
    W, b, a = fit.coef_, fit.intercept_, fit.dual_coef_.T.copy()
    primal = primal_of(rows, Y, WEIGHTS, W, b, 0.7)
    assert fit.objective_ == pytest.approx(float(primal), rel=1e-9)
    centred = rows - rows.mean(axis=0) if intercept else rows  # a has the sum 0, but for rounding
    dual = dual_of(centred, Y, WEIGHTS, a, 0.7)
    assert fit.objective_ - fit.dual_gap_ == pytest.approx(float(dual), rel=1e-9)
    assert 0 <= fit.dual_gap_ <= tol * fit.objective_
    if intercept:
        np.testing.assert_allclose(WEIGHTS @ a, 0, atol=1e-10)
        assert b.sum() == pytest.approx(0, abs=1e-9)
    else:
        assert not b.any()
    if tol < 1e-6:
        by_w, by_b = gradient_of(centred, Y, WEIGHTS, W, b + W @ (rows - centred)[0], 0.7)
        np.testing.assert_allclose(by_w, 0, atol=1e-2)
        assert not intercept or np.abs(by_b).max() < 1e-6


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("n_features", [3, 40, 700])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_each_way_to_solve_a_system_leads_to_the_minimum(
    intercept: bool, n_features: int, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(n_features)
    rows = random.standard_normal((150, n_features)) * (random.uniform(size=(150, 1)) < 0.9)
    labels = (rows[:, :3] @ random.standard_normal((3, 9))).argmax(axis=1)
    labels[:9] = range(9)
    weights, ways = random.choice([0.5, 1.0, 2.0], 150), []
    for name in ("whole_hessian", "block_solver"):
        method = getattr(multinomial_system, name)

        def noted(*args: Any, name: str = name, method: Any = method) -> Any:
            result = method(*args)
            ways.append(name if result is not None else "diagonal")
            return result

        monkeypatch.setattr(multinomial_system, name, noted)
    fit = model(l2=0.3, tol=1e-11, fit_intercept=intercept).fit(kind(rows), labels, weights)
    way = {3: "whole_hessian", 40: "block_solver", 700: "diagonal"}[n_features]
    assert set(ways) == {way} and fit.dual_gap_ <= 1e-11 * fit.objective_
    W, b = fit.coef_, fit.intercept_
    slopes = gradient_of(rows, labels, weights, W, b, 0.3)
    assert np.abs(slopes[0]).max() < 1e-4 and (not intercept or np.abs(slopes[1]).max() < 1e-4)
    primal = primal_of(rows, labels, weights, W, b, 0.3)
    dual = dual_of(rows, labels, weights, fit.dual_coef_.T, 0.3)
    assert fit.objective_[0] == pytest.approx(float(primal), rel=1e-12)
    assert primal - dual <= 1e-11 * primal * (1 + 1e-3) + 1e-13 * primal


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, np.float32])
def test_the_optimum_is_scikit_learns(intercept: bool, kind: Any) -> None:
    rows, labels = load_iris(return_X_y=True)
    theirs = LogisticRegression(
        C=0.5, tol=1e-8, solver="newton-cg", max_iter=500, fit_intercept=intercept
    ).fit(rows, labels)
    ours = model(C=0.5, fit_intercept=intercept).fit(kind(rows), labels)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-3)
    np.testing.assert_allclose(ours.predict_proba(rows), theirs.predict_proba(rows), atol=1e-4)
    assert ours.solver_ == ["newton-cg"] and ours.n_iter_.shape == (1,)


@given(
    seed=st.integers(0, 2**32),
    size=st.sampled_from([1e-9, 1e-3, 0.1, 1.0, 9.0]),
    n_classes=st.integers(2, 6),
)
def test_feasible_probabilities(seed: int, size: float, n_classes: int) -> None:
    """They are probabilities, their sums are the classes', and they are as near as the others."""
    random = np.random.default_rng(seed)
    codes = np.concatenate([np.arange(n_classes), random.integers(0, n_classes, 30)])
    weight = random.choice([0.5, 1.0, 2.0], len(codes))
    p = random.uniform(0.2, 1, (len(codes), n_classes))
    p *= np.bincount(codes, weight)  # about the sums
    p *= np.exp(size * random.standard_normal(n_classes))
    p /= p.sum(axis=1, keepdims=True)
    problem = solver.Multinomial((), codes, n_classes, weight, 1, 1.0, True, 1)
    q = solver.feasible(problem, p.T).T
    assert (q >= 0).all()
    np.testing.assert_allclose(q.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(weight @ q, problem.class_sums, rtol=1e-9)
    off = np.abs(weight @ p / weight.sum() - problem.class_sums / weight.sum()).max()
    least = (problem.class_sums / weight.sum()).min()
    assert np.abs(q - p).max() <= min(1.0, 4 * off / least)


def test_two_classes_are_the_logistic_loss() -> None:
    for options in ({}, {"l1": 1.0}, {"num_loss_partitions": [40, 50]}):
        losses = ("logistic", "multinomial")
        fits = [SDCAClassifier(loss, **options).fit(X, Y > 0) for loss in losses]
        assert fits[0].coef_.tobytes() == fits[1].coef_.tobytes()
        np.testing.assert_array_equal(*(fit.predict_proba(X) for fit in fits))


def test_more_classes_than_lanes() -> None:
    labels = np.arange(90) % 11
    rows = X + np.eye(11)[labels][:, :4]
    kinds = (np.asarray, sparse.csr_matrix)
    dense, stored = (model(tol=1e-10).fit(kind(rows), labels) for kind in kinds)
    np.testing.assert_allclose(dense.coef_, stored.coef_, atol=1e-5)
    np.testing.assert_allclose(dense.objective_, stored.objective_, rtol=1e-10)


def test_weights_are_repetitions() -> None:
    times = random.integers(0, 3, 90)
    one = model(class_weight="balanced", tol=1e-12).fit(X, Y, times)
    again = model(class_weight="balanced", tol=1e-12).fit(
        np.repeat(X, times, axis=0), np.repeat(Y, times)
    )
    # the objective has one minimum and the curvature l2 = 1, so that each gap bounds the distance
    distance = np.linalg.norm(one.coef_ - again.coef_)
    assert distance <= sum(float(np.sqrt(2 * fit.dual_gap_[0])) for fit in (one, again)) + 1e-12
    check_sample_weight_equivalence_on_dense_data("SDCAClassifier", model())  # to the last digits


def test_warm_starts_paths_and_choices() -> None:
    fit = model(warm_start=True, tol=1e-8, keep_duals=False).fit(X + 5, Y)
    cold = model(l2=1.1, tol=1e-8).fit(X + 5, Y)
    fit.set_params(l2=1.1).fit(X + 5, Y)
    assert fit.n_iter_[0] < cold.n_iter_[0] and not hasattr(fit, "dual_coef_")
    np.testing.assert_allclose(fit.objective_, cold.objective_, rtol=1e-8)
    path = sdca_path(X, Y, "multinomial", l2s=[10.0, 1.0], tol=1e-8)
    np.testing.assert_allclose(path.coefs[1], model(tol=1e-8).fit(X, Y).coef_, atol=1e-3)
    assert SDCAClassifierCV("multinomial", l2s=3, cv=3).fit(X, Y).scores_.shape == (3, 3)
    again = from_json(to_json(fit))
    np.testing.assert_array_equal(again.predict_proba(X), fit.predict_proba(X))


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"solver": "sdca"}, "solver='sdca'"),
        ({"solver": "newton-cholesky"}, "solver='newton-cholesky'"),
        ({"adaptive": True}, "adaptive=True"),
        ({"num_loss_partitions": 2}, "num_loss_partitions=2"),
        ({"num_loss_partitions": [40, 50]}, "in blocks"),
        ({"l1": 1.0, "solver": "sdca"}, "solver='sdca'"),
    ],
)
def test_what_does_not_apply_is_refused(options: dict[str, Any], where: str) -> None:
    fit = model().fit(X, Y)
    before = fit.coef_.tobytes()
    with pytest.raises(InvalidArgumentError, match=f"and not.*{where}.*set loss='logistic'"):
        fit.set_params(**options).fit(X, Y % 3)
    assert fit.coef_.tobytes() == before
