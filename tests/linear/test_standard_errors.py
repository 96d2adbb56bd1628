"""Covariances of coefficients: the inverse Fisher information, computed in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.linear_losses import estimator, targets
from scipy import sparse, stats

from tfopt.errors import InvalidArgumentError
from tfopt.linear_model import LinearClassifier, LinearRegressor

#: By loss: the expected second derivative and the variance of a label, by the mean; and whether
#: the dispersion is 1.
FAMILIES: dict[str, Any] = {
    "logistic": (lambda m: m * (1 - m), None, True),
    "squared": (np.ones_like, np.ones_like, False),
    "poisson": (lambda m: m, lambda m: m, True),
    "gamma": (np.ones_like, np.square, False),
    "tweedie": (np.sqrt, lambda m: m**1.5, False),
}
each_loss = pytest.mark.parametrize("loss", FAMILIES)
N = 120


def data(loss: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(5)
    X = random.standard_normal((N, 4)) * (random.uniform(size=(N, 4)) < 0.7) + 0.5
    y = targets(loss, X @ random.standard_normal(4) + 2 * random.standard_normal(N), random)
    return X, y, random.choice([0.0, 1.0, 2.0, 3.0], N)


def mean_of(model: Any, loss: str, X: Any, offset: Any) -> np.ndarray:
    z = X @ np.ravel(model.coef_) + np.ravel(model.intercept_) + offset
    return {"logistic": lambda: 1 / (1 + np.exp(-z)), "squared": lambda: z}.get(
        loss, lambda: np.exp(z)
    )()


@each_loss
@pytest.mark.parametrize("form", [np.array, np.asfortranarray, np.float32, sparse.csr_matrix])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("l2", [0.0, 3.0])
def test_it_is_the_inverse_fisher_information(
    loss: str, form: Any, intercept: bool, l2: float
) -> None:
    X, y, weights = data(loss)
    given = form(X)
    rows = np.asarray(sparse.csr_matrix(given).toarray(), float)
    more = {} if loss == "logistic" else {"offset": np.linspace(-1, 1, N)}
    model = estimator(loss, l2=l2, fit_intercept=intercept).fit(given, y, weights, **more)
    found = model.covariance(given, y, weights, **more)
    mean = mean_of(model, loss, rows, more.get("offset", 0.0))
    information, variance, is_known = FAMILIES[loss]
    wide = np.column_stack([rows, np.ones(N)]) if intercept else rows
    F = wide.T @ ((weights * information(mean))[:, None] * wide)
    A = F + l2 * np.diag([1.0] * 4 + [0.0] * intercept)
    scale = 1.0
    if not is_known:
        pearson = weights @ ((y - mean) ** 2 / variance(mean))
        scale = pearson / (weights.sum() - wide.shape[1])
    expected = scale * np.linalg.inv(A) @ F @ np.linalg.inv(A)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)
    errors = model.standard_errors(given, y, weights, **more)
    np.testing.assert_allclose(errors, np.sqrt(np.diagonal(expected)), rtol=1e-6)


@each_loss
def test_a_weight_is_so_many_samples(loss: str) -> None:
    X, y, weights = data(loss)
    model = estimator(loss, l2=0.0).fit(X, y, weights)
    times = weights.astype(int)
    rows, labels = np.repeat(X, times, axis=0), np.repeat(y, times)
    expected = estimator(loss, l2=0.0).fit(rows, labels).standard_errors(rows, labels)
    np.testing.assert_allclose(model.standard_errors(X, y, weights), expected, rtol=1e-4)


def test_a_line_has_those_of_scipy() -> None:
    X, y, _ = data("squared")
    theirs = stats.linregress(X[:, 0], y)
    ours = LinearRegressor(l2=0.0).fit(X[:, :1], y).standard_errors(X[:, :1], y)
    np.testing.assert_allclose(ours, [theirs.stderr, theirs.intercept_stderr], rtol=1e-9)


def test_they_are_how_much_coefficients_vary() -> None:
    """Of 400 samples of one distribution; the standard deviation of 400 is within 15 %."""
    random = np.random.default_rng(0)
    X = random.standard_normal((60, 3))
    truth = X @ [0.5, -0.3, 0.0] + 1
    found, stated = [], []
    for _ in range(400):
        y = random.poisson(np.exp(truth))
        model = LinearRegressor("poisson", l2=2.0).fit(X, y)
        found.append([*model.coef_, model.intercept_])
        stated.append(model.standard_errors(X, y))
    np.testing.assert_allclose(np.std(found, axis=0), np.mean(stated, axis=0), rtol=0.15)


def test_where_there_are_none_it_is_refused() -> None:
    X, y, weights = data("squared")
    sides = (y > 0).astype(int)
    cases: list[tuple[Any, np.ndarray, str]] = [
        (LinearRegressor("huber"), y, "loss='huber' is no likelihood"),
        (LinearClassifier("hinge"), sides, "loss='hinge' is no likelihood"),
        (LinearRegressor(l1=1.0), y, "l1=1.0 makes coefficients 0"),
        (LinearClassifier(class_weight="balanced"), sides, "class_weight='balanced' changes"),
        (LinearClassifier(), np.digitize(y, [-1, 1]), "there are 3 classes or targets"),
        (LinearClassifier("multinomial"), np.digitize(y, [-1, 1]), "3 classes or targets"),
        (LinearRegressor(), np.column_stack([y, y]), "there are 2 classes or targets"),
    ]
    for model, labels, message in cases:
        model.fit(X, labels)
        with pytest.raises(InvalidArgumentError, match=message):
            model.standard_errors(X, labels)
    model = LinearRegressor().fit(X, y)
    with pytest.raises(InvalidArgumentError, match="5 coefficients need more samples than 5"):
        model.covariance(X[:5], y[:5])
    with pytest.raises(ValueError, match="y has the shape"):
        model.covariance(X, y[:5])
    with pytest.raises(ValueError, match="X has 3 features"):
        model.covariance(X[:, :3], y)
    twice = np.column_stack([X, X[:, 0]])
    both = LinearRegressor().fit(twice, y)
    assert both.standard_errors(twice, y, weights).shape == (6,)
    with pytest.raises(InvalidArgumentError, match="depend on each other"):
        both.set_params(l2=0.0).covariance(twice, y)
