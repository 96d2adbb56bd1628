"""Clusters of processes on this machine, and data in blocks for them."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from distributed import Client, LocalCluster
from scipy import sparse

__all__ = ["ROWS", "addresses", "blocks", "data", "kill_one", "processes", "tasks"]

#: Rows of the blocks: more blocks than are visited side by side, of several sizes.
ROWS = (30, 25, 40, 10, 35, 20, 15, 25, 1, 50)


@contextmanager
def processes(n: int, **options: Any) -> Iterator[Client]:
    """Start so many workers, of one thread each, which import what is tested; give a client."""
    with (
        mock.patch.dict(os.environ, PYTHONPATH=str(Path(__file__).parent.parent)),
        LocalCluster(
            n_workers=n,
            threads_per_worker=1,
            host="127.0.0.1",
            # no dashboard is looked at, but None would take a port that may be taken
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,  # what tests kill is reported at length
            **options,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def addresses(client: Client) -> list[str]:
    return sorted(client.nthreads())


def data(loss: str, d: int = 7) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return a CSR matrix, labels, of three classes for the hinge, and weights."""
    random, n = np.random.default_rng(0), sum(ROWS)
    X = random.standard_normal((n, d)) * (random.uniform(size=(n, d)) < 0.5)
    z = X @ random.standard_normal(d) + 0.5 + random.standard_normal(n)
    y = {
        "squared": lambda: z,
        "poisson": lambda: random.poisson(np.exp(z / 3)).astype(float),
        "hinge": lambda: np.array(["a", "b", "c"])[np.digitize(z, [-1, 1])],
    }.get(loss, lambda: np.sign(z))()
    return sparse.csr_matrix(X), y, random.choice([0.5, 1.0, 2.0], n)


def blocks(*arrays: Any) -> list[list[Any]]:
    """Return each array in blocks of `ROWS`."""
    ends = np.cumsum([0, *ROWS]).tolist()
    return [[array[i:j] for i, j in itertools.pairwise(ends)] for array in arrays]


def kill_one(client: Client) -> None:
    """Kill the worker that holds most: one that has just come may hold nothing yet."""
    held = client.has_what()
    worst = max(held, key=lambda address: len(held[address]))
    os.kill(client.run(os.getpid)[worst], signal.SIGKILL)


def tasks(client: Client) -> list[str]:
    """Return the tasks that the cluster still has, once it had time to forget."""
    return client.run_on_scheduler(_tasks)


async def _tasks(dask_scheduler: Any) -> list[str]:
    for _ in range(50):
        if not dask_scheduler.tasks:
            break
        await asyncio.sleep(0.1)
    return [str(key) for key in dask_scheduler.tasks]
