"""Fits of linear models to odd data: their certificates are true, or a warning says why not."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from common.linear_losses import DEFINITIONS, LOSSES, conjugate, estimator, phi, targets
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import tfopt
from campaign.calls import one
from campaign.check import drawn
from tfopt.errors import InvalidArgumentError

LONG = np.longdouble
SOLVERS = ("auto", "auto", "sdca", "newton-cholesky", "newton-cg", "cd", "interior-point")


def _data(random: np.random.Generator, loss: str) -> tuple[np.ndarray, np.ndarray]:
    n, m = int(random.integers(1, 120)), int(random.integers(1, 12))
    X = random.standard_normal((n, m)) @ random.standard_normal((m, m))
    X *= np.logspace(0, float(random.uniform(-3, 3)), m)
    X[random.random(X.shape) < one(random, (0.0, 0.3, 0.9))] = 0
    if m > 1 and random.random() < 0.2:
        X[:, 0] = X[:, -1]
    z = X @ random.standard_normal(m) / max(1e-9, np.abs(X).max()) + random.standard_normal(n)
    return X, targets(loss, z * one(random, (0.1, 1.0, 3.0)), random)


def _case(random: np.random.Generator) -> int:
    """A fit of any loss, penalty and solver: compares objective and gap with their definitions."""
    loss = one(random, LOSSES)
    X, y = _data(random, loss)
    if DEFINITIONS[loss].labels == "classes" and len({*y.tolist()} - {0}) < 2:
        return 0
    y = np.where(y == 0, 1, y) if DEFINITIONS[loss].labels == "classes" else y
    options: dict[str, Any] = {
        "l2": float(10 ** random.uniform(-3, 3)),
        "l1": one(random, (0.0, 0.0, 0.1, 3.0)),
        "fit_intercept": bool(random.integers(2)),
        "tol": one(random, (1e-2, 1e-4, 1e-8)),
        "max_iter": one(random, (1, 3, 100, 1000)),
        "solver": one(random, SOLVERS),
        "num_loss_partitions": one(random, (None, None, 1, 2, 5)),
        "random_state": int(random.integers(100)),
    }
    weight = one(random, (None, random.choice([0.5, 1.0, 2.0], len(y))))
    tfopt.threads.set_num_threads(int(random.integers(1, 3)))
    rows = sparse.csr_array(X) if random.random() < 0.3 else X
    model = estimator(loss, **options)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            model.fit(rows, y, sample_weight=weight)
        except (InvalidArgumentError, ValueError):
            return 0  # options that do not go together
    warned = any(issubclass(w.category, ConvergenceWarning) for w in said)
    reached = np.ravel(model.dual_gap_) <= options["tol"] * np.ravel(model.objective_)
    floor = np.ravel(model.objective_) <= 1e-12  # separable without a penalty of weight
    assert warned or bool((reached | floor).all()), f"{model}: a gap above tol without a warning"
    _compare(model, X.astype(LONG), y.astype(LONG), weight)
    return 1


def _compare(model: Any, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> None:
    """Compare the objective and the gap with their definitions, to 11 digits of the objective."""
    c = np.ones(len(y), LONG) if weight is None else weight.astype(LONG)
    parameter, l1, l2 = LONG(model._parameter()), LONG(model.l1), LONG(model._problem(0, 1).l2)
    w, b, a = (
        np.ravel(part).astype(LONG) for part in (model.coef_, model.intercept_, model.dual_coef_)
    )
    each = phi(model.loss, X @ w + b, y, parameter)
    primal = c @ each + l1 * np.abs(w).sum() + l2 / 2 * (w @ w)
    v = X.T @ (c * a) / l2
    shrunk = np.sign(v) * np.maximum(np.abs(v) - l1 / l2, 0)
    dual = -(
        c @ np.where(c > 0, conjugate(model.loss, a, y, parameter), 0) + l2 / 2 * (shrunk @ shrunk)
    )
    scores = np.abs(X) @ (np.abs(w) + np.abs(shrunk)) + np.abs(b) + np.abs(y)
    # scores and residuals are rounded, and so is the sum of the dual variables, which is to be 0
    rounding = float(1e-15 * (1 + abs(b[0])) * (c @ scores) + 1e-11 * primal)
    assert dual <= primal + rounding, f"{model}: the dual is above the primal"
    said, gap = float(np.ravel(model.dual_gap_)[0]), float(primal - dual)
    assert abs(np.ravel(model.objective_)[0] - float(primal)) <= 1e-10 * float(primal) + rounding
    assert abs(said - gap) <= 1e-4 * gap + rounding, f"{model}: {said} is not {gap}"


CHECK = drawn("certificates", _case)
