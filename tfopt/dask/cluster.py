"""Workers and scheduler of a Dask cluster, seen from the client."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Sequence
from typing import Any

from distributed import Client, Future, KilledWorker, get_client
from distributed.comm import CommClosedError

__all__ = [
    "WORKER_LOST_ERRORS",
    "POLL_INTERVAL",
    "check_scheduler",
    "current_client",
    "gathered",
    "assign_workers",
    "wait_for_workers",
    "worker_threads",
]

#: Seconds between checks, during a wait, whether the workers are still there.
POLL_INTERVAL = 0.25
#: Seconds to wait for the first worker.
WORKER_TIMEOUT = 120
#: The errors that a lost worker causes.
WORKER_LOST_ERRORS = (
    KilledWorker,
    CommClosedError,
    concurrent.futures.CancelledError,
    asyncio.CancelledError,
)
#: Seconds that a busy scheduler may take to answer before the connection is checked.
SCHEDULER_TIMEOUT = 5
#: Seconds before asking it again.
RETRY_INTERVAL = 0.1


def current_client() -> Client:
    """Return the client that is in use.

    Raises
    ------
    ValueError
        If there is none.
    """
    try:
        return get_client()
    except ValueError as error:
        raise ValueError(
            "there is no Dask client: create one first, with distributed.Client() for a cluster on "
            "this machine or distributed.Client('tcp://host:port') for the one of a scheduler"
        ) from error


def check_scheduler(client: Client) -> None:
    """Raise an error if the connection to the scheduler is lost.

    Dask tries to reconnect for half a minute, but the data on the cluster are lost in any case.

    Raises
    ------
    ConnectionError
        If the scheduler, or the client's connection to it, is gone.
    """
    if client.status != "running":
        raise ConnectionError("the connection to the scheduler is lost")


async def gathered(
    client: Client, futures: Sequence[Future], direct: bool | None = None
) -> list[Any]:
    """Return the results of futures, for `Client.sync`.

    Dask sends simultaneous requests for results as one. Were that cancelled before it is sent, as
    Ctrl-C does, Dask would refuse these and all later requests of the client; so it goes on.
    """
    results: list[Any] = await asyncio.shield(client.gather(list(futures), direct=direct))
    return results


def worker_threads(client: Client) -> dict[str, int]:
    """Return the number of threads of each worker, by address.

    Raises
    ------
    ConnectionError
        See `check_scheduler`.
    """
    while True:
        check_scheduler(client)
        try:
            threads: dict[str, int] = client.sync(
                client.scheduler.ncores, callback_timeout=SCHEDULER_TIMEOUT
            )
            return threads
        except OSError:  # timeouts included
            time.sleep(RETRY_INTERVAL)


def wait_for_workers(client: Client) -> dict[str, int]:
    """Return `worker_threads`; wait for the first worker if there is none.

    Raises
    ------
    TimeoutError
        If there is no worker for `WORKER_TIMEOUT` seconds.
    """
    end = time.monotonic() + WORKER_TIMEOUT
    while not (threads := worker_threads(client)):
        if time.monotonic() > end:
            raise TimeoutError(f"the cluster has had no workers for {WORKER_TIMEOUT} s")
        time.sleep(POLL_INTERVAL)
    return threads


def assign_workers(threads: dict[str, int], n_blocks: int) -> list[str]:
    """Return a worker for each block, given the threads of each worker.

    Neighbouring blocks are kept together, and threads get equally many.
    """
    slots = [worker for worker, n_threads in threads.items() for _ in range(n_threads)]
    return [slots[number * len(slots) // n_blocks] for number in range(n_blocks)]
