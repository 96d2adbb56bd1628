"""Blocks that lie on the workers of a cluster."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import dask
from distributed import get_client, wait

from tfopt.cli.console import printable
from tfopt.cli.errors import CommandError
from tfopt.dask.executor import LOSSES, PATIENCE, slots_of, spread
from tfopt.dask.scheduler import threads_of
from tfopt.dask.sdca import MOST_LOSSES

__all__ = ["Workers"]

_DEAD = "workers died again and again, or the whole cluster is gone"


class Workers:
    """The workers of the current cluster, as a `tfopt.cli.rows.Place`.

    What is mapped is only described, and made when it is told; if a worker dies, made again.
    """

    def map(
        self, function: Callable[..., Any], *columns: Sequence[Any], shared: Sequence[Any] = ()
    ) -> list[Any]:
        """Return tasks that call a function with each row of the columns and what is shared."""
        make = dask.delayed(function)
        return [make(*each, *shared) for each in zip(*columns, strict=True)]

    def common(self, value: Any) -> Any:
        """Return a task that gives a value, which travels once then, and not with every block."""
        return dask.delayed(_same)(value)

    def held(self, function: Callable[..., Any], values: Sequence[Any], shared: Any) -> list[Any]:
        """Return futures, each made by the worker that a fit has the block on.

        Raises
        ------
        CommandError
            If there are no workers, or some die again and again.
        """
        client = get_client()
        with _refusals():
            for _ in range(MOST_LOSSES):
                homes = [worker for worker, _ in spread(slots_of(client), len(values))]
                futures = [
                    client.submit(
                        function,
                        value,
                        shared,
                        pure=False,
                        workers=[worker],
                        allow_other_workers=True,
                    )
                    for value, worker in zip(values, homes, strict=True)
                ]
                if _are_made(futures, homes):
                    # what is made again later must not wait for a worker that is gone
                    anywhere: dict[str, list[str]] = {future.key: [] for future in futures}
                    client.sync(client.scheduler.set_restrictions, worker=anywhere)
                    return futures
                client.cancel(futures, force=True)
        raise CommandError(_DEAD)

    def told(self, values: list[Any]) -> list[Any]:
        """Return what tasks give.

        Raises
        ------
        CommandError
            If one of them refuses its data, or workers die again and again.
        """
        client = get_client()
        with warnings.catch_warnings():
            # a model may be large
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            futures = client.compute(values)
        with _refusals():
            try:
                answers: list[Any] = client.gather(futures)
                return answers
            except CommandError:
                for future in futures:  # of several the first, as elsewhere
                    future.result()
                raise


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Say in one line what has become of the cluster."""
    try:
        yield
    except (ConnectionError, TimeoutError) as error:
        raise CommandError(printable(str(error))) from error
    except LOSSES as error:
        raise CommandError(_DEAD) from error


def _are_made(futures: list[Any], homes: list[str]) -> bool:
    """Wait until all blocks are made, or one is refused; return False if a worker dies first."""
    while True:
        try:
            wait(futures, timeout=PATIENCE)
            return True
        except TimeoutError:
            if any(future.status == "error" for future in futures):
                return True
            if not {*homes} <= {*threads_of(get_client())}:
                return False


def _same(value: Any) -> Any:
    return value
