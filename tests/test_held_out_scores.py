"""Mean losses of many models at once, against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from linear_losses import DEFINITIONS, phi
from sklearn.metrics import log_loss

from tfopt.linear_model import SDCAClassifier
from tfopt.linear_model.held_out_scores import mean_losses

LOSSES = [loss for loss in SDCAClassifier._LOSSES if loss in DEFINITIONS]


@pytest.mark.parametrize("problems", [1, 3])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("loss", [*LOSSES, "multinomial"])
def test_losses_of_classes(loss: str, problems: int, sparse: bool) -> None:
    """Of each class against the rest, or of all of them; a class that is new says nothing."""
    random = np.random.default_rng(0)
    X = random.integers(-1, 2, (200, 3)).astype(float)
    coefs, intercepts = (
        random.standard_normal((4, problems, 3)),
        random.standard_normal((4, problems)),
    )
    classes = np.array([2, 5] if problems == 1 else [2, 5, 9])
    y, weights = random.choice([*classes, 7], 200), random.integers(0, 3, 200).astype(float)
    known = y != 7
    record = SDCAClassifier(loss)._phi
    found = mean_losses(
        sp.csr_matrix(X) if sparse else X, y, weights, coefs, intercepts, record, classes
    )
    for coef, intercept, mean in zip(coefs, intercepts, found, strict=True):
        z = X @ coef.T + intercept
        if loss == "multinomial":
            z = z if problems > 1 else np.column_stack([np.zeros(200), z])
            p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
            expected = log_loss(y[known], p[known], labels=classes, sample_weight=weights[known])
        else:
            positive = classes[-problems:]
            each = sum(
                phi(loss, z[:, k], np.where(y == label, 1.0, -1.0), 1.0)
                for k, label in enumerate(positive)
            )
            expected = np.average(each[known], weights=weights[known])
        assert mean == pytest.approx(expected, rel=1e-12)


def test_nothing_is_said_without_weight() -> None:
    X, y = np.ones((3, 1)), np.array([7, 7, 0])
    record, points = SDCAClassifier()._phi, (np.ones((2, 1, 1)), np.ones((2, 1)))
    found = mean_losses(X, y, np.array([1.0, 1.0, 0.0]), *points, record, np.array([0, 1]))
    assert found.tolist() == [0.0, 0.0]
