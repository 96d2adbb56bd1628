"""Scores of predictions are those of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import log_loss

from tfopt.cli.metrics import score_sums


@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 40),
    n_classes=st.integers(2, 4),
    is_weighted=st.booleans(),
)
def test_the_log_loss_is_scikit_learns(
    seed: int, n: int, n_classes: int, is_weighted: bool
) -> None:
    """Probabilities of 0 and 1 included."""
    random = np.random.default_rng(seed)
    targets = random.integers(0, n_classes, n)
    weights = random.uniform(0, 2, n) if is_weighted else None
    if n_classes == 2:
        predictions = random.choice([0.0, 1.0, 1e-300, 1e-17, random.random()], n)
    else:
        predictions = random.dirichlet(np.full(n_classes, 0.1), n)
    found = score_sums("logistic", predictions, targets.astype(float), 0.0, weights)
    expected = log_loss(
        targets, predictions, labels=range(n_classes), normalize=False, sample_weight=weights
    )
    assert found["log_loss"] == pytest.approx(expected, rel=1e-14)


def test_a_loss_without_probabilities_has_no_log_loss() -> None:
    sums = score_sums("hinge", np.array([0.5, -1.0]), np.array([1.0, 1.0]), 1.0)
    assert sums == {"rows": 2, "weight": 2, "hits": 1}
