"""Clusters of processes on loopback, for tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distributed import Client, LocalCluster


@contextmanager
def processes(n: int, **options: Any) -> Iterator[Client]:
    """Start so many workers, of one thread each, and give a client."""
    with (
        LocalCluster(
            n_workers=n,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,  # what tests kill is reported at length
            **options,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def addresses(client: Client) -> list[str]:
    return sorted(client.nthreads())
