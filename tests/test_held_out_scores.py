"""Scores of many models at once, against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tfopt.linear_model.held_out_scores import accuracies


@pytest.mark.parametrize("problems", [1, 3])
@pytest.mark.parametrize("sparse", [False, True])
def test_accuracies_are_those_of_predictions(problems: int, sparse: bool) -> None:
    """A score of exactly 0 is not above 0: it is the first class."""
    random = np.random.default_rng(0)
    X = random.integers(-1, 2, (200, 3)).astype(float)
    coefs = random.integers(-1, 2, (4, problems, 3)).astype(float)
    intercepts = random.integers(-1, 2, (4, problems)).astype(float)
    classes = np.array([2, 5] if problems == 1 else [2, 5, 9])
    y, weights = random.choice(classes, 200), random.integers(0, 3, 200).astype(float)
    found = accuracies(sp.csr_matrix(X) if sparse else X, y, weights, coefs, intercepts, classes)
    for coef, intercept, accuracy in zip(coefs, intercepts, found, strict=True):
        scores = X @ coef.T + intercept
        assert (scores == 0).any()
        best = scores.argmax(axis=1) if problems > 1 else (scores[:, 0] > 0) * 1
        assert accuracy == pytest.approx(weights[classes[best] == y].sum() / weights.sum())
