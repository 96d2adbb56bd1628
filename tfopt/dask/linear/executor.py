"""An executor whose blocks are distributed over the workers of a Dask cluster."""

from __future__ import annotations

import asyncio
import itertools
import pickle
import uuid
from collections.abc import Awaitable, Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

import dask
from distributed import Client, Future, wait

from tfopt.dask.cluster import (
    POLL_INTERVAL,
    WORKER_LOST_ERRORS,
    assign_workers,
    check_scheduler,
    gathered,
    wait_for_workers,
    worker_threads,
)
from tfopt.dask.linear.workers import apply_to_block, load_versions, run_round
from tfopt.linear_model._blocks.execution import Executor, WorkerLostError, root_of

__all__ = ["DaskExecutor"]


class DaskExecutor(Executor):
    """An executor that distributes blocks over the workers of a Dask cluster.

    Tasks load the blocks, and Dask keeps them. A round is one message, which the scheduler passes
    on to the workers with blocks; one task for each block would take several times as long.
    Neighbours in the tree of sums are on one worker if possible, to transfer few blocks.

    Parameters
    ----------
    client : distributed.Client
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self._name = f"tfopt-{uuid.uuid4().hex}"
        self._tasks = itertools.count()
        self._sources: Sequence[tuple[Any, ...]] = ()
        self._workers: list[str] = []
        self._blocks: list[Future] = []
        self._attempt, self._rounds = 0, [0]

    def __exit__(self, *error: object) -> None:
        if any(error):  # ends tasks that wait for them, too
            self.client.cancel(self._blocks, force=True)
        for future in self._blocks:
            future.release()
        self._sources, self._blocks, self._workers, self.n_blocks = (), [], [], 0

    def persist(self, function: Callable[..., Any], sources: Sequence[tuple[Any, ...]]) -> None:
        """Hold the results of a function as blocks, each computed by the worker that holds it.

        If the sources are those of the last call, blocks that a worker still has return to their
        initial states, and only the others are made again.

        Parameters
        ----------
        function, sources
            See `Executor.persist`; sources may contain delayed objects and futures.

        Raises
        ------
        WorkerLostError, ConnectionError
            See `map_reduce`.
        TimeoutError
            If there are no workers.
        """
        if sources is not self._sources:
            self.__exit__()
            self._sources, self.n_blocks = sources, len(sources)
        threads = wait_for_workers(self.client)
        assigned = assign_workers(threads, self.n_blocks)
        holders = self._holders() if self._blocks else {}
        lost = [block for block in self._blocks if block.key not in holders]
        if lost:  # their tasks would wait for their workers for ever
            self.client.cancel(lost, force=True)
        kept = {k: block for k, block in enumerate(self._blocks) if block.key in holders}
        self._blocks, self._workers = [], []
        for number, source in enumerate(sources):
            block = kept.get(number)
            if block is None:
                made = dask.delayed(load_versions)(
                    function, number, *source, dask_key_name=self._new_key()
                )
                # one by one, because `workers` applies to all tasks of a call: so a file is read
                # where its block will be. Other workers are allowed, or a task that several blocks
                # depend on would wait for ever for a lost worker
                block = self.client.compute(
                    made, workers=[assigned[number]], allow_other_workers=True
                )
            self._blocks.append(block)
            self._workers.append(holders.get(block.key, assigned[number]))
        self._attempt += 1
        self._rounds = [0] * self.n_blocks
        check_scheduler(self.client)
        self._wait(lambda: wait(self._blocks))
        self._results([future for future in self._blocks if future.status == "error"][:1])
        holders = self._holders()
        if any(block.key not in holders for block in self._blocks):
            raise WorkerLostError("a block is on no worker")
        self._workers = [holders[block.key] for block in self._blocks]

    def map_reduce(
        self,
        function: Callable[[Any, Any], tuple[Any, Any]],
        request: Any,
        numbers: Sequence[int] | None = None,
    ) -> Any:
        """Apply a function to all blocks or some, and return the `tree_reduce` of the results.

        Raises
        ------
        WorkerLostError
            If a block was lost or moved with its worker: `persist` must be called again.
        ConnectionError
            If the scheduler was lost.
        """
        check_scheduler(self.client)
        numbers = range(self.n_blocks) if numbers is None else numbers
        shares: dict[str, list[tuple[int, Any, int]]] = {}
        for place, number in enumerate(numbers):
            self._rounds[number] += 1
            block = place, self._blocks[number].key, self._rounds[number]
            shares.setdefault(self._workers[number], []).append(block)
        call = shares, self._attempt, function, request, len(numbers)
        answers = self._wait(
            lambda: self.client.run(run_round, *call, workers=list(shares), on_error="return")
        )
        try:
            return root_of(_partial_sums(answers), len(numbers))
        finally:
            del answers  # a traceback would keep the whole fit alive

    def futures(self, function: Callable[[Any, Any], Any], request: Any) -> list[Future]:
        """Return futures of a function of each block and the request.

        Raises
        ------
        WorkerLostError, ConnectionError
            See `map_reduce`.
        """
        check_scheduler(self.client)
        futures = [
            self._submit(number, worker, function, request)
            for number, worker in enumerate(self._workers)
        ]
        self._wait(lambda: wait(futures))
        self._results([future for future in futures if future.status != "finished"])
        # the results outlive the fit: bound to a worker that is lost, they would wait for it,
        # while any other worker can say that the block is gone
        anywhere: dict[str, list[str]] = {future.key: [] for future in futures}
        self._wait(lambda: self.client.scheduler.set_restrictions(worker=anywhere))
        self._check_workers()  # those that were lost until then
        return futures

    def _submit(
        self, number: int, worker: str, function: Callable[[Any, Any], Any], request: Any
    ) -> Future:
        """Start a task with a block on its worker.

        The task gets only the key of the block: Dask would keep what a task depends on, and read
        all data again to repeat it.
        """
        return self.client.submit(
            apply_to_block,
            str(self._blocks[number].key),
            worker,
            self._attempt,
            self._rounds[number],
            function,
            request,
            key=self._new_key(),
            workers=[worker],
        )

    def _new_key(self) -> str:
        return f"{self._name}-{next(self._tasks)}"

    def _holders(self) -> dict[str, str]:
        """Return a worker that has it, for each block that is on one, by the block's key."""
        found = self._wait(lambda: self.client.who_has(self._blocks), of_blocks=False)
        threads = worker_threads(self.client)
        holders = {}
        for block in self._blocks:
            there = [worker for worker in found.get(block.key, ()) if worker in threads]
            if there:
                holders[block.key] = there[0]
        return holders

    def _results(self, futures: list[Future]) -> list[Any]:
        results: list[Any] = self._wait(lambda: gathered(self.client, futures, True))
        return results

    def _wait(self, call: Callable[[], Awaitable[Any]], of_blocks: bool = True) -> Any:
        """Return what a call of Dask returns; raise an error if a worker with blocks is lost.

        Dask would wait for ever for what only a lost worker had, and for ten seconds to reach a
        lost scheduler, of which it then says no more than OSError.
        """

        # A future would not do: Ctrl-C can leave its lock, which Python itself takes, taken, and
        # then Dask's loop waits for ever
        answers: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        tasks: list[asyncio.Task[None]] = []
        loop = self.client.loop.asyncio_loop

        async def run() -> None:  # on the client's loop, where its methods are asynchronous
            try:
                answers.put((await call(), None))
            except BaseException as error:
                answers.put((None, error))

        loop.call_soon_threadsafe(lambda: tasks.append(loop.create_task(run())))
        try:
            while True:
                try:
                    value, error = answers.get(timeout=POLL_INTERVAL)
                    break
                except Empty:
                    if of_blocks:
                        self._check_workers()
                    else:
                        check_scheduler(self.client)
        finally:
            loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
        try:
            if error is not None:
                raise error
            return value
        except WORKER_LOST_ERRORS as lost:
            raise _as_worker_lost(lost) from None
        except OSError:
            check_scheduler(self.client)
            raise
        finally:
            del error  # it refers to this frame

    def _check_workers(self) -> None:
        """Raise an error if a worker with blocks is lost."""
        gone = {*self._workers} - {*worker_threads(self.client)}
        if gone:
            raise WorkerLostError(f"workers have left the cluster: {', '.join(sorted(gone))}")


def _partial_sums(answers: dict[str, Any]) -> list[Any]:
    """Return the partial sums that workers have answered with, or raise the error of one.

    If a worker is lost, that is the error: others may not be due to the data.
    """
    found: list[Any] = []
    errors: list[Exception] = []
    for answer in answers.values():
        if isinstance(answer, Exception):
            raise _as_worker_lost(answer)
        is_answer, value = pickle.loads(answer)
        (found if is_answer else errors).append(value)
    errors.sort(key=lambda error: not isinstance(error, WorkerLostError))
    try:
        if errors:
            raise errors[0]
    finally:
        del errors  # a traceback would keep the whole fit alive
    return found


def _as_worker_lost(error: BaseException) -> WorkerLostError:
    """Convert an error of Dask that a lost worker caused.

    The traceback is dropped: it forms a reference cycle that would keep the data of the fit alive
    until the next garbage collection.
    """
    error.__traceback__ = None
    return WorkerLostError(f"{type(error).__name__}: {error}")
