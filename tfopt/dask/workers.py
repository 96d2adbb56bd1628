"""Blocks on their workers, and the functions that run there."""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from distributed import Status, Worker, get_worker

from tfopt.linear_model._solver.reductions import reduce_nodes

__all__ = [
    "VersionedBlock",
    "WorkerClosesError",
    "WorkerLostError",
    "apply_to_block",
    "feature_names_of",
    "run_round",
]


class WorkerLostError(Exception):
    """A block, or its current state, was lost with a worker.

    Parameters
    ----------
    message : str
    workers : iterable of str
        The addresses of the workers, as far as they are known.
    """

    def __init__(self, message: str, workers: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.workers = frozenset(workers)


class WorkerClosesError(WorkerLostError):
    """A worker closes, and Dask may still be copying its blocks to others."""


class VersionedBlock:
    """The states of a block after the last two rounds.

    A round does not change the state of a block but makes a new one, so a round can be repeated if
    its answer was lost.

    Parameters
    ----------
    initial : object
        The block before the first round.
    names : tuple of str, or None
        The names of the features, if they have any.
    """

    def __init__(self, initial: Any, names: tuple[str, ...] | None = None) -> None:
        self.initial = initial
        self.names = names
        self._attempt = 0
        self._versions: dict[int, Any] = {}

    def advance(
        self,
        attempt: int,
        number: int,
        function: Callable[[Any, Any], tuple[Any, Any]],
        request: Any,
    ) -> Any:
        """Compute a round, and return its answer.

        Parameters
        ----------
        attempt : int
            The number of the attempt at the fit; earlier ones are obsolete.
        number : int
            The number of the round, from 1.
        function : callable
            Returns the next block and the answer, given the block and the request.
        request : object

        Raises
        ------
        WorkerLostError
            If the state after the last round is not there.
        """
        block = self.version(attempt, number - 1)
        next_block, answer = function(block, request)
        if attempt < self._attempt:
            raise WorkerLostError("a later attempt has begun")
        self._attempt, self._versions = attempt, {number - 1: block, number: next_block}
        return answer

    def version(self, attempt: int, number: int) -> Any:
        """Return the state after a round of an attempt."""
        if number == 0:
            return self.initial
        if attempt != self._attempt or number not in self._versions:
            raise WorkerLostError("the block was lost in the meantime")
        return self._versions[number]


async def run_round(
    shares: dict[str, list[tuple[int, Any, int]]],
    attempt: int,
    function: Callable[[Any, Any], tuple[Any, Any]],
    request: Any,
    n_places: int,
    dask_worker: Worker,
) -> bytes:
    """Compute a round of a worker's blocks on its threads, and answer with partial sums.

    Parameters
    ----------
    shares : dict of list of tuple
        For each block of each worker its position in the sum, its key, and the number of the round.
    attempt, function, request
        See `VersionedBlock.advance`.
    n_places : int
        The number of blocks in the round.
    dask_worker : Worker
        Given by Dask.

    Returns
    -------
    bytes
        See `_answer`.
    """
    loop, threads = asyncio.get_running_loop(), dask_worker.executors["default"]
    if dask_worker.status in _CLOSING:  # its blocks are copied elsewhere, and would differ
        return _answer(_refuse)

    def advance(key: Any, number: int) -> Any:
        return _block(dask_worker, key).advance(attempt, number, function, request)

    share = shares[dask_worker.address]
    calls = [loop.run_in_executor(threads, advance, key, number) for _, key, number in share]
    # all end, also after an error: a fit that has failed must not write files any more
    answers = await asyncio.gather(*calls, return_exceptions=True)

    def partial_sums() -> dict[tuple[int, int], Any]:
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        nodes = {(0, place): answer for (place, *_), answer in zip(share, answers, strict=True)}
        return reduce_nodes(nodes, n_places)

    return await loop.run_in_executor(threads, _answer, partial_sums)


_CLOSING = Status.closing_gracefully, Status.closing, Status.closed


def _refuse() -> NoReturn:
    raise WorkerClosesError("the worker closes")


def feature_names_of(shares: dict[str, list[tuple[int, Any, int]]], dask_worker: Worker) -> bytes:
    """Answer with the feature names that occur in a worker's blocks, each with its first block.

    See `run_round`.
    """
    logging.getLogger("distributed.worker").addFilter(_is_no_round)

    def names() -> dict[tuple[str, ...] | None, int]:
        first_blocks: dict[tuple[str, ...] | None, int] = {}
        for number, key, _ in shares[dask_worker.address]:
            first_blocks.setdefault(_block(dask_worker, key).names, number)
        return first_blocks

    return _answer(names)


def _is_no_round(record: logging.LogRecord) -> bool:
    """Whether to log a record of Dask's: a line for each round would be thousands."""
    return record.args != (run_round.__name__,)


def _answer(function: Callable[[], Any]) -> bytes:
    """Return, pickled, whether a function succeeded, and what it returned or the error.

    Dask would log the error; and arrays that it has transferred may be misaligned.
    """
    try:
        return pickle.dumps((True, function()), protocol=5)
    except Exception as error:
        return pickle.dumps((False, error))


def _block(worker: Worker, key: Any) -> VersionedBlock:
    try:
        block: VersionedBlock = worker.data[key]
    except KeyError:
        raise WorkerLostError("the block is no longer on its worker") from None
    return block


def apply_to_block(
    key: str,
    address: str,
    attempt: int,
    number: int,
    function: Callable[[Any, Any], Any],
    request: Any,
) -> Any:
    """Return a function of the state of a block after a round, and of a request.

    Raises
    ------
    WorkerLostError
        If this is not the worker at the address, or it has no such state any more.
    """
    worker = get_worker()
    try:
        if worker.address != address:
            raise WorkerLostError(f"the worker at {address} is lost, and the block with it")
        return function(_block(worker, key).version(attempt, number), request)
    except WorkerLostError as error:
        raise WorkerLostError(str(error), [address]) from None
