"""Who has the blocks: what is asked of them, and threads of this process as one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol

import numpy as np

from tfopt.linear_model.trees import tree_sum

__all__ = ["Executor", "ThreadExecutor"]


class Executor(Protocol):
    """Who has the blocks."""

    n_blocks: int

    def ask(
        self,
        function: Callable[[Any, Any], tuple[Any, Any]],
        order: Any,
        numbers: Sequence[int] | None = None,
    ) -> Any:
        """Give all blocks, or some, an order, and return the `tree_sum` of their answers."""

    def each(self, function: Callable[[Any, Any], Any], order: Any) -> Any:
        """Return what a function makes of each block and the order, joined along the last axis."""


class ThreadExecutor:
    """An executor whose threads take a block each.

    Parameters
    ----------
    blocks : sequence
    n_threads : int
    """

    def __init__(self, blocks: Sequence[Any], n_threads: int) -> None:
        self._blocks, self.n_blocks = list(blocks), len(blocks)
        self._pool = ThreadPoolExecutor(n_threads) if min(n_threads, self.n_blocks) > 1 else None

    def __enter__(self) -> ThreadExecutor:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def ask(
        self,
        function: Callable[[Any, Any], tuple[Any, Any]],
        order: Any,
        numbers: Sequence[int] | None = None,
    ) -> Any:
        """Give all blocks, or some, an order, and return the `tree_sum` of their answers."""
        numbers = range(self.n_blocks) if numbers is None else numbers
        asked = [self._blocks[number] for number in numbers]
        answers = []
        call = partial(_call, function, order)
        # another thread takes longer to hear of a small block than this one to visit it
        pairs = map(call, asked) if self._pool is None else self._pool.map(call, asked)
        for number, (block, answer) in zip(numbers, pairs, strict=True):
            self._blocks[number] = block
            answers.append(answer)
        return tree_sum(answers)

    def each(self, function: Callable[[Any, Any], Any], order: Any) -> np.ndarray:
        """Return what a function makes of each block and the order, joined along the last axis."""
        return np.concatenate([function(block, order) for block in self._blocks], axis=-1)


def _call(function: Callable[[Any, Any], Any], order: Any, block: Any) -> Any:
    return function(block, order)
