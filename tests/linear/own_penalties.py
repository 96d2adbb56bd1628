"""Penalties of each weight, data for them, and what a fit says of itself, computed anew."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import pytest
from common.linear_losses import conjugate, estimator, phi, targets
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

__all__ = ["FACTORS", "OWN", "PARAMETER", "check", "data", "fitted"]

LONG, PARAMETER = np.longdouble, 0.6
FACTORS = np.array([0.0, 1.0, 3.0, 0.3, 1.0, 0.0])
#: l1, l2, factors and whether weights are positive: of each weight's own penalty.
OWN: dict[str, dict[str, Any]] = {
    "ridge": {"l2": 0.7, "penalty_factor": FACTORS},
    "lasso": {"l1": 1.5, "l2": 0.0, "penalty_factor": FACTORS + 0.5},
    "elastic net": {"l1": 1.5, "l2": 0.7, "penalty_factor": FACTORS},
    "positive ridge": {"l2": 0.7, "positive": True},
    "positive lasso": {"l1": 1.5, "l2": 0.0, "positive": True},
    "positive elastic net": {"l1": 1.5, "l2": 0.7, "penalty_factor": FACTORS, "positive": True},
    "no penalty, but positive": {"l2": 0.0, "positive": True},
}


@functools.cache
def data(loss: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features that resemble each other, far from 0 one of them; and weights, some 0."""
    random = np.random.default_rng(3)
    X = random.standard_normal((80, 6)) @ (np.eye(6) + random.standard_normal((6, 6)) / 4)
    X[:, 4] += 3
    z = X[:, 0] - X[:, 2] / 2 + X[:, 5] / 3 + 0.5 + random.standard_normal(80)
    return X, targets(loss, z, random), random.choice([0.0, 0.5, 1.0, 2.0], 80)


def fitted(loss: str, X: Any, y: np.ndarray, weight: Any = None, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        return estimator(loss, PARAMETER, **options).fit(X, y, weight)


def check(
    model: Any, X: Any, y: np.ndarray, weight: np.ndarray, offset: np.ndarray | float = 0.0
) -> None:
    """Compare the objective and the gap that a fit says it has with those of the definitions."""
    X = np.asarray(X.todense() if sparse.issparse(X) else X, LONG)
    c, w = weight.astype(LONG), np.ravel(model.coef_).astype(LONG)
    a = np.ravel(model.dual_coef_).astype(LONG)
    b = LONG(np.ravel(model.intercept_)[0])
    factor = np.ones(w.size) if model.penalty_factor is None else np.array(model.penalty_factor)
    l1, l2 = LONG(model.l1) * factor, LONG(model._l2()) * factor
    assert not model.positive or (w >= 0).all()
    options = model.loss, y.astype(LONG), LONG(model._parameter())
    primal = c @ phi(options[0], X @ w + b + offset, *options[1:])
    primal += l1 @ np.abs(w) + l2 @ np.square(w) / 2
    u = X.T @ (c * a)
    beyond = np.maximum(u - l1, 0) if model.positive else np.maximum(np.abs(u) - l1, 0)
    is_square = l2 > 0
    size = np.abs(X).T @ (c * np.abs(a))
    assert (beyond[~is_square] <= 1e-12 * size[~is_square]).all()
    of_rows = np.where(c > 0, conjugate(options[0], a, *options[1:]) + a * offset, 0)
    gap = primal + c @ of_rows + np.sum(np.square(beyond[is_square]) / (2 * l2[is_square]))
    assert float(np.ravel(model.objective_)[0]) == pytest.approx(float(primal), rel=1e-10)
    rounding = 1e-13 * float(primal)
    assert np.ravel(model.dual_gap_)[0] >= float(gap) * (1 - 1e-6) - rounding
    if model.fit_intercept:
        assert abs(c @ a) <= 1e-12 * (c @ (np.abs(a) + np.abs(y)))
