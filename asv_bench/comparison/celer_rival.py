"""celer: l1 by coordinate descent with dual extrapolation and working sets."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np

from comparison.linear import Fit, until_near, weights_of
from comparison.measure import Side
from comparison.rival import Rival

__all__ = ["rivals", "versions"]

TOLERANCES = 10.0 ** np.arange(-1, -10, -0.5)


def versions() -> dict[str, Any]:
    from importlib.metadata import version

    return {"celer": version("celer")}


def rivals(work: Fit) -> list[Rival]:
    """Return it for least squares, and for logistic regression without intercept and l2."""
    has_logistic = work.loss == "logistic" and not work.l2 and not work.intercept
    if not work.l1 or not (work.loss == "squared" or has_logistic):
        return []
    return [Rival("celer", partial(_side, work), work.gap)]


def _side(work: Fit) -> Side:
    from celer import ElasticNet, LogisticRegression

    warnings.simplefilter("ignore")  # of convergence; then the next tolerance is tried
    X, y = work.problem()
    penalty = work.l1 + work.l2

    def fit(tolerance: float) -> np.ndarray:
        if work.loss == "logistic":
            model = LogisticRegression(C=1 / work.l1, tol=tolerance)
        else:
            alpha, ratio = penalty / len(y), work.l1 / penalty
            options = {"fit_intercept": work.intercept, "tol": tolerance}
            model = ElasticNet(alpha=alpha, l1_ratio=ratio, **options)
        return weights_of(model.fit(X, y))

    return work.side(until_near(work, fit, TOLERANCES))
