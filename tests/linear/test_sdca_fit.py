"""Fits of the estimators against the twin's, and the twin's certificates by their definition."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from common.linear_losses import LOSSES as NAMES
from common.linear_losses import estimator, parameter_of, targets
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from tfopt.linear_model._fit import certificate
from tfopt_ref import sdca_fit as twin
from tfopt_ref.sdca_losses import loss_named

LOSSES = [f"{name}_loss" for name in NAMES]
each_problem = pytest.mark.parametrize(
    ("loss", "l1", "intercept"),
    [(loss, l1, intercept) for loss in LOSSES for l1 in (0.0, 1.5) for intercept in (False, True)],
)
PARAMETER, L2 = 0.6, 2.0
#: What the estimators make of random_state=0.
SEED = np.random.RandomState(0).randint(2**31 - 1)


@pytest.fixture(autouse=True)
def as_the_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the best bias looked for to the end, as the twin does."""
    monkeypatch.setattr(certificate, "BIAS_SHARE", 0.0)


def data(loss: str, n: int = 40, d: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, many of them 0, labels and weights, some of them 0."""
    random = np.random.default_rng(3)
    X = random.standard_normal((n, d)) * (random.uniform(size=(n, d)) < 0.6)
    z = X @ random.standard_normal(d) + 0.5 + random.standard_normal(n)
    y = targets(loss.removesuffix("_loss"), z, random)
    return X, y, random.choice([0.0, 0.5, 1.0, 2.0], n)


def ours(loss: str, l1: float, intercept: bool, **options: Any) -> Any:
    X, y, c = data(loss)
    options = {"l1": l1, "l2": L2, "fit_intercept": intercept, "max_iter": 20_000, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator(loss.removesuffix("_loss"), PARAMETER, **options).fit(
            sparse.csr_matrix(X), y, c
        )


def theirs(loss: str, l1: float, intercept: bool, **options: Any) -> twin.Fit:
    options = {"parameter": parameter_of(loss, PARAMETER), "max_iter": 20_000, **options}
    return twin.fit(*data(loss), loss, l1=l1, l2=L2, intercept=intercept, seed=SEED, **options)


@each_problem
@pytest.mark.parametrize(("tol", "max_iter"), [(1e-2, 20_000), (1e-5, 20_000), (0.0, 1), (0.0, 23)])
def test_the_certificate_is_that_of_the_definitions(
    loss: str, l1: float, intercept: bool, tol: float, max_iter: int
) -> None:
    X, y, c = data(loss)
    found = theirs(loss, l1, intercept, tol=tol, max_iter=max_iter)
    phi = loss_named(loss, parameter_of(loss, PARAMETER))
    w, b, a = found.w, found.b, found.a
    z, v = X @ w + b, X.T @ (c * a) / L2
    S = np.sign(v) * np.maximum(np.abs(v) - l1 / L2, 0)
    least = np.array([-phi.conjugate(0.0, label) for label in y.tolist()])
    values = np.array([phi.value(*pair) for pair in zip(z.tolist(), y.tolist(), strict=True)])
    values -= least
    conjugates = np.array([phi.conjugate(*pair) for pair in zip(a, y, strict=True)]) + least
    conjugates = np.where(c > 0, conjugates, 0.0)  # of those without weight nothing is asked
    primal = c @ values + l1 * np.abs(w).sum() + L2 / 2 * w @ w
    dual = -(c @ conjugates) - L2 / 2 * S @ S
    assert found.primal == pytest.approx(primal, rel=1e-13)
    assert found.gap == pytest.approx(primal - dual, rel=1e-9, abs=1e-13 * abs(primal))
    assert found.gap >= 0 and (found.near(tol) or tol == 0)
    if intercept:
        assert abs(c @ a) <= 1e-13 * (c @ np.abs(a))
        for other in (b - 1e-3, b + 1e-3):
            moved = [phi.value(*pair) for pair in zip((X @ w + other).tolist(), y, strict=True)]
            assert c @ (np.array(moved) - least) >= (c @ values) * (1 - 1e-15)
    else:
        assert b == 0


@each_problem
def test_minima_are_those_of_the_twin(loss: str, l1: float, intercept: bool) -> None:
    """Whichever way leads there: here the twin takes epochs alone."""
    model, found = ours(loss, l1, intercept, tol=1e-11), theirs(loss, l1, intercept, tol=1e-11)
    assert found.near(1e-11)
    assert np.ravel(model.objective_)[0] == pytest.approx(found.primal, rel=1e-10)
    np.testing.assert_allclose(np.ravel(model.coef_), found.w, atol=1e-4)
    if l1:
        np.testing.assert_array_equal(np.ravel(model.coef_) == 0, found.w == 0)


@each_problem
@pytest.mark.parametrize("n_partitions", [1, 3])
@pytest.mark.parametrize("epochs", [1, 5, 13])
def test_the_way_there_is_that_of_the_twin(
    loss: str,
    l1: float,
    intercept: bool,
    n_partitions: int,
    epochs: int,
) -> None:
    options = {"tol": 0, "max_iter": epochs, "num_loss_partitions": n_partitions}
    model = ours(loss, l1, intercept, solver="sdca", **options)
    found = theirs(loss, l1, intercept, tol=0, max_iter=epochs, n_partitions=n_partitions)
    scale = abs(found.primal)
    assert np.ravel(model.objective_)[0] == pytest.approx(found.primal, rel=1e-10)
    assert np.ravel(model.dual_gap_)[0] == pytest.approx(found.gap, rel=1e-8, abs=1e-10 * scale)
    np.testing.assert_allclose(np.ravel(model.coef_), found.w, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_estimate_calls_for_certificates_as_in_the_twin(loss: str) -> None:
    for tol in (1e-2, 1e-3, 1e-5):
        model, found = (
            ours(loss, 0.0, True, tol=tol, solver="sdca"),
            theirs(loss, 0.0, True, tol=tol),
        )
        assert model.n_iter_[0] == found.n_iter
