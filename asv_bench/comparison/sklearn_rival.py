"""scikit-learn: the solvers of its linear models."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np

from comparison.linear import Fit, until_near, weights_of
from comparison.measure import Side
from comparison.rival import Rival

__all__ = ["rivals", "versions"]

#: liblinear's solvers of its squared losses.
LIBLINEARS = {
    "liblinear, dual": 10.0 ** np.arange(1, -7, -0.5),
    "liblinear, primal": 10.0 ** np.arange(1, -9, -0.5),
}
#: The solvers of each loss, with tolerances of gradients or of steps: from the loosest of any use.
SOLVERS: dict[str, dict[str, Any]] = {
    "logistic": {
        "liblinear": 10.0 ** np.arange(1, -7, -0.5),
        "saga": 10.0 ** np.arange(-1, -7, -0.5),
        "newton-cg": 10.0 ** np.arange(1, -9, -0.5),
        "lbfgs": 10.0 ** np.arange(0, -9, -0.5),
        "newton-cholesky": 10.0 ** np.arange(0, -9, -0.5),
    },
    "hinge": {
        "liblinear": 10.0 ** np.arange(1, -7, -0.5),
        "libsvm": 10.0 ** np.arange(0, -7, -0.5),
    },
    "epsilon_insensitive": {"liblinear": 10.0 ** np.arange(1, -7, -0.5)},
    "squared_hinge": LIBLINEARS,
    "squared_epsilon_insensitive": LIBLINEARS,
    "squared": {
        "cholesky": [0.0],
        "svd": [0.0],
        "lsqr": 10.0 ** np.arange(0, -10, -0.5),
        "coordinate descent": 10.0 ** np.arange(0, -10, -0.5),
    },
    "poisson": {
        "lbfgs": 10.0 ** np.arange(0, -9, -0.5),
        "newton-cholesky": 10.0 ** np.arange(0, -9, -0.5),
    },
}
#: The solvers that allow l1.
WITH_L1 = ("liblinear", "saga", "coordinate descent")
#: With more features newton-cholesky's matrix does not fit into memory, or takes minutes.
MOST_FEATURES = 5000
#: With more rows libsvm, which computes with all pairs of them, takes minutes.
MOST_PAIRED = 10_000


def versions() -> dict[str, Any]:
    import sklearn

    return {"scikit-learn": sklearn.__version__}


def rivals(work: Fit) -> list[Rival]:
    names = [solver for solver in SOLVERS[work.loss] if _applies(work, solver)]
    return [Rival(name, partial(_side, work, name), work.gap) for name in names]


def _applies(work: Fit, solver: str) -> bool:
    """Return whether a solver has the work's objective, and is not far behind anyway."""
    rows, features = work.problem()[0].shape
    if work.l1 and solver not in WITH_L1:
        return False
    return {
        # It penalizes the intercept, and has either l1 or l2.
        "liblinear": not work.intercept and not (work.l1 and work.l2),
        "libsvm": work.intercept and rows <= MOST_PAIRED,  # it always has an intercept
        "newton-cholesky": features <= MOST_FEATURES,
        "saga": work.data not in ("breast_cancer", "digits", "dense", "covtype-like"),
        "coordinate descent": bool(work.l1),
    }.get(solver, True)


def _side(work: Fit, solver: str) -> Side:
    from sklearn.exceptions import ConvergenceWarning

    warnings.simplefilter("ignore", ConvergenceWarning)  # then the next tolerance is tried
    X, y = work.problem()
    kind, options = _estimator(work, solver, len(y))

    def fit(tolerance: float) -> np.ndarray:
        return weights_of(kind(tol=tolerance, **options).fit(X, y))

    return work.side(until_near(work, fit, SOLVERS[work.loss][solver]))


def _estimator(work: Fit, solver: str, n_rows: int) -> tuple[Any, dict[str, Any]]:
    """Return the class that has the solver, and its parameters but for the tolerance."""
    from sklearn.linear_model import ElasticNet, LogisticRegression, PoissonRegressor, Ridge
    from sklearn.svm import SVC, LinearSVC, LinearSVR

    penalty = work.l1 + work.l2
    options: dict[str, Any] = {"fit_intercept": work.intercept, "max_iter": 2000}
    if solver == "coordinate descent":
        options |= {"alpha": penalty / n_rows, "l1_ratio": work.l1 / penalty, "max_iter": 100_000}
        return ElasticNet, options
    if work.loss == "squared":
        return Ridge, {**options, "solver": solver, "alpha": work.l2}
    if work.loss == "poisson":
        return PoissonRegressor, {**options, "solver": solver, "alpha": work.l2 / n_rows}
    if solver == "libsvm":
        return SVC, {"kernel": "linear", "C": work.C}
    if "liblinear, " in solver:
        kind = LinearSVC if work.loss == "squared_hinge" else partial(LinearSVR, epsilon=0.1)
        options |= {"C": work.C, "loss": work.loss, "dual": "dual" in solver, "random_state": 0}
        return kind, {**options, "max_iter": 20_000}
    if work.loss in ("hinge", "epsilon_insensitive"):
        kind = LinearSVC if work.loss == "hinge" else partial(LinearSVR, epsilon=0.1)
        options |= {"C": work.C, "loss": work.loss, "random_state": 0}
        return kind, {**options, "max_iter": 100_000}
    options |= {"solver": solver, "C": 1 / penalty, "l1_ratio": work.l1 / penalty}
    if solver == "liblinear":
        options["dual"] = not work.l1
    if solver in ("saga", "liblinear"):
        options["random_state"] = 0
    return LogisticRegression, options
