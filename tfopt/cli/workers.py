"""Blocks that lie on the workers of a cluster."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from typing import Any

import dask
from distributed import KilledWorker, get_client

from tfopt.cli.errors import CommandError
from tfopt.dask.executor import homes_of

__all__ = ["NO_WORKERS", "Workers"]

NO_WORKERS = "the cluster has no workers"


class Workers:
    """The workers of the current cluster, as a `tfopt.cli.rows.Place`.

    What is made there is described, and made when it is held or told; if a worker dies, again.
    """

    def map(
        self, function: Callable[..., Any], *columns: Sequence[Any], shared: Sequence[Any] = ()
    ) -> list[Any]:
        # a task of its own for each, so that a model travels once and not with every block
        common = [dask.delayed(_same)(value) for value in shared]
        make = dask.delayed(function)
        return [make(*each, *common) for each in zip(*columns, strict=True)]

    def held(self, blocks: list[Any]) -> list[Any]:
        """Return futures of blocks, each made by the worker that a fit has it on."""
        client = get_client()
        try:
            homes = homes_of(client, len(blocks))
        except TimeoutError as error:
            raise CommandError(NO_WORKERS) from error
        return [
            client.compute(block, workers=[worker], allow_other_workers=True)
            for block, (worker, _) in zip(blocks, homes, strict=True)
        ]

    def told(self, values: list[Any]) -> list[Any]:
        """Return what tasks give.

        Raises
        ------
        CommandError
            If one of them refuses its data, or workers die of it.
        """
        client = get_client()
        try:
            with warnings.catch_warnings():
                # a model may be large
                warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
                answers: list[Any] = client.gather(client.compute(values))
                return answers
        except (KilledWorker, CancelledError) as error:
            raise CommandError("the workers died, one after another") from error


def _same(value: Any) -> Any:
    return value
