"""Clusters of processes on this machine, and data in blocks for them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import multiprocessing
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import dask
import numpy as np
from distributed import Client, LocalCluster, Scheduler, Worker
from distributed.utils import get_mp_context
from scipy import sparse

from common.linear_losses import targets

__all__ = [
    "ROWS",
    "Dies",
    "addresses",
    "blocks",
    "by_hand",
    "copy_blocks",
    "data",
    "kill_one",
    "processes",
    "start",
    "tasks",
]

#: Rows of the blocks: more blocks than are visited side by side, of several sizes.
ROWS = (30, 25, 40, 10, 35, 20, 15, 25, 1, 50)
CONFIG = {
    # workers are forked by a process that has imported all: they are killed often
    "distributed.worker.multiprocessing-method": "forkserver",
    # else one that is killed again while it comes back is given up
    "distributed.deploy.lost-worker-timeout": "1 hour",
}

PRELOAD = [
    "dask.dataframe",
    "tfopt.dask.linear.estimators",
    "tfopt.dask.linear.ftrl",
    "tfopt.dask.table.sharded",
]


def start(function: Callable[..., Any], *arguments: Any) -> Any:
    """Start a function that can be imported in a process of its own, which has imported all."""
    with dask.config.set(CONFIG):
        context = get_mp_context()
    context.set_forkserver_preload(PRELOAD)
    process = context.Process(target=function, args=arguments)
    process.start()
    return process


@contextlib.contextmanager
def processes(n: int, **options: Any) -> Iterator[Client]:
    """Start so many workers, of one thread each, which import what is tested; give a client."""
    with dask.config.set(CONFIG):
        get_mp_context().set_forkserver_preload(PRELOAD)
    with (
        mock.patch.dict(os.environ, PYTHONPATH=str(Path(__file__).parents[2])),
        dask.config.set(CONFIG),
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


@contextlib.contextmanager
def by_hand(folder: Path) -> Iterator[tuple[Client, Any]]:
    """Start a scheduler and a worker without a nanny; give a client and the scheduler's process."""
    reading, writing = multiprocessing.Pipe(duplex=False)
    started = [start(_run, _scheduler, writing)]
    try:
        address = reading.recv()
        started.append(start(_run, _worker, address, str(folder)))
        with Client(address) as client:
            yield client, started[0]
    finally:
        for process in started:
            process.kill()
            process.join()
        reading.close()
        writing.close()


def _run(function: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
    logging.disable()  # what tests kill is reported at length
    asyncio.run(function(*arguments))


async def _scheduler(writing: Any) -> None:
    async with Scheduler(host="127.0.0.1", port=0, dashboard=False) as scheduler:
        writing.send(scheduler.address)
        await scheduler.finished()


async def _worker(address: str, folder: str) -> None:
    async with Worker(address, nthreads=1, local_directory=folder) as worker:
        await worker.finished()


def addresses(client: Client) -> list[str]:
    return sorted(client.nthreads())


def data(loss: str, d: int = 7) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return a CSR matrix, labels, of three classes for the hinge, and weights."""
    random, n = np.random.default_rng(0), sum(ROWS)
    X = random.standard_normal((n, d)) * (random.uniform(size=(n, d)) < 0.5)
    z = X @ random.standard_normal(d) + 0.5 + random.standard_normal(n)
    y = targets(loss, z, random)
    if loss == "hinge":
        y = np.array(["a", "b", "c"])[np.digitize(z, [-1, 1])]
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


def copy_blocks(client: Client) -> None:
    """Copy all blocks, as they are now, to a second worker, as Dask does before it retires one."""
    client.run_on_scheduler(_copy_blocks)


async def _copy_blocks(dask_scheduler: Any) -> None:
    held = [key for key, task in dask_scheduler.tasks.items() if task.who_has]
    await dask_scheduler.replicate(keys=held, n=2)


class Dies:
    """A round that kills the worker which takes it for one of the blocks: the first time."""

    def __init__(self, function: Callable[[Any, Any], Any], number: int, mark: Path) -> None:
        self.function, self.number, self.mark = function, number, mark

    def __call__(self, block: Any, order: Any) -> Any:
        taken = self.function(block, order)
        if block.number == self.number:
            with contextlib.suppress(FileExistsError):
                self.mark.touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        return taken


def tasks(client: Client) -> list[str]:
    """Return the tasks that the cluster still has, once it had time to forget."""
    return client.run_on_scheduler(_tasks)


async def _tasks(dask_scheduler: Any) -> list[str]:
    for _ in range(500):
        if not dask_scheduler.tasks:
            break
        await asyncio.sleep(0.01)
    return [str(key) for key in dask_scheduler.tasks]
