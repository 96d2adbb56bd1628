"""A thread pool that shuts down even if the thread that waits for it is interrupted.

Futures, and the start of a `threading.Thread`, take locks in Python code, where Ctrl-C can leave
them taken: other threads, and the exit of the process, then wait for ever. The queues here are
compiled, and take no such locks.
"""

from __future__ import annotations

import contextvars
from _thread import start_new_thread
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import Any, Self, TypeAlias

__all__ = ["Answer", "WorkerThreads"]

#: A function in its context, with its arguments, and where its answer is put; or None: the end.
_Job: TypeAlias = (
    tuple[contextvars.Context, Callable[..., Any], tuple[Any, ...], "SimpleQueue[Any]"] | None
)


class Answer:
    """The pending result of a call in a thread."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

    def result(self) -> Any:
        """Wait for the function; return its result, or raise its exception once."""
        value, error = self._queue.get()
        if error is None:
            return value
        try:
            raise error
        finally:
            del error  # it refers to this frame


class WorkerThreads:
    """Threads of a `with` block, which ends after its threads.

    When the block ends, functions that no thread has begun are not called. If Ctrl-C interrupts the
    wait for the threads, they end by themselves.

    Parameters
    ----------
    n_threads : int
        The largest number of threads; each is started when it is needed.
    """

    def __init__(self, n_threads: int) -> None:
        self._n_threads, self._n_started = n_threads, 0
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._ended: SimpleQueue[None] = SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()
        while self._n_started:
            self._ended.get()
            self._n_started -= 1

    def __del__(self) -> None:
        self._end()  # Ctrl-C may come before the first line of `__exit__`

    def _end(self) -> None:
        try:
            while True:
                self._jobs.get_nowait()
        except Empty:
            pass
        for _ in range(self._n_threads):  # one may have been started and not been counted
            self._jobs.put(None)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Answer:
        """Call a function in a thread, in the current context: with NumPy's error handling."""
        if self._n_started < self._n_threads:
            start_new_thread(_work, (self._jobs, self._ended))
            self._n_started += 1
        answer = Answer()
        self._jobs.put((contextvars.copy_context(), function, arguments, answer._queue))
        return answer

    def map(self, function: Callable[..., Any], *columns: Iterable[Any]) -> list[Any]:
        """Call the function for each row of columns, up to the end of the shortest, as `map` does.

        If several raise, the error of the first row is raised.
        """
        answers = [self.submit(function, *row) for row in zip(*columns, strict=False)]
        return [answer.result() for answer in answers]


def _work(jobs: SimpleQueue[_Job], ended: SimpleQueue[None]) -> None:
    """Do jobs until one is None."""
    while (job := jobs.get()) is not None:
        context, function, arguments, answer = job
        try:
            answer.put((context.run(function, *arguments), None))
        except BaseException as error:
            answer.put((None, error))
        del job, context, function, arguments, answer  # they may be large, and the next one late
    ended.put(None)
