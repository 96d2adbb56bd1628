"""Snap ML: its linear models, also by dual coordinate ascent."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import numpy as np

from comparison.linear import Fit, until_near
from comparison.measure import Side
from comparison.rival import Rival

__all__ = ["rivals", "versions"]

TOLERANCES = 10.0 ** np.arange(-1, -7, -0.5)


def versions() -> dict[str, Any]:
    from importlib.metadata import version

    return {"snapml": version("snapml"), "numpy": np.__version__}


def rivals(work: Fit) -> list[Rival]:
    """Return it with one thread and with all, since either can be faster."""
    if work.loss not in ("logistic", "hinge", "squared") or work.intercept or work.l1:
        return []  # it penalizes an intercept
    every = len(os.sched_getaffinity(0))
    return [
        Rival(f"Snap ML, {n} thread{'s' * (n > 1)}", partial(_side, work, n), work.gap)
        for n in sorted({1, every})
    ]


def _side(work: Fit, threads: int) -> Side:
    import snapml

    X, y = work.problem()
    kind = {
        "logistic": snapml.LogisticRegression,
        "hinge": snapml.SupportVectorMachine,
        "squared": snapml.LinearRegression,
    }[work.loss]

    def fit(tolerance: float) -> np.ndarray:
        model = kind(regularizer=work.l2, n_jobs=threads, tol=tolerance, random_state=0)
        model.fit(X, y)
        return np.append(np.ravel(model.coef_).astype(float), 0.0)

    return work.side(until_near(work, fit, TOLERANCES))
