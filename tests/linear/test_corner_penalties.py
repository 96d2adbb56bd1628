"""Penalties of each weight with losses that have corners, by the interior-point method."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.linear_losses import targets
from own_penalties import OWN, PARAMETER, check, data, fitted
from scipy import optimize, sparse

import tfopt
from tfopt.linear_model import LinearClassifier, from_json, to_json


@pytest.mark.parametrize("loss", ["hinge", "quantile"])
@pytest.mark.parametrize("own", [name for name in OWN if OWN[name]["l2"] == 0])
def test_losses_with_corners_are_linear_programs(loss: str, own: str) -> None:
    X, y, weight = data(loss)
    n, m = X.shape
    options = OWN[own]
    l1 = options.get("l1", 0.0) * options.get("penalty_factor", np.ones(m))
    # w = p - q, b, and losses up * r + down * s with x . w + b + r - s = y, or >= of margins
    signs = y if loss == "hinge" else np.ones(n)
    up, down = (1.0, 0.0) if loss == "hinge" else (PARAMETER, 1 - PARAMETER)
    Z = signs[:, None] * np.column_stack([X, -X, np.ones(n)])
    A = np.column_stack([Z, np.eye(n), -np.eye(n)])
    cost = np.concatenate([l1, l1, [0.0], up * weight, down * weight])
    bounds = [(0, None)] * m + [(0, 0 if "positive" in own else None)] * m + [(None, None)]
    exact = optimize.linprog(
        *(cost, None, None, A, np.ones(n) if loss == "hinge" else y),
        bounds + [(0, None)] * (2 * n), method="highs",
    )  # fmt: skip
    ours = fitted(loss, X, y, weight, tol=1e-9, **options)
    assert float(np.ravel(ours.objective_)[0]) == pytest.approx(exact.fun, rel=1e-8)
    assert "positive" not in own or (np.ravel(ours.coef_) == 0).any()


@pytest.mark.parametrize("loss", ["hinge", "quantile"])
def test_scales_and_many_weights_matter_little(loss: str) -> None:
    """Of features and targets; weights at 0 are exactly 0, and a warm start is that of a fit."""
    random = np.random.default_rng(4)
    X = random.standard_normal((300, 60)) * np.logspace(-3, 3, 60)
    y = targets(loss, X[:, 30] - X[:, 33] / 3 + random.standard_normal(300), random)
    for l2 in (0.0, 1e-2):
        model = fitted(loss, X, y, l2=l2, l1=0.5, positive=True, tol=1e-7)
        assert model.n_iter_ <= 60 and 10 < np.count_nonzero(np.ravel(model.coef_) == 0) < 60
        check(model, X, y, np.ones(300))
        again = model.set_params(warm_start=True).fit(X, y)
        assert again.dual_gap_ <= 1e-7 * again.objective_
    scaled = fitted(loss, X * 1e3, y, l2=0.0, l1=0.5e3, positive=True, tol=1e-7)
    plain = fitted(loss, X, y, l2=0.0, l1=0.5, positive=True, tol=1e-7)
    assert scaled.objective_ == pytest.approx(plain.objective_, rel=2e-7)


def test_several_classes_have_corners_and_positive_weights() -> None:
    X, y, weight = data("quantile")
    classes = np.digitize(y, [-1, 1])
    options: dict[str, Any] = {"l1": 0.5, "l2": 0.1, "positive": True, "tol": 1e-8}
    for balance in (None, "balanced"):
        model = LinearClassifier("hinge", class_weight=balance, **options).fit(X, classes, weight)
        assert (model.coef_ >= 0).all() and (model.coef_ == 0).any()
        assert (model.dual_gap_ <= 1e-8 * model.objective_).all()
        again = from_json(to_json(model))
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
    wide = sparse.csr_matrix((80, 5001))
    with pytest.raises(tfopt.InvalidArgumentError, match="at most 5000 features, and X has 5001"):
        LinearClassifier("hinge", positive=True).fit(wide, classes > 0)
