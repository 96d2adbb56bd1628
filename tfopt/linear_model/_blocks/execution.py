"""Executors, which hold blocks of samples in threads or processes and apply functions to them."""

from __future__ import annotations

import abc
import itertools
import multiprocessing
import pickle
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any, Self, TypeVar

from tfopt.core.worker_threads import WorkerThreads
from tfopt.errors import InvalidArgumentError
from tfopt.linear_model._fit.reductions import Nodes, reduce_nodes

__all__ = [
    "Executor",
    "BlockHolder",
    "ProcessExecutor",
    "RemoteExecutor",
    "ThreadExecutor",
    "WorkerLostError",
    "answered",
    "recovered",
    "root_of",
]

#: The number of losses of workers, without progress in between, after which an attempt fails.
MAX_WORKER_LOSSES = 5
_T = TypeVar("_T")


class WorkerLostError(RuntimeError):
    """A block or its current state was lost with a worker."""


def recovered(attempt: Callable[[], _T], reached: Callable[[], int] = lambda: 0) -> _T:
    """Return the result of an attempt, which is repeated if workers are lost.

    Parameters
    ----------
    attempt : callable
        It must begin with `Executor.persist`.
    reached : callable
        Returns a number that grows with the progress of attempts.

    Raises
    ------
    WorkerLostError
        If workers are lost `MAX_WORKER_LOSSES` times without progress.
    """
    n_losses, furthest = 0, reached()
    while True:
        try:
            return attempt()
        except WorkerLostError as error:
            n_losses = 1 if reached() > furthest else n_losses + 1
            furthest = max(furthest, reached())
            if n_losses == MAX_WORKER_LOSSES:
                raise WorkerLostError(
                    f"workers were lost {n_losses} times in or before epoch {furthest + 1}: {error}"
                ) from error


class Executor(abc.ABC):
    """Holds blocks, applies functions to them in place, and adds up the answers.

    The answers are added in a binary tree over the numbers of the blocks, so the sum has the same
    bits for all executors. An engine defines `persist` and `map_reduce`; functions, requests and
    answers must be picklable.

    Attributes
    ----------
    n_blocks : int
    """

    n_blocks: int = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Forget the blocks."""
        self.n_blocks = 0

    @abc.abstractmethod
    def persist(self, function: Callable[..., Any], sources: Sequence[tuple[Any, ...]]) -> None:
        """Hold the results of a function as blocks, each computed where it stays.

        Blocks that were held before are forgotten.

        Parameters
        ----------
        function : callable
            Called with the number of each block and its source.
        sources : sequence of tuple
            Further arguments for each block, or the engine's handles of them.

        Raises
        ------
        Exception
            The error of the function; if it fails for several blocks, that of the first one.
        """

    @abc.abstractmethod
    def map_reduce(
        self,
        function: Callable[[Any, Any], tuple[Any, Any]],
        request: Any,
        numbers: Sequence[int] | None = None,
    ) -> Any:
        """Apply a function to all blocks or some, and return the `tree_reduce` of their answers.

        Parameters
        ----------
        function : callable
            Takes a block and the request; returns the next state, which replaces the block, and an
            answer.
        request : object
        numbers : sequence of int, optional
            The numbers of the blocks; all by default.
        """

    def map(self, function: Callable[[Any, Any], Any], request: Any) -> list[Any]:
        """Return the results of a function of each block and a request, in the blocks' order."""
        values: list[Any] = self.map_reduce(_Listed(function), request)
        return values


@dataclass(frozen=True)
class _Listed:
    """A function for `map_reduce`; the sum of its answers is the list of results."""

    function: Callable[[Any, Any], Any]

    @property
    def __name__(self) -> str:
        return self.function.__name__

    def __call__(self, block: Any, request: Any) -> tuple[Any, list[Any]]:
        return block, [self.function(block, request)]


class BlockHolder:
    """The blocks that a process holds.

    Parameters
    ----------
    threads : WorkerThreads, optional
        Threads that apply functions to several blocks at once.
    """

    def __init__(self, threads: WorkerThreads | None = None) -> None:
        self._blocks: dict[int, Any] = {}
        # handing a small block to another thread takes longer than a visit of it
        self._apply: Callable[..., Any] = map if threads is None else threads.map

    def load(self, sources: Mapping[int, tuple[Any, ...]], function: Callable[..., Any]) -> None:
        """Make blocks from sources, by their numbers."""
        self._blocks = {}  # before others need memory
        self._blocks = {number: function(number, *source) for number, source in sources.items()}

    def advance(
        self,
        places: Sequence[tuple[int, int]],
        function: Callable[[Any, Any], tuple[Any, Any]],
        request: Any,
        n_places: int,
    ) -> Nodes:
        """Replace blocks with their next states, and return partial sums of the answers.

        Parameters
        ----------
        places : sequence of (int, int)
            The position of each block in the sum, and its number.
        function, request
            See `Executor.map_reduce`.
        n_places : int
            The number of positions, including those of other processes.
        """
        blocks = [self._blocks[number] for _, number in places]
        answers = {}
        pairs = self._apply(function, blocks, itertools.repeat(request))
        for (place, number), (block, answer) in zip(places, pairs, strict=True):
            self._blocks[number] = block
            answers[0, place] = answer
        return reduce_nodes(answers, n_places)

    def answer(self, method: str, share: Any, *arguments: Any) -> bytes:
        """Call a method, and return its result or error as `answered` does."""
        return answered(lambda: getattr(self, method)(share, *arguments))


def answered(function: Callable[[], Any]) -> bytes:
    """Call a function; return, pickled, whether it succeeded, and its result or error.

    An error that cannot be pickled or loaded again is replaced by one with its text.
    """
    try:
        return pickle.dumps((True, function()), protocol=5)
    except Exception as error:
        try:
            answer = pickle.dumps((False, error))
            pickle.loads(answer)
        except Exception:
            answer = pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))
        return answer


def root_of(parts: Sequence[Nodes], n_places: int) -> Any:
    """Return the sum of all answers, given partial sums that cover them."""
    nodes = {node: value for part in parts for node, value in part.items()}
    (root,) = reduce_nodes(nodes, n_places).values()
    return root


class ThreadExecutor(Executor):
    """An executor with blocks and threads in this process.

    Parameters
    ----------
    n_threads : int
    """

    def __init__(self, n_threads: int = 1) -> None:
        self._threads = WorkerThreads(n_threads) if n_threads > 1 else None
        self._holder = BlockHolder(self._threads)

    def __exit__(self, *error: object) -> None:
        self._holder = BlockHolder(self._threads)
        if self._threads is not None:
            self._threads.__exit__(*error)

    def persist(self, function: Callable[..., Any], sources: Sequence[tuple[Any, ...]]) -> None:
        self._holder.load(dict(enumerate(sources)), function)
        self.n_blocks = len(sources)

    def map_reduce(
        self,
        function: Callable[[Any, Any], tuple[Any, Any]],
        request: Any,
        numbers: Sequence[int] | None = None,
    ) -> Any:
        numbers = range(self.n_blocks) if numbers is None else numbers
        places = [*enumerate(numbers)]
        return root_of([self._holder.advance(places, function, request, len(places))], len(places))


class RemoteExecutor(Executor):
    """An executor with blocks in several processes, each with a `BlockHolder`.

    Neighbouring blocks are in one process, which sends sums of their answers. An engine defines
    `n_workers` and `ask`.

    Attributes
    ----------
    n_workers : int
    """

    n_workers: int

    def _set_workers(self, n_workers: int) -> None:
        if not isinstance(n_workers, Integral) or n_workers < 1:
            raise InvalidArgumentError(
                f"n_workers must be an integer of at least 1, not {n_workers!r}"
            )
        self.n_workers = n_workers

    @abc.abstractmethod
    def ask(self, method: str, shares: Sequence[Any], arguments: tuple[Any, ...]) -> list[bytes]:
        """Call `BlockHolder.answer` of each worker with its share; return the pickled answers."""

    def persist(self, function: Callable[..., Any], sources: Sequence[tuple[Any, ...]]) -> None:
        self.n_blocks = len(sources)
        shares: list[dict[int, Any]] = [{} for _ in range(self.n_workers)]
        for number, source in enumerate(sources):
            shares[self._worker_of(number)][number] = source
        self._answers("load", shares, function)

    def map_reduce(
        self,
        function: Callable[[Any, Any], tuple[Any, Any]],
        request: Any,
        numbers: Sequence[int] | None = None,
    ) -> Any:
        numbers = range(self.n_blocks) if numbers is None else numbers
        shares: list[list[tuple[int, int]]] = [[] for _ in range(self.n_workers)]
        for place, number in enumerate(numbers):
            shares[self._worker_of(number)].append((place, number))
        parts = self._answers("advance", shares, function, request, len(numbers))
        return root_of(parts, len(numbers))

    def _worker_of(self, number: int) -> int:
        return number * self.n_workers // self.n_blocks

    def _answers(self, method: str, shares: Sequence[Any], *arguments: Any) -> list[Any]:
        answers = [pickle.loads(answer) for answer in self.ask(method, shares, arguments)]
        for is_answer, error in answers:
            if not is_answer:
                raise error
        return [answer for _, answer in answers]


class ProcessExecutor(RemoteExecutor):
    """An executor with blocks in processes that it starts on this machine.

    As always with `multiprocessing`, a script must start processes below
    ``if __name__ == "__main__":``. If a process dies, all end, and a RuntimeError is raised.

    Parameters
    ----------
    n_workers : int
    """

    def __init__(self, n_workers: int) -> None:
        self._set_workers(n_workers)
        self._processes: list[Any] = []
        self._pipes: list[Any] = []
        context = multiprocessing.get_context("spawn")  # a fork would copy locks of threads
        for _ in range(n_workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._pipes.append(ours)

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join()
        for pipe in self._pipes:
            pipe.close()
        self._processes, self._pipes = [], []

    def ask(self, method: str, shares: Sequence[Any], arguments: tuple[Any, ...]) -> list[bytes]:
        if not self._pipes:
            raise RuntimeError("the processes of this executor have ended: make another one")
        common = pickle.dumps(arguments, protocol=5)
        messages = [pickle.dumps((method, share), protocol=5) for share in shares]
        try:
            for pipe, message in zip(self._pipes, messages, strict=True):
                pipe.send_bytes(message)
                pipe.send_bytes(common)
            return [pipe.recv_bytes() for pipe in self._pipes]
        except BaseException as error:
            self.__exit__()  # pending answers would be mistaken for those to the next request
            if isinstance(error, (EOFError, ConnectionError)):
                raise WorkerLostError(
                    "a process of this executor died, and its blocks with it: make another executor"
                ) from error
            raise


def _serve(pipe: Any) -> None:
    """Answer requests until the other side ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it, too, and ends this process
    holder = BlockHolder()
    while True:
        try:
            message, common = pipe.recv_bytes(), pipe.recv_bytes()
        except EOFError:
            return
        pipe.send_bytes(answered(partial(_called, holder, message, common)))


def _called(holder: BlockHolder, message: bytes, common: bytes) -> Any:
    method, share = pickle.loads(message)
    return getattr(holder, method)(share, *pickle.loads(common))
