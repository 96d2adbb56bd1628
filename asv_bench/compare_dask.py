"""Fits on a cluster of this machine: tfopt's against dask-ml's LogisticRegression.

Needs dask-ml. Both minimize sum(log(1 + exp(-y x.w))) + |w|^2 / 2, without an intercept, over the
same dask array on the same cluster. A time counts if the objective is near enough to the least one.
Features are independent and alike, which is the easiest of cases for gradients; or they resemble
each other and are of several sizes.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask_ml.linear_model import LogisticRegression
from distributed import Client, LocalCluster

from tfopt import linear_model
from tfopt.dask import SDCAClassifier

ROWS, FEATURES, CHUNKS = 100_000, 200, 8
NEAR = 1e-4
WORKERS = 2


def features(kind: str, random: np.random.Generator) -> np.ndarray:
    X = random.standard_normal((ROWS, FEATURES)) / FEATURES**0.5
    if kind == "alike":
        return X
    mixed: np.ndarray = X @ random.standard_normal((FEATURES, FEATURES))
    return mixed * np.logspace(-2, 0, FEATURES)


def objective(X: np.ndarray, y: np.ndarray, w: np.ndarray) -> float:
    return float(np.logaddexp(0, -y * (X @ w)).sum() + w @ w / 2)


def fits() -> dict[str, list[Callable[[], Any]]]:
    """Return estimators to be tried, from the least exact on."""
    rivals = {
        solver: [
            lambda solver=solver, n=n: LogisticRegression(
                solver=solver,
                C=1.0,
                fit_intercept=False,
                max_iter=n,
                tol=0,
                solver_kwargs={"normalize": False},  # which penalizes other weights
            )
            for n in (5, 10, 20, 40, 80, 160)
        ]
        for solver in ("lbfgs", "admm")
    }
    ours = [lambda tol=tol: SDCAClassifier(tol=tol, fit_intercept=False) for tol in (1e-3, 1e-4)]
    return {"tfopt": ours, **rivals}


def main() -> None:
    warnings.simplefilter("ignore")
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).parents[1]))
    nanny = "distributed.nanny.pre-spawn-environ"
    keep = {f"{nanny}.MALLOC_TRIM_THRESHOLD_": 2**30, f"{nanny}.MALLOC_MMAP_THRESHOLD_": 2**25}
    with (
        dask.config.set(keep),
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        for kind in ("alike", "mixed"):
            compare(client, kind)


def compare(client: Client, kind: str) -> None:
    random = np.random.default_rng(0)
    X = features(kind, random)
    z = X @ random.standard_normal(FEATURES) * 2
    y = np.where(z + random.logistic(size=ROWS) > 0, 1, 0)
    signs = 2.0 * y - 1
    exact = linear_model.SDCAClassifier(tol=1e-9, fit_intercept=False).fit(X, y)
    least = float(exact.objective_[0])
    dX = da.from_array(X, chunks=(ROWS // CHUNKS, FEATURES)).persist()
    dy = da.from_array(y, chunks=ROWS // CHUNKS).persist()
    client.rebalance()
    for name, tried in fits().items():
        for make in tried:
            times = []
            for _ in range(3):
                started = time.perf_counter()
                model = make().fit(dX, dy)
                times.append(time.perf_counter() - started)
            off = objective(X, signs, np.ravel(model.coef_)) / least - 1
            print(
                f"{kind}, {name}: median {np.median(times):.2f} s, {off:.1e} above the least",
                flush=True,
            )
            if off <= NEAR or np.median(times) > 20:
                break


if __name__ == "__main__":
    main()
