"""Measure the constants of `scaling_model.py` on this machine, and write scaling.json.

Takes a few minutes and 3 GiB of memory; it needs tfopt[dask]. Then `python scaling_model.py`
regenerates the tables of docs/scaling.md.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
from distributed import Client, LocalCluster
from records import new_run
from scaling_model import RESULTS, Round, added, levels, transfers

from tfopt.dask import DataParallel
from tfopt.linear_model import SDCAClassifier
from tfopt.optimizers import SGD
from tfopt.threads import set_num_threads

WORKERS = (1, 2, 4)
SIMULATED = 16
CORES = len(os.sched_getaffinity(0))
MIB = 1 << 20
#: How often a round with sleeping kernels is measured.
SLEEPING = 3


def best(work: Callable[[], Any], repeats: int = 7) -> float:
    """Return the shortest of several times, after a warm-up."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def line(x: list[float], y: list[float]) -> tuple[float, float]:
    """Return the intercept and slope of a line fitted to points."""
    slope, intercept = np.polyfit(x, y, 1)
    return float(intercept), float(slope)


def give(params: np.ndarray, block: int, nbytes: int, sleep: float) -> tuple[float, np.ndarray]:
    """A kernel that takes time but no core, and returns a change of `nbytes` bytes."""
    time.sleep(sleep)
    return 0.0, np.ones(nbytes // 8)


def a_round(client: Client, blocks: int, weights: int, change: int, sleep: float = 0.0) -> float:
    parallel = DataParallel(SGD(), give, list(range(blocks)), client=client)
    params = np.zeros(weights // 8)
    return best(lambda: parallel.gradients(params, change, sleep), SLEEPING if sleep else 7)


def constants(client: Client, workers: int) -> dict[str, float]:
    tasks, times = [], []
    for blocks in (1, 16, 64, 128):
        tasks.append(float(blocks + sum(levels(blocks, 4))))
        times.append(a_round(client, blocks, 8, 8))
    latency, task = line(tasks, times)
    sizes = [1 * MIB, 8 * MIB, 32 * MIB]
    in_turn = transfers(workers, CORES)
    sent = [np.zeros(size // 8) for size in sizes]
    hops, send = line(
        [size * in_turn for size in sizes],
        [best(lambda a=a: client.scatter([a], broadcast=True, hash=False)) for a in sent],
    )
    blocks, changes = 16, [1 * MIB, 4 * MIB, 8 * MIB]
    read = added(Round(workers, blocks, 0, 0, 0, CORES))
    _, add = line(
        [change * read for change in changes],
        [a_round(client, blocks, 8, change) for change in changes],
    )
    return {
        "latency": max(latency - max(hops, 0.0), 0.0),  # such a round includes a broadcast
        "task": task,
        "hop": max(hops, 0.0) / in_turn,
        "send": send,
        "add": max(add, 0.0),
    }


def nonzero() -> float:
    """Return the time the linear model takes per nonzero on one core."""
    set_num_threads(1)
    random = np.random.default_rng(0)
    examples, each, features = 100_000, 50, 50_000
    indices = random.integers(0, features, (examples, each))
    indptr = np.arange(0, examples * each + 1, each)
    shape = examples, features
    X = scipy.sparse.csr_matrix((np.ones(indices.size), indices.ravel(), indptr), shape)
    X.sum_duplicates()
    y = random.integers(0, 2, examples)

    def fit(epochs: int) -> None:
        SDCAClassifier(fit_intercept=False, tol=0.0, max_iter=epochs).fit(X, y)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has not converged
        # too few epochs for another method to take over
        return (best(lambda: fit(3)) - best(lambda: fit(1))) / (2 * X.nnz)


def processor_time(client: Client) -> float:
    """Return the CPU time of all processes so far; the scheduler runs in this one."""
    return time.process_time() + sum(client.run(time.process_time).values())


def check(client: Client, workers: int) -> dict[str, Any]:
    kernel, nbytes, blocks = 0.1, 4 * MIB, 32
    before = processor_time(client)
    took = a_round(client, blocks, nbytes, nbytes, kernel)
    busy = (processor_time(client) - before) / (1 + SLEEPING)
    return {
        "workers": workers,
        "blocks": blocks,
        "bytes": nbytes,
        "kernel": kernel,
        "seconds": took,
        "busy": busy / CORES,
    }


def main() -> None:
    run, checks = new_run(), []
    measured: dict[str, Any] = {}
    visit = nonzero()
    for workers in (*WORKERS, SIMULATED):
        cluster = LocalCluster(
            n_workers=workers, threads_per_worker=1, host="127.0.0.1", dashboard_address=":0"
        )
        with cluster, Client(cluster) as client:
            if workers != SIMULATED:
                measured[str(workers)] = {**constants(client, workers), "nonzero": visit}
            checks.append(check(client, workers))
        print(measured.get(str(workers)), checks[-1], flush=True)
    results = {
        "run": run,
        "cores": CORES,
        "constants": measured,
        "check": checks,
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
