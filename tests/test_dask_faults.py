"""Fits on clusters whose scheduler dies, or whose workers come back where they were."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dask_cluster import ROWS, blocks, by_hand, data
from sklearn.exceptions import ConvergenceWarning

from tfopt import linear_model
from tfopt.dask import SDCAClassifier

FITTED = ("coef_", "intercept_", "objective_", "dual_gap_", "n_iter_", "dual_coef_")
#: Far from the end.
OPTIONS: dict[str, Any] = {"tol": 1e-9, "max_iter": 5}


def fitted(model: Any, **options: Any) -> dict[str, bytes]:
    """Fit a model, and return its bits."""
    rows = data("logistic")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(*(blocks(*rows) if isinstance(model, SDCAClassifier) else rows), **options)
    return {name: np.asarray(getattr(model, name)).tobytes() for name in FITTED}


def alone() -> dict[str, bytes]:
    return fitted(linear_model.SDCAClassifier(num_loss_partitions=ROWS, **OPTIONS))


def test_a_fit_goes_on_with_another_scheduler(tmp_path: Path) -> None:
    saved, killed = str(tmp_path / "saved"), []

    def end(record: dict[str, Any]) -> None:
        if record["iteration"] == 3:
            scheduler.kill()
            killed.append(time.monotonic())

    with by_hand(tmp_path) as (_, scheduler):
        model = SDCAClassifier(**OPTIONS, callback=end, checkpoint=saved, checkpoint_every=1)
        with pytest.raises(ConnectionError, match="the connection to the scheduler is lost"):
            fitted(model)
        assert time.monotonic() - killed[0] < 10  # Dask would try for 30
    seen: list[int] = []
    with by_hand(tmp_path):
        model = SDCAClassifier(**OPTIONS, callback=lambda record: seen.append(record["iteration"]))
        assert fitted(model, resume=saved) == alone()
    assert seen == [3, 4, 5]
