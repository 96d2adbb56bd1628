"""skglm: working sets with Anderson acceleration or proximal Newton steps, compiled by numba."""

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
SOLVERS = {
    "logistic": ["ProxNewton", "AndersonCD"],
    "squared": ["AndersonCD"],
    "poisson": ["ProxNewton"],
    "hinge": ["LinearSVC"],
}


def versions() -> dict[str, Any]:
    from importlib.metadata import version

    return {"skglm": version("skglm")}


def rivals(work: Fit) -> list[Rival]:
    """Return its solvers for l1, and that for the hinge."""
    if bool(work.l1) == (work.loss == "hinge") or (work.loss == "hinge" and work.intercept):
        return []
    return [
        Rival(f"skglm, {name}", partial(_side, work, name), work.gap) for name in SOLVERS[work.loss]
    ]


def _side(work: Fit, solver: str) -> Side:
    import skglm

    warnings.simplefilter("ignore")  # of convergence; then the next tolerance is tried
    X, y = work.problem()
    penalty = work.l1 + work.l2

    def model(tolerance: float) -> Any:
        if work.loss == "hinge":
            return skglm.LinearSVC(C=work.C, tol=tolerance, fit_intercept=False)
        names = {"logistic": "Logistic", "squared": "Quadratic", "poisson": "Poisson"}
        return skglm.GeneralizedLinearEstimator(
            getattr(skglm.datafits, names[work.loss])(),
            skglm.penalties.L1_plus_L2(penalty / len(y), work.l1 / penalty),
            getattr(skglm.solvers, solver)(
                tol=tolerance, fit_intercept=work.intercept, max_iter=200
            ),
        )

    return work.side(until_near(work, lambda tol: weights_of(model(tol).fit(X, y)), TOLERANCES))
