"""A saved fit is resumed for its own problem alone: every parameter that moves the minimum counts.

Which parameters move it is not listed here: fits say it, of each parameter of the constructors.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common.dask_cluster import blocks, data
from distributed import Client
from sklearn.exceptions import ConvergenceWarning

from tfopt import dask, linear_model
from tfopt.errors import CheckpointError

KINDS = ("SDCAClassifier", "SDCARegressor")
#: Another value of each parameter, and what it needs to be one.
OTHERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "l1": (3.0, {}),
    "l2": (3.0, {}),
    "C": (0.1, {}),
    "gamma": (0.5, {"loss": "smooth_hinge"}),
    "epsilon": (0.7, {"loss": "huber"}),
    "quantile": (0.9, {"loss": "quantile"}),
    "power": (1.2, {"loss": "tweedie"}),
    "fit_intercept": (False, {}),
    "class_weight": ("balanced", {}),
    "max_iter": (999, {}),
    "max_time": (1e3, {}),
    "tol": (1e-3, {}),
    "random_state": (7, {}),
    "warm_start": (True, {}),
    "verbose": (False, {}),
    "callback": (lambda record: None, {}),
    "checkpoint": (None, {}),
    "checkpoint_every": (9, {}),
}


def other_losses(kind: str) -> list[str]:
    """Return the losses that fixed blocks take, but the first, which is the default."""
    return [loss for loss in getattr(linear_model, kind)._LOSSES if loss != "multinomial"][1:]


def changes(kind: str) -> list[tuple[str, Any, dict[str, Any]]]:
    names = [name for name in inspect.signature(getattr(dask, kind)).parameters if name != "loss"]
    values: list[tuple[str, Any, dict[str, Any]]] = [(name, *OTHERS[name]) for name in names]
    values += [("class_weight", {True: 5.0}, {})] * ("class_weight" in names)
    return values + [("loss", loss, {}) for loss in other_losses(kind)]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0") as one:
        yield one


def fitted(model: Any, *arguments: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(*arguments, **options)


def minimum(kind: str, options: dict[str, Any], *columns: np.ndarray) -> tuple[float, float]:
    """Return an interval that holds the minimum."""
    options = {name: each for name, each in options.items() if not name.startswith("checkpoint")}
    model = fitted(getattr(linear_model, kind)(**options), *columns)
    objective, gap = (float(np.ravel(each)[0]) for each in (model.objective_, model.dual_gap_))
    return objective - gap, objective


@pytest.mark.parametrize(
    ("kind", "name", "value", "needs"),
    [
        pytest.param(kind, *change, id=f"{kind}-{change[0]}-{number}")
        for kind in KINDS
        for number, change in enumerate(changes(kind))
    ],
)
def test_another_problem_is_refused(
    client: Client, tmp_path: Path, kind: str, name: str, value: Any, needs: dict[str, Any]
) -> None:
    X, y, weight = data("logistic" if kind == "SDCAClassifier" else "squared")
    y = y > 0 if kind == "SDCAClassifier" else np.abs(y)
    X, folder = X.toarray(), str(tmp_path)
    options = {"tol": 1e-6, "max_iter": 300, "l1": 0.5, **needs}
    first = {**options, "checkpoint": folder, "checkpoint_every": 1, "tol": 1e-15}
    # of three iterations: its best point is far from the minimum of any problem
    fitted(getattr(dask, kind)(**first | {"max_iter": 3}), *blocks(X, y, weight))
    then = {**options, name: value}
    intervals = [minimum(kind, each, X, y, weight) for each in (options, then)]
    differs = intervals[0][1] < intervals[1][0] or intervals[1][1] < intervals[0][0]
    seeded = name == "random_state"  # the visits that follow would not be those that were begun
    resumed = getattr(dask, kind)(**then)
    if differs or seeded:
        with pytest.raises(CheckpointError, match=r"its .* is .*, not "):
            fitted(resumed, *blocks(X, y, weight), resume=folder)
        assert not hasattr(resumed, "coef_")
    else:
        fitted(resumed, *blocks(X, y, weight), resume=folder)
        low, high = intervals[1]
        objective = float(np.ravel(resumed.objective_)[0])
        gap = float(np.ravel(resumed.dual_gap_)[0])
        rounding = 1e-12 * abs(objective)
        assert objective + rounding >= low and objective - gap <= high + rounding


@pytest.mark.parametrize("kind", KINDS)
def test_the_parameters_that_move_the_minimum_are_found(kind: str) -> None:
    """The test above can fail: most parameters of the problem do move it."""
    X, y, weight = data("logistic" if kind == "SDCAClassifier" else "squared")
    y = y > 0 if kind == "SDCAClassifier" else np.abs(y)
    moved = set()
    for name, value, needs in changes(kind):
        options = {"tol": 1e-6, "l1": 0.5, **needs}
        low, high = minimum(kind, options, X.toarray(), y, weight)
        other = minimum(kind, {**options, name: value}, X.toarray(), y, weight)
        if high < other[0] or other[1] < low:
            moved.add(name)
    regression = {"epsilon", "quantile", "power"}
    own = {"class_weight", "gamma"} if kind == "SDCAClassifier" else regression
    assert moved == {"loss", "l1", "l2", "C", "fit_intercept"} | own


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("changed", ["labels", "weights"])
def test_other_totals_of_the_labels_are_refused(
    client: Client, tmp_path: Path, kind: str, changed: str
) -> None:
    X, y, weight = data("logistic" if kind == "SDCAClassifier" else "squared")
    y = y > 0 if kind == "SDCAClassifier" else y
    folder = str(tmp_path)
    model = getattr(dask, kind)(checkpoint=folder, checkpoint_every=1, max_iter=3, tol=1e-15)
    fitted(model, *blocks(X, y, weight))
    y, weight = y.copy(), weight.copy()
    if changed == "labels":
        y[3] = ~y[3] if y.dtype == bool else y[3] + 1
    else:
        weight[3] *= 2
    with pytest.raises(CheckpointError, match=r"its label_totals is .*, not "):
        getattr(dask, kind)().fit(*blocks(X, y, weight), resume=folder)
