"""Executors of functions of blocks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from tfopt.core.worker_threads import WorkerThreads
from tfopt.linear_model._solver.reductions import tree_reduce

__all__ = ["Executor", "ThreadExecutor"]


class Executor(Protocol):
    """Holds the blocks and applies functions to them."""

    n_blocks: int

    def map_reduce(
        self,
        function: Callable[[Any, Any], tuple[Any, Any]],
        request: Any,
        numbers: Sequence[int] | None = None,
    ) -> Any:
        """Apply a function to all blocks, or some, and return the `tree_reduce` of their answers.

        The function returns the next state of the block, which replaces it, and the answer.
        """

    def map(self, function: Callable[[Any, Any], Any], request: Any) -> Any:
        """Return a function's values for all blocks, concatenated along the last axis."""


class ThreadExecutor(Executor):
    """An executor that distributes blocks over threads of this process.

    Parameters
    ----------
    blocks : sequence
    n_threads : int
    """

    def __init__(self, blocks: Sequence[Any], n_threads: int) -> None:
        self._blocks, self.n_blocks = list(blocks), len(blocks)
        self._threads = WorkerThreads(n_threads) if min(n_threads, self.n_blocks) > 1 else None

    def __enter__(self) -> ThreadExecutor:
        return self

    def __exit__(self, *error: object) -> None:
        if self._threads is not None:
            self._threads.__exit__(*error)

    def map_reduce(
        self,
        function: Callable[[Any, Any], tuple[Any, Any]],
        request: Any,
        numbers: Sequence[int] | None = None,
    ) -> Any:
        numbers = range(self.n_blocks) if numbers is None else numbers
        columns = [self._blocks[number] for number in numbers], itertools.repeat(request)
        answers = []
        # to hand a small block to another thread takes longer than to visit it
        apply = map if self._threads is None else self._threads.map
        pairs = apply(function, *columns)
        for number, (block, answer) in zip(numbers, pairs, strict=True):
            self._blocks[number] = block
            answers.append(answer)
        return tree_reduce(answers)

    def map(self, function: Callable[[Any, Any], Any], request: Any) -> np.ndarray:
        return np.concatenate([function(block, request) for block in self._blocks], axis=-1)
