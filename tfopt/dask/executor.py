"""An executor whose blocks are distributed over the workers of a Dask cluster."""

from __future__ import annotations

import asyncio
import itertools
import pickle
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Sequence
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias, TypeVar

import dask
from distributed import Client, Future, wait

from tfopt.dask.block_input import load_block
from tfopt.dask.cluster import (
    POLL_INTERVAL,
    WORKER_LOST_ERRORS,
    assign_workers,
    check_scheduler,
    gathered,
    wait_for_workers,
    worker_threads,
)
from tfopt.dask.workers import (
    WorkerClosesError,
    WorkerLostError,
    apply_to_block,
    feature_names_of,
    run_round,
)
from tfopt.linear_model._solver.reductions import reduce_nodes

__all__ = ["DaskExecutor", "BlockSource"]

#: X, y, weights and dual variables of a block, each perhaps a delayed object or a future.
BlockSource: TypeAlias = tuple[Any, Any, Any, Any]
_T = TypeVar("_T")


class DaskExecutor:
    """An executor that distributes blocks over the workers of a Dask cluster.

    Tasks load the blocks, and Dask keeps them. A round is one message, which the scheduler passes
    on to the workers that have blocks: a task for each would take several times as long. Neighbours
    in the tree of sums are on one worker if possible, so that mostly sums are transferred.

    Parameters
    ----------
    client : distributed.Client
    sources : sequence of BlockSource
    has_classes : bool
        Whether labels are classes.
    """

    def __init__(self, client: Client, sources: Sequence[BlockSource], has_classes: bool) -> None:
        self.client, self.n_blocks = client, len(sources)
        self._name = f"tfopt-{uuid.uuid4().hex}"
        self._tasks = itertools.count()
        self._sources, self._has_classes = sources, has_classes
        self._workers = [""] * self.n_blocks
        self._blocks: list[Future] = []
        self._attempt, self._rounds = 0, [0] * self.n_blocks
        self._calls: list[Any] = [None] * self.n_blocks  # function and request of the last rounds

    def __enter__(self) -> DaskExecutor:
        self.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:  # ends tasks that wait for them, too
            self.client.cancel(self._blocks, force=True)
        for future in self._blocks:
            future.release()
        self._blocks = []

    def begin(self) -> None:
        """Start a new attempt from the initial blocks; those of lost workers are loaded again."""
        threads = wait_for_workers(self.client)
        workers = assign_workers(threads, self.n_blocks)
        lost = [number for number, worker in enumerate(self._workers) if worker not in threads]
        # they would wait for their workers for ever
        self.client.cancel([self._blocks[number] for number in lost if self._blocks], force=True)
        blocks = dict(enumerate(self._blocks))
        for number in lost:
            self._workers[number] = workers[number]
            read = dask.delayed(load_block)(
                number, *self._sources[number], self._has_classes, dask_key_name=self._new_key()
            )
            # one by one, because `workers` applies to all tasks of a call: so a file is read where
            # its block will be. Other workers are allowed, or a task that several blocks depend on
            # would wait for ever for a lost worker
            blocks[number] = self.client.compute(
                read, workers=[workers[number]], allow_other_workers=True
            )
        self._blocks = [blocks[number] for number in range(self.n_blocks)]
        self._attempt += 1
        self._rounds = [0] * self.n_blocks
        self._calls = [None] * self.n_blocks

    def names(self) -> dict[tuple[str, ...] | None, int]:
        """Return the feature names that occur, each with its first block.

        Waits until all blocks are loaded; if several are refused, the first one's error is raised.

        Raises
        ------
        WorkerLostError, ConnectionError
            See `map_reduce`.
        """
        check_scheduler(self.client)
        self._wait(lambda: wait(self._blocks))
        self._results([future for future in self._blocks if future.status == "error"][:1])
        self._find_blocks()
        first_blocks: dict[tuple[str, ...] | None, int] = {}
        for part in self._run(feature_names_of, range(self.n_blocks)):
            for names, number in part.items():
                first_blocks[names] = min(number, first_blocks.get(names, number))
        return first_blocks

    def map_reduce(
        self,
        function: Callable[[Any, Any], tuple[Any, Any]],
        request: Any,
        numbers: Sequence[int] | None = None,
    ) -> Any:
        """Apply a function to all blocks, or some, and return the `tree_reduce` of their answers.

        If a worker is lost, or closes, whose blocks Dask has on others, too, the round is repeated.

        Raises
        ------
        WorkerLostError
            If the current state of a block was lost with a worker.
        ConnectionError
            If the scheduler was lost.
        """
        check_scheduler(self.client)
        numbers = range(self.n_blocks) if numbers is None else numbers
        call = function, request
        partial_sums = self._repeated(numbers, call)
        for number in numbers:
            self._rounds[number] += 1
            self._calls[number] = call
        (root,) = reduce_nodes(
            {k: v for nodes in partial_sums for k, v in nodes.items()}, len(numbers)
        ).values()
        return root

    def map(self, function: Callable[[Any, Any], Any], request: Any) -> list[Future]:
        """Return futures of a function of each block and the request.

        Raises
        ------
        WorkerLostError, ConnectionError
            See `map_reduce`.
        """
        check_scheduler(self.client)
        made: dict[tuple[int, str], Future] = {}

        def attempt() -> list[Future]:
            for place in enumerate(self._workers):
                if place not in made:
                    made[place] = self._submit(*place, function, request)
            futures = {place: made[place] for place in enumerate(self._workers)}
            self._wait(lambda: wait([*futures.values()]))
            failed = [place for place in futures if futures[place].status != "finished"]
            self._results([made.pop(place) for place in failed])
            # the results outlive the fit: bound to a worker that is lost, they would wait for it,
            # while any other worker can say that the block is gone
            anywhere: dict[str, list[str]] = {future.key: [] for future in futures.values()}
            self._wait(lambda: self.client.scheduler.set_restrictions(worker=anywhere))
            self._check_workers()  # those that were lost until then
            return [*futures.values()]

        return self._with_holders(attempt)

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

    def _repeated(self, numbers: Sequence[int], call: tuple[Any, Any]) -> list[Any]:
        """Return the partial sums of a round, as soon as workers answer that have the blocks."""
        return self._with_holders(lambda: self._round(numbers, call, 1))

    def _with_holders(self, attempt: Callable[[], _T]) -> _T:
        """Return what an attempt returns, which is repeated while blocks move to other workers."""
        lost: set[str] = set()
        while True:
            try:
                return attempt()
            except WorkerLostError as error:
                lost |= error.workers
                moved = self._find_blocks(lost)
                if not moved:
                    if not isinstance(error, WorkerClosesError):
                        raise
                    time.sleep(POLL_INTERVAL)  # until they are copied, or cannot be, or are lost
            # a copy may have been made during the last round, which is taken again for it
            for last in {id(self._calls[k]): self._calls[k] for k in moved}.values():
                if last is not None:
                    self._round([k for k in moved if self._calls[k] is last], last, 0)

    def _round(self, numbers: Sequence[int], call: tuple[Any, Any], ahead: int) -> list[Any]:
        """Return the partial sums of a round of blocks: of their last one, or the one after it."""
        return self._run(run_round, numbers, self._attempt, *call, len(numbers), ahead=ahead)

    def _find_blocks(self, lost: Collection[str] = ()) -> list[int]:
        """Find out which workers have the blocks, and return which blocks others have now.

        Raises
        ------
        WorkerLostError
            If no worker has a block.
        """
        workers = self._wait(lambda: self.client.who_has(self._blocks), of_blocks=False)
        moved = []
        for number, block in enumerate(self._blocks):
            holders = workers.get(block.key, ())
            if not holders:
                raise WorkerLostError("a block is on no worker") from None
            others = [worker for worker in holders if worker not in lost]
            if self._workers[number] not in others and others:
                self._workers[number] = others[0]
                moved.append(number)
        return moved

    def _run(
        self,
        function: Callable[..., Any],
        numbers: Sequence[int],
        *arguments: Any,
        ahead: int = 0,
    ) -> list[Any]:
        """Return the answers of workers to a function of workers.py, of some blocks."""
        shares: dict[str, list[tuple[int, Any, int]]] = {}
        for place, number in enumerate(numbers):
            block = place, self._blocks[number].key, self._rounds[number] + ahead
            shares.setdefault(self._workers[number], []).append(block)
        answers = self._wait(
            lambda: self.client.run(
                function, shares, *arguments, workers=list(shares), on_error="return"
            )
        )
        found, lost, errors = _sorted(answers)
        if lost:
            closes = all(type(error) is WorkerClosesError for error in lost.values())
            kind = WorkerClosesError if closes else WorkerLostError
            raise kind("; ".join(map(str, lost.values())), lost)
        try:
            if errors:
                raise errors[0]
        finally:
            del answers, errors  # a traceback would keep the whole fit alive
        return found

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
            message = f"workers have left the cluster: {', '.join(sorted(gone))}"
            raise WorkerLostError(message, gone)


def _sorted(answers: dict[str, Any]) -> tuple[list[Any], dict[str, WorkerLostError], list[Any]]:
    """Return answers of workers, the errors of those that are lost, and the errors of others."""
    found, lost, errors = [], {}, []
    for worker, answer in answers.items():
        if isinstance(answer, Exception):
            lost[worker] = _as_worker_lost(answer)
            continue
        is_answer, value = pickle.loads(answer)
        if is_answer:
            found.append(value)
        elif isinstance(value, WorkerLostError):
            lost[worker] = value
        else:
            errors.append(value)
    return found, lost, errors


def _as_worker_lost(error: BaseException) -> WorkerLostError:
    """Convert an error of Dask that a lost worker caused.

    The traceback is dropped: it forms a reference cycle that would keep the data of the fit alive
    until the next garbage collection.
    """
    error.__traceback__ = None
    return WorkerLostError(f"{type(error).__name__}: {error}")
