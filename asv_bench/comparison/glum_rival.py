"""glum: generalized linear models by Newton's method and coordinate descent."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np

from comparison.linear import Fit, until_near, weights_of
from comparison.measure import Side
from comparison.rival import Rival

__all__ = ["rivals", "versions"]

FAMILIES = {"logistic": "binomial", "squared": "normal", "poisson": "poisson"}
SOLVERS = ("irls-ls", "irls-cd", "lbfgs")
TOLERANCES = 10.0 ** np.arange(0, -9, -0.5)
#: With more features its Hessian does not fit into memory, or takes minutes.
MOST_FEATURES = 5000


def versions() -> dict[str, Any]:
    from importlib.metadata import version

    return {"glum": version("glum")}


def rivals(work: Fit) -> list[Rival]:
    if work.loss not in FAMILIES or work.problem()[0].shape[1] > MOST_FEATURES:
        return []
    solvers = ["irls-cd"] if work.l1 else SOLVERS
    return [Rival(f"glum, {name}", partial(_side, work, name), work.gap) for name in solvers]


def _side(work: Fit, solver: str) -> Side:
    from glum import GeneralizedLinearRegressor

    warnings.simplefilter("ignore")  # of convergence; then the next tolerance is tried
    X, y = work.problem()
    penalty = work.l1 + work.l2
    options = {
        "alpha": penalty / len(y),
        "l1_ratio": work.l1 / penalty,
        "family": FAMILIES[work.loss],
        "fit_intercept": work.intercept,
        "solver": solver,
        "max_iter": 1000,
    }
    labels = (y > 0).astype(float) if work.loss == "logistic" else y

    def fit(tolerance: float) -> np.ndarray:
        model = GeneralizedLinearRegressor(gradient_tol=tolerance, **options)
        return weights_of(model.fit(X, labels))

    return work.side(until_near(work, fit, TOLERANCES))
