"""Blocks on their workers, and the functions that run there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from distributed import Worker, get_worker

from tfopt.linear_model._blocks.execution import WorkerLostError, answered
from tfopt.linear_model._fit.reductions import Nodes, reduce_nodes

__all__ = [
    "VersionedBlock",
    "apply_to_block",
    "load_versions",
    "run_round",
]


class VersionedBlock:
    """A block before the first round, and its state after the last one.

    Dask moves and copies blocks, and loads them again, without a word: then the last round of the
    state tells whether it is the one that the next round needs.

    Parameters
    ----------
    initial : object
        The block before the first round.
    """

    def __init__(self, initial: Any) -> None:
        self.initial = initial
        self._at, self._state = (0, 0), initial

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
        state, answer = function(self.after(attempt, number - 1), request)
        if (attempt, number) < self._at:
            raise WorkerLostError("a later attempt has begun")
        self._at, self._state = (attempt, number), state
        return answer

    def after(self, attempt: int, number: int) -> Any:
        """Return the state after a round of an attempt."""
        if number == 0:
            return self.initial
        if (attempt, number) != self._at:
            raise WorkerLostError("the block was lost in the meantime")
        return self._state


def load_versions(function: Callable[..., Any], number: int, *source: Any) -> VersionedBlock:
    """Return the value of a function as a block before the first round."""
    logging.getLogger("distributed.worker").addFilter(_is_no_round)
    return VersionedBlock(function(number, *source))


def _is_no_round(record: logging.LogRecord) -> bool:
    """Whether to log a record of Dask's: a line for each round would be thousands."""
    return record.args != (run_round.__name__,)


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
        See `answered`: Dask would log an error, and arrays that it transfers may be misaligned.
    """
    loop, threads = asyncio.get_running_loop(), dask_worker.executors["default"]

    def advance(key: Any, number: int) -> Any:
        return _block(dask_worker, key).advance(attempt, number, function, request)

    share = shares[dask_worker.address]
    calls = [loop.run_in_executor(threads, advance, key, number) for _, key, number in share]
    # all end, also after an error: a fit that has failed must not write files any more
    answers = await asyncio.gather(*calls, return_exceptions=True)

    def partial_sums() -> Nodes:
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        nodes = {(0, place): answer for (place, *_), answer in zip(share, answers, strict=True)}
        return reduce_nodes(nodes, n_places)

    return await loop.run_in_executor(threads, answered, partial_sums)


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
    if worker.address != address:
        raise WorkerLostError(f"the worker at {address} is lost, and the block with it")
    return function(_block(worker, key).after(attempt, number), request)
