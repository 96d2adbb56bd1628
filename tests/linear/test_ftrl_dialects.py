"""The hyperparameters of other programs' FTRL: each against that program's own update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tfopt.errors import InvalidArgumentError
from tfopt.linear_model import FTRLClassifier, ftrl_parameters

random = np.random.default_rng(0)
X = np.column_stack([random.standard_normal((60, 5)), np.ones(60)])
Y = (X[:, 0] - X[:, 1] + random.standard_normal(60) > 0.3) * 1.0

#: An update of weights w and slots z, n by a gradient.
Update = Callable[..., tuple[np.ndarray, np.ndarray, np.ndarray]]


def tensorflow(w: Any, z: Any, n: Any, g: Any, h: dict[str, float]) -> Any:
    """Of the ApplyFtrl op, with Keras 3's beta."""
    lr, p = h["learning_rate"], -0.5
    grown = n + g * g
    z = z + g - (grown**-p - n**-p) / lr * w
    l2 = h["l2_regularization_strength"] + h.get("beta", 0.0) / (2 * lr)
    l1 = h["l1_regularization_strength"]
    w = np.where(abs(z) > l1, (np.sign(z) * l1 - z) / (grown**-p / lr + 2 * l2), 0.0)
    return w, z, grown


def paper(w: Any, z: Any, n: Any, g: Any, h: dict[str, float]) -> Any:
    """Algorithm 1."""
    sigma = (np.sqrt(n + g * g) - np.sqrt(n)) / h["alpha"]
    z, n = z + g - sigma * w, n + g * g
    shrunk = -(z - np.sign(z) * h["lambda1"])
    rate = 1 / ((h["beta"] + np.sqrt(n)) / h["alpha"] + h["lambda2"])
    return np.where(abs(z) <= h["lambda1"], 0.0, rate * shrunk), z, n


def dynamicemb(w: Any, z: Any, n: Any, g: Any, h: dict[str, float]) -> Any:
    grown, lr = n + g**2, h["learning_rate"]
    sigma_new, sigma_old = grown**0.5, n**0.5
    z = z + g - (sigma_new - sigma_old) / lr * w
    quadratic = (h["ftrl_beta"] + sigma_new) / lr + h["l2_reg"]
    return np.where(abs(z) > h["l1_reg"], (np.sign(z) * h["l1_reg"] - z) / quadratic, 0.0), z, grown


def vw(w: Any, z: Any, n: Any, g: Any, h: dict[str, float]) -> Any:
    """Of its reduction "Proximal-FTRL"."""
    ng2 = n + g * g
    z = z + g - (np.sqrt(ng2) - np.sqrt(n)) / h["ftrl_alpha"] * w
    flag = np.where(z < 0, -1.0, 1.0)
    step = 1 / (h["l2"] + (h["ftrl_beta"] + np.sqrt(ng2)) / h["ftrl_alpha"])
    return np.where(z * flag <= h["l1"], 0.0, step * flag * (h["l1"] - z * flag)), z, ng2


@pytest.mark.parametrize(
    ("update", "n0", "hyperparameters"),
    [
        (tensorflow, 0.1, {"learning_rate": 0.3, "l1_regularization_strength": 2.0,
                           "l2_regularization_strength": 0.2}),
        (tensorflow, 0.5, {"learning_rate": 0.3, "l1_regularization_strength": 2.0, "beta": 0.7,
                           "l2_regularization_strength": 0.2, "initial_accumulator_value": 0.5}),
        (paper, 0.0, {"alpha": 0.3, "beta": 1.0, "lambda1": 2.0, "lambda2": 0.6}),
        (dynamicemb, 0.2, {"learning_rate": 0.3, "ftrl_beta": 0.5, "l1_reg": 2.0, "l2_reg": 0.6,
                           "initial_accumulator_value": 0.2}),
        (vw, 0.0, {"ftrl_alpha": 0.3, "ftrl_beta": 0.1, "l1": 2.0, "l2": 0.6}),
    ],
)  # fmt: skip
def test_a_stream_by_another_programs_update(
    update: Update, n0: float, hyperparameters: dict[str, float]
) -> None:
    w, z, n = np.zeros(6), np.zeros(6), np.full(6, n0)
    for x, y in zip(X, Y, strict=True):
        w, z, n = update(w, z, n, (1 / (1 + np.exp(-x @ w)) - y) * x, hyperparameters)
    parameters = ftrl_parameters(update.__name__, **hyperparameters)
    assert parameters.setdefault("batch_size", 1) == 1
    model = FTRLClassifier(**parameters, fit_intercept=False)
    model.partial_fit(X, Y, classes=[0, 1])
    assert 0 < (w == 0).sum() < 6
    np.testing.assert_allclose(model.coef_[0], w, rtol=1e-12)


def test_the_intercept_has_a_beta_and_no_penalties() -> None:
    h = {"alpha": 0.3, "beta": 1.0, "lambda1": 2.0, "lambda2": 0.6}
    w, z, n = np.zeros(6), np.zeros(6), np.zeros(6)
    for x, y in zip(X, Y, strict=True):
        g = (1 / (1 + np.exp(-x @ w)) - y) * x
        by_feature = [
            paper(*parts, {**h, **({"lambda1": 0.0, "lambda2": 0.0} if k == 5 else {})})
            for k, parts in enumerate(zip(w, z, n, g, strict=True))
        ]
        w, z, n = np.array(by_feature).T
    model = FTRLClassifier(**ftrl_parameters("paper", **h))
    model.partial_fit(X[:, :5], Y, classes=[0, 1])
    np.testing.assert_allclose([*model.coef_[0], *model.intercept_], w, rtol=1e-12)


@pytest.mark.parametrize(
    ("dialect", "hyperparameters", "message"),
    [
        ("ftrl", {}, "dialect must be one of tensorflow, paper, dynamicemb, vw: 'ftrl'"),
        ("paper", {}, "paper needs alpha"),
        ("vw", {"alpha": 1.0}, "vw has ftrl_alpha, ftrl_beta, l1, l2, but no alpha"),
        (
            "tensorflow",
            {"learning_rate": 0.1, "learning_rate_power": -0.4},
            "learning_rate_power must be -0.5 for an estimator, not -0.4",
        ),
    ],
)
def test_refusals(dialect: str, hyperparameters: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        ftrl_parameters(dialect, **hyperparameters)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, "1"])
def test_values_out_of_range(value: Any) -> None:
    with pytest.raises(ValueError, match="ftrl_alpha must be a finite number above 0"):
        ftrl_parameters("vw", ftrl_alpha=value)
