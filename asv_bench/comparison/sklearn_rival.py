"""scikit-learn: the solvers of its logistic regression."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np

from comparison.linear import Fit, until_near
from comparison.measure import Side
from comparison.rival import Rival

__all__ = ["rivals", "versions"]

#: Their tolerances are of gradients, or of steps: for each solver from the loosest of any use on.
TOLERANCES = {
    "liblinear": 10.0 ** np.arange(1, -7, -0.5),
    "saga": 10.0 ** np.arange(-1, -7, -0.5),
    "newton-cg": 10.0 ** np.arange(1, -9, -0.5),
}


def versions() -> dict[str, Any]:
    import sklearn

    return {"scikit-learn": sklearn.__version__}


def rivals(work: Fit) -> list[Rival]:
    return [Rival(name, partial(_side, work, name), work.gap) for name in TOLERANCES]


def _side(work: Fit, solver: str) -> Side:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    warnings.simplefilter("ignore", ConvergenceWarning)  # then the next tolerance is tried
    X, y = work.problem()
    options: dict[str, Any] = {"solver": solver, "C": work.C, "fit_intercept": False}
    if solver == "liblinear":
        options["dual"] = True
    if solver == "saga":
        options["random_state"] = 0

    def fit(tolerance: float) -> np.ndarray:
        model = LogisticRegression(tol=tolerance, max_iter=2000, **options).fit(X, y)
        weights: np.ndarray = model.coef_[0]
        return weights

    return work.side(until_near(work, fit, TOLERANCES[solver]))
