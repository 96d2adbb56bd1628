"""Losses that are nearly linear but for a corner, by coordinate descent, in few steps."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from common.linear_losses import estimator, targets
from sklearn.exceptions import ConvergenceWarning


@pytest.mark.parametrize("loss", ["smooth_hinge", "huber"])
@pytest.mark.parametrize("width", [1.0, 0.1, 0.01, 0.003])
@pytest.mark.parametrize("weight", [1.0, 1e3])
def test_narrow_bends_and_large_weights_take_few_steps(
    loss: str, width: float, weight: float
) -> None:
    """Where a loss is nearly linear but for a corner, and l1 is small beside the weights."""
    random = np.random.default_rng(0)
    X = random.standard_normal((300, 10)) @ (np.eye(10) + random.standard_normal((10, 10)) / 3)
    z = X[:, 0] - X[:, 1] / 2 + random.standard_normal(300)
    weights = weight * random.choice([0.5, 1.0, 2.0], 300)
    for penalty in (
        {"l2": 0.0, "positive": True},
        {"l1": 1.0, "l2": 0.0},
        {"l1": 20.0, "l2": 0.0},
        {"l1": 1.0, "l2": 1.0, "solver": "cd"},
    ):
        model = estimator(loss, width, **penalty)
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            model.fit(X, targets(loss, z, random), weights)
        assert model.n_iter_ <= 60 and {*model.solver_} == {"cd"}
