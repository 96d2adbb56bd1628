"""Rounds over blocks that lie on the workers of a cluster."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from typing import Any, TypeAlias

import dask
from distributed import Client, Future, KilledWorker, wait
from distributed.comm import CommClosedError

from tfopt.dask.holders import LostError, at, gathered, load, step
from tfopt.linear_model.trees import fold

__all__ = ["DaskExecutor", "Source"]

#: One block's X, y, weights and dual variables, each perhaps still to be computed.
Source: TypeAlias = tuple[Any, Any, Any, Any]

#: Seconds after which one looks whether the workers are there that an answer is awaited from.
PATIENCE = 0.25
#: Seconds to wait for a worker if there is none.
MOST_PATIENCE = 120
#: How many sums a client takes in: beyond, they are added up on workers first.
FAN = 8
#: How it shows that a worker is gone.
_LOSSES = (KilledWorker, CommClosedError, CancelledError, asyncio.CancelledError)


class DaskExecutor:
    """An executor whose blocks lie on workers, each on one of them.

    A round is a task for each thread of the workers: blocks that are neighbours in the tree of sums
    lie together, so that little but sums has to travel.

    Parameters
    ----------
    client : distributed.Client
    sources : sequence of Source
    of_classes : bool
        Whether labels are classes.
    """

    def __init__(self, client: Client, sources: Sequence[Source], of_classes: bool) -> None:
        self.client, self.n_blocks = client, len(sources)
        self._name = f"tfopt-{uuid.uuid4().hex}"
        self._tasks = itertools.count()
        self._sources, self._of_classes = sources, of_classes
        self._homes: list[tuple[str, int]] = [("", 0)] * self.n_blocks
        self._holders: list[Future | None] = [None] * self.n_blocks
        self._attempt, self._rounds = 0, [0] * self.n_blocks

    def __enter__(self) -> DaskExecutor:
        self.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        holders = [holder for holder in self._holders if holder is not None]
        if kind is not None:  # which also ends what waits for them
            self.client.cancel(holders, force=True)
        for holder in holders:
            holder.release()
        self._holders = [None] * self.n_blocks

    def begin(self) -> None:
        """Begin anew, with the blocks as they were given: those on lost workers are read again."""
        if not self.client.nthreads():
            self.client.wait_for_workers(1, timeout=MOST_PATIENCE)
        threads = self.client.nthreads()
        slots = [(worker, k) for worker, n in threads.items() for k in range(n)]
        gone = [number for number, (home, _) in enumerate(self._homes) if home not in threads]
        lost = [holder for number in gone if (holder := self._holders[number]) is not None]
        self.client.cancel(lost, force=True)  # or they would wait for their workers for ever
        for number in gone:
            slot = self._homes[number] = slots[number * len(slots) // self.n_blocks]
            read = dask.delayed(load)(
                number,
                *self._sources[number],
                self._of_classes,
                dask_key_name=f"{self._name}-{next(self._tasks)}",
            )
            self._holders[number] = self.client.compute(
                read, workers=[slot[0]], allow_other_workers=False
            )
        self._attempt += 1
        self._rounds = [0] * self.n_blocks

    def ask(
        self,
        function: Callable[[Any, Any], tuple[Any, Any]],
        order: Any,
        numbers: Sequence[int] | None = None,
    ) -> Any:
        """Give all blocks, or some, an order, and return the `tree_sum` of their answers.

        Raises
        ------
        LostError
            If a worker is gone.
        """
        numbers = range(self.n_blocks) if numbers is None else numbers
        shares: dict[tuple[str, int], list[tuple[int, Future | None, int]]] = {}
        for place, number in enumerate(numbers):
            self._rounds[number] += 1
            share = shares.setdefault(self._homes[number], [])
            share.append((place, self._holders[number], self._rounds[number]))
        answers = [
            self._submit(step, share, self._attempt, function, order, len(numbers), workers=[home])
            for (home, _), share in shares.items()
        ]
        while len(answers) > FAN:
            groups = [answers[k : k + FAN] for k in range(0, len(answers), FAN)]
            answers = [self._submit(gathered, group, len(numbers)) for group in groups]
        found = self._result(answers)
        (total,) = fold({k: v for nodes in found for k, v in nodes.items()}, len(numbers)).values()
        return total

    def each(self, function: Callable[[Any, Any], Any], order: Any) -> list[Future]:
        """Return futures of what a function makes of each block and the order."""
        made = [
            self._submit(at, holder, self._attempt, number, function, order, workers=[home])
            for holder, (home, _), number in zip(
                self._holders, self._homes, self._rounds, strict=True
            )
        ]
        self._await(made)
        return made

    def _submit(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Future:
        key = f"{self._name}-{next(self._tasks)}"
        return self.client.submit(function, *arguments, key=key, pure=False, **options)

    def _await(self, futures: list[Future]) -> None:
        """Wait for futures as long as all workers are there."""
        while True:
            try:
                wait(futures, timeout=PATIENCE)
                return
            except TimeoutError as error:
                # Dask has the error refer to itself through its traceback, and that to the futures
                error.__traceback__ = None
                gone = {home for home, _ in self._homes} - {*self.client.nthreads()}
                if gone:
                    raise LostError(f"workers are gone: {', '.join(sorted(gone))}") from None

    def _result(self, futures: list[Future]) -> list[Any]:
        try:
            self._await(futures)
            answers: list[Any] = self.client.gather(futures, direct=True)
            return answers
        except _LOSSES as error:
            raise LostError(str(error)) from error
