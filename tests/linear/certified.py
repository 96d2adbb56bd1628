"""What a fit says of itself, computed anew from its weights and dual variables in long double."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.linear_losses import conjugate, phi
from scipy import sparse

from tfopt.linear_model import SDCAClassifier

__all__ = ["check"]

LONG = np.longdouble


def check(model: Any, X: Any, y: np.ndarray, weight: np.ndarray | None = None) -> None:
    """Compare the objectives and the gaps that a fit says it has with those of the definitions."""
    X = np.asarray(X.todense() if sparse.issparse(X) else X, LONG)
    c = np.ones(len(y), LONG) if weight is None else weight.astype(LONG)
    parameter, l1 = LONG(model._parameter()), LONG(model.l1)
    l2 = LONG(1 if model.l2 is None else model.l2) if model.C is None else 1 / LONG(model.C)
    coef, biases, duals = (
        np.atleast_2d(part).astype(LONG)
        for part in (model.coef_, np.ravel(model.intercept_)[:, None], model.dual_coef_)
    )
    for k, (w, (b,), a) in enumerate(zip(coef, biases, duals, strict=True)):
        target = y.astype(LONG)
        if isinstance(model, SDCAClassifier):
            positive = model.classes_[-1 if len(coef) == 1 else k]
            target = np.where(y == positive, LONG(1), LONG(-1))
        each = phi(model.loss, X @ w + b, target, parameter)
        assert (each >= -1e-15).all()
        primal = c @ each + l1 * np.abs(w).sum() + l2 / 2 * (w @ w)
        u = np.maximum(np.abs(X.T @ (c * a)) - l1, 0)
        # what is added up in double precision is within l1; here it may be its rounding above
        rounding = (len(y) + 2) * 2.0**-53 * (np.abs(X).T @ (c * np.abs(a)))
        assert l2 > 0 or (u <= 1e-12 * l1 + rounding).all()
        with_weight = np.where(c > 0, conjugate(model.loss, a, target, parameter), 0)
        gap = primal + c @ with_weight + (u @ u / (2 * l2) if l2 > 0 else 0)
        # the gaps of the losses at X @ w + b have a c @ a that is 0 but for rounding
        gap += b * (c @ a)
        assert np.ravel(model.objective_)[k] == pytest.approx(float(primal), rel=1e-10)
        assert np.ravel(model.dual_gap_)[k] == pytest.approx(
            float(gap), rel=1e-5, abs=1e-13 * float(primal)
        )
        # the minimum is at most this objective, and so must be what is said to be below it
        assert LONG(np.ravel(model.objective_)[k]) - np.ravel(model.dual_gap_)[k] <= primal
        if model.fit_intercept:
            scale = np.abs(a) + (np.abs(target) if model.loss == "poisson" else 0)
            assert abs(c @ a) <= 1e-12 * (c @ scale)
        else:
            assert b == 0
