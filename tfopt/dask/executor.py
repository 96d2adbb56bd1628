"""Rounds over blocks that lie on the workers of a cluster."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import pickle
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias

import dask
from distributed import Client, Future, KilledWorker, wait
from distributed.comm import CommClosedError

from tfopt.dask.holders import Desk, LostError, at, gathered, load, named, step
from tfopt.dask.scheduler import check_scheduler, threads_of
from tfopt.linear_model.trees import fold

__all__ = ["LOSSES", "DaskExecutor", "Source", "slots_of", "spread"]

#: One block's X, y, weights and dual variables, each perhaps still to be computed.
Source: TypeAlias = tuple[Any, Any, Any, Any]

#: Seconds after which one looks whether the workers are there that an answer is awaited from.
PATIENCE = 0.25
#: Seconds to wait for a worker if there is none.
MOST_PATIENCE = 120
#: How many sums a client takes in: beyond, tasks on workers add them up first.
FAN = 8
#: How it shows that a worker is gone.
LOSSES = (KilledWorker, CommClosedError, concurrent.futures.CancelledError, asyncio.CancelledError)


def slots_of(client: Client) -> list[tuple[str, int]]:
    """Return each thread of each worker, once there is one.

    Raises
    ------
    TimeoutError
        If there are no workers.
    """
    end = time.monotonic() + MOST_PATIENCE
    while not (threads := threads_of(client)):
        if time.monotonic() > end:
            raise TimeoutError(f"the cluster has had no workers for {MOST_PATIENCE} s")
        time.sleep(PATIENCE)
    return [(worker, k) for worker, n in threads.items() for k in range(n)]


def spread(slots: list[tuple[str, int]], n_blocks: int) -> list[tuple[str, int]]:
    """Return where blocks belong: neighbours lie together."""
    return [slots[number * len(slots) // n_blocks] for number in range(n_blocks)]


class DaskExecutor:
    """An executor whose blocks lie on workers, each on one of them.

    Blocks that are neighbours in the tree of sums lie together, so that little but sums has to
    travel. A round is a call of an actor on each worker; where there are many workers, and in the
    first round, which waits for the blocks, a task for each thread of the workers.

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
        self._desks: dict[str, Future] = {}
        self._actors: dict[str, Any] = {}
        self._are_there = False
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
        self._close_desks()

    def begin(self) -> None:
        """Begin anew, with the blocks as they were given: those on lost workers are read again."""
        slots = slots_of(self.client)
        homes, workers = spread(slots, self.n_blocks), {worker for worker, _ in slots}
        gone = [number for number, (home, _) in enumerate(self._homes) if home not in workers]
        lost = [holder for number in gone if (holder := self._holders[number]) is not None]
        self.client.cancel(lost, force=True)  # or they would wait for their workers for ever
        for number in gone:
            slot = self._homes[number] = homes[number]
            read = dask.delayed(load)(
                number,
                *self._sources[number],
                self._of_classes,
                dask_key_name=f"{self._name}-{next(self._tasks)}",
            )
            # one by one, for the place is that of all tasks before it, too: a file is read where
            # its block will be. Others may, or what several blocks are made from would wait for
            # ever for the worker that had it first
            self._holders[number] = self.client.compute(
                read, workers=[slot[0]], allow_other_workers=True
            )
        self._attempt += 1
        self._rounds = [0] * self.n_blocks
        self._are_there = False
        self._close_desks()
        at = {home for home, _ in self._homes}
        if len(at) <= FAN:
            self._desks = {w: self._submit(Desk, actor=True, workers=[w]) for w in sorted(at)}

    def _close_desks(self) -> None:
        self.client.cancel([*self._desks.values()], force=True)
        self._desks, self._actors = {}, {}

    def names(self) -> dict[tuple[str, ...] | None, int]:
        """Return the names that blocks' features have, each with the first block that has them.

        Once all blocks are there: of several that are refused the first is named.

        Raises
        ------
        LostError, ConnectionError
            See `ask`.
        """
        check_scheduler(self.client)
        shares: dict[tuple[str, int], list[tuple[int, Future]]] = {}
        for number, (holder, home) in enumerate(zip(self._holders, self._homes, strict=True)):
            assert holder is not None
            shares.setdefault(home, []).append((number, holder))
        holders = [holder for share in shares.values() for _, holder in share]
        self._await(holders)
        self._result([holder for holder in holders if holder.status == "error"][:1])
        parts = self._result(
            [self._submit(named, share, workers=[worker]) for (worker, _), share in shares.items()]
        )
        found: dict[tuple[str, ...] | None, int] = {}
        for part in parts:
            for names, number in part.items():
                found[names] = min(number, found.get(names, number))
        return found

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
        ConnectionError
            If the scheduler is gone.
        """
        check_scheduler(self.client)
        self._check_desks()
        numbers = range(self.n_blocks) if numbers is None else numbers
        by_thread: dict[tuple[str, int], list[tuple[int, int]]] = {}
        by_worker: dict[str, list[tuple[int, int]]] = {}
        for place, number in enumerate(numbers):
            self._rounds[number] += 1
            home = self._homes[number]
            by_thread.setdefault(home, []).append((place, number))
            by_worker.setdefault(home[0], []).append((place, number))
        if self._are_there and self._desks:
            found = self._asked_of_desks(by_worker, function, order, len(numbers))
        else:
            found = self._asked_by_tasks(by_thread, function, order, len(numbers))
            self._are_there = True
        (total,) = fold({k: v for nodes in found for k, v in nodes.items()}, len(numbers)).values()
        return total

    def _asked_of_desks(
        self,
        shares: dict[str, list[tuple[int, int]]],
        function: Callable[[Any, Any], Any],
        order: Any,
        n_places: int,
    ) -> list[Any]:
        if not self._actors:
            actors = self._result([*self._desks.values()])
            self._actors = dict(zip(self._desks, actors, strict=True))
        told = pickle.dumps((function, order), protocol=5)
        calls = []
        for worker, share in shares.items():
            places = [(place, self._key(number), self._rounds[number]) for place, number in share]
            try:
                calls.append(self._actors[worker].step(places, self._attempt, told, n_places))
            except RuntimeError as lost:  # its worker has gone since one looked
                raise _lost(lost) from None
        # an actor whose worker is gone may be silent, or raise anything
        answers = [pickle.loads(answer) for answer in self._watched(_heard(calls), (Exception,))]
        error = next((answer for is_answer, answer in answers if not is_answer), None)
        if error is None:
            return [answer for _, answer in answers]
        try:
            raise error
        finally:
            del answers, error  # its traceback would hold it, and all that the fit has

    def _asked_by_tasks(
        self,
        shares: dict[tuple[str, int], list[tuple[int, int]]],
        function: Callable[[Any, Any], Any],
        order: Any,
        n_places: int,
    ) -> list[Any]:
        answers = []
        for (worker, _), share in shares.items():
            held = [(place, self._holders[number], self._rounds[number]) for place, number in share]
            told = self._attempt, function, order, n_places
            answers.append(self._submit(step, held, *told, workers=[worker]))
        while len(answers) > FAN:
            groups = [answers[k : k + FAN] for k in range(0, len(answers), FAN)]
            answers = [self._submit(gathered, group, n_places) for group in groups]
        return self._result(answers)

    def _key(self, number: int) -> Any:
        holder = self._holders[number]
        assert holder is not None
        return holder.key

    def each(self, function: Callable[[Any, Any], Any], order: Any) -> list[Future]:
        """Return futures of what a function makes of each block and the order.

        Raises
        ------
        LostError, ConnectionError
            See `ask`.
        """
        check_scheduler(self.client)
        # what is made lasts longer than the fit: bound to a lost worker, it would be waited for
        made = [
            self._submit(
                at,
                holder,
                self._attempt,
                number,
                function,
                order,
                workers=[home],
                allow_other_workers=True,
            )
            for holder, (home, _), number in zip(
                self._holders, self._homes, self._rounds, strict=True
            )
        ]
        self._await(made)
        self._result([future for future in made if future.status != "finished"])
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
                error.__traceback__ = None  # see _lost
                self._look_around()
            except LOSSES as error:
                raise _lost(error) from None

    def _look_around(self) -> None:
        """Raise an error if a worker is gone."""
        self._check_desks()
        gone = {home for home, _ in self._homes} - {*threads_of(self.client)}
        if gone:
            raise LostError(f"workers have left the cluster: {', '.join(sorted(gone))}") from None

    def _check_desks(self) -> None:
        """Raise an error if a worker was gone: it may have come back, under its address."""
        for home in self._actors:
            if self._desks[home].status != "finished":
                raise LostError(f"a worker was gone: {home}") from None

    def _result(self, futures: list[Future]) -> list[Any]:
        """Return what futures hold as long as all workers are there."""
        self._await(futures)
        # Dask would wait for ever if a worker that is gone by now were the only one to have one
        gathering = self.client.gather(futures, direct=True, asynchronous=True)
        found: list[Any] = self._watched(gathering, LOSSES)
        return found

    def _watched(
        self, waiting: Coroutine[Any, Any, Any], losses: tuple[type[BaseException], ...]
    ) -> Any:
        """Return what one waits for as long as all workers are there."""
        running = asyncio.run_coroutine_threadsafe(waiting, self.client.loop.asyncio_loop)
        try:
            while not concurrent.futures.wait([running], PATIENCE).done:
                self._look_around()
            try:
                return running.result()
            except losses as error:
                raise _lost(error) from None
        finally:
            running.cancel()


async def _heard(calls: list[Any]) -> list[bytes]:
    return [await call for call in calls]


def _lost(error: BaseException) -> LostError:
    """Return an error of Dask as what it means.

    Dask has its errors refer to themselves through their tracebacks, and these to all that a fit
    has: without a traceback they go at once, and not when Python next looks for such circles.
    """
    error.__traceback__ = None
    return LostError(f"{type(error).__name__}: {error}")
