"""Minima of scikit-learn's estimators with the losses of linear models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from linear_losses import estimator, phi
from sklearn.svm import LinearSVC

random = np.random.default_rng(8)
X = random.standard_normal((150, 6)) @ random.standard_normal((6, 6))
Z = X @ random.standard_normal(6) / 4 + random.standard_normal(150) / 2
WEIGHT = random.choice([0.5, 1.0, 2.0], 150)


def objective(loss: str, parameter: float | None, model: Any, y: np.ndarray, C: float) -> float:
    """Return what is minimized, at the weights of an estimator without an intercept."""
    w = np.ravel(model.coef_)
    return float(C * WEIGHT @ phi(loss, X @ w, y, parameter) + w @ w / 2)


@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("dual", [False, True])
def test_squared_hinge(C: float, dual: bool) -> None:
    y = np.sign(Z)
    theirs = LinearSVC(C=C, dual=dual, fit_intercept=False, tol=1e-10, max_iter=10**6)
    theirs.fit(X, y, WEIGHT)
    ours = estimator("squared_hinge", C=C, fit_intercept=False, tol=1e-10).fit(X, y, WEIGHT)
    least = objective("squared_hinge", None, ours, y, C)
    assert least <= objective("squared_hinge", None, theirs, y, C) * (1 + 1e-10)
    assert ours.objective_[0] * C == pytest.approx(least, rel=1e-12)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    assert not hasattr(ours, "predict_proba")
