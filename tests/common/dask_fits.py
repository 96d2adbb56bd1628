"""Fits of one problem with and without a cluster, and their bits."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from common.dask_cluster import ROWS, blocks, data
from tfopt import linear_model
from tfopt.dask import SDCAClassifier

FITTED = ("coef_", "intercept_", "objective_", "dual_gap_", "n_iter_", "dual_coef_")
#: Far from the end.
OPTIONS: dict[str, Any] = {"tol": 1e-9, "max_iter": 5}


def fit(model: Any, **options: Any) -> None:
    rows = data("logistic")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(*(blocks(*rows) if isinstance(model, SDCAClassifier) else rows), **options)


def fitted(model: Any, **options: Any) -> dict[str, bytes]:
    """Fit a model, and return its bits."""
    fit(model, **options)
    return {name: np.asarray(getattr(model, name)).tobytes() for name in FITTED}


def alone() -> dict[str, bytes]:
    return fitted(linear_model.SDCAClassifier(num_loss_partitions=ROWS, **OPTIONS))
