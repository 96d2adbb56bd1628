"""What the scheduler knows of the cluster, as long as it is there."""

from __future__ import annotations

import time

from distributed import Client

__all__ = ["check_scheduler", "threads_of"]

#: Seconds in which a scheduler that is busy should answer; else one looks whether it is there.
PATIENCE = 5
#: Seconds to wait if it cannot be reached, but is not known to be gone.
PAUSE = 0.1


def check_scheduler(client: Client) -> None:
    """Refuse to go on without a scheduler.

    Dask tries for half a minute to reach it again. But what was on the cluster is lost by then,
    whether there will be one or not.

    Raises
    ------
    ConnectionError
        If the scheduler, or the client's connection to it, is gone.
    """
    if client.status != "running":
        raise ConnectionError("the connection to the scheduler is lost")


def threads_of(client: Client) -> dict[str, int]:
    """Return how many threads each worker has, by its address.

    Raises
    ------
    ConnectionError
        See `check_scheduler`.
    """
    while True:
        check_scheduler(client)
        try:
            threads: dict[str, int] = client.sync(
                client.scheduler.ncores, callback_timeout=PATIENCE
            )
            return threads
        except OSError:  # which a timeout is, too
            time.sleep(PAUSE)
