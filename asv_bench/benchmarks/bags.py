"""Pooled lookups of an embedding table, their gradient and the step, relative to rivals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .common import best_times, filled, installed, public

ROWS, WIDTH, BAGS, IDS = 1_000_000, 64, 1024, 20_000
RATE = 0.01


class _Batch:
    """The means of 1024 bags of 20 000 ids of a table of a million rows, and their gradient."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        self.ids = np.minimum(random.zipf(1.2, IDS) * 7919 % ROWS, ROWS - 1)
        self.lengths = random.multinomial(IDS, np.full(BAGS, 1 / BAGS))
        self.offsets = np.append(0, np.cumsum(self.lengths)[:-1])
        self.table, self.g = filled((ROWS, WIDTH)), filled((BAGS, WIDTH), seed=1)
        self.step = public("optimizers.RowwiseAdagrad")(RATE).step
        self.slices = public("indexed_slices.IndexedSlices")

    def bags(self) -> tuple[Callable[[], Any], ...]:
        """Return the lookup alone, and with the gradient and the step."""
        make = public("bags.Bags")

        def look_up() -> Any:
            bags = make(self.ids, self.offsets, ROWS, "mean")
            bags.lookup(self.table)
            return bags

        return look_up, lambda: self.step(self.table, look_up().gradient(self.g))

    def numpy(self) -> tuple[Callable[[], Any], ...]:
        """Return the same in NumPy, for bags of which none is empty, and the step."""
        lengths = self.lengths[:, None].astype(np.float32)

        def look_up() -> None:
            np.add.reduceat(self.table[self.ids], self.offsets) / lengths

        def step() -> None:
            look_up()
            rows = np.repeat(self.g / lengths, self.lengths, axis=0)
            self.step(self.table, self.slices(rows, self.ids))

        return look_up, step

    def sparse_rows(self) -> tuple[Callable[[], Any], ...]:
        """Return the same as products of a sparse matrix."""
        from scipy.sparse import csr_array

        make = public("sparse_rows.SparseRows")
        ends = np.append(self.offsets, IDS)
        weights = np.repeat(1 / self.lengths, self.lengths).astype(np.float32)

        def look_up() -> Any:
            rows = make(csr_array((weights, self.ids, ends), (BAGS, ROWS)))
            rows.dot(self.table)
            return rows

        return look_up, lambda: self.step(self.table, look_up().gradient(self.g))

    def torch(self) -> tuple[Callable[[], Any], ...]:
        """Return those of EmbeddingBag, with sparse gradients and SparseAdam."""
        torch = installed("torch")
        bag = torch.nn.EmbeddingBag(ROWS, WIDTH, mode="mean", sparse=True)
        optimizer = torch.optim.SparseAdam(bag.parameters(), RATE)
        ids, offsets, g = map(torch.from_numpy, (self.ids, self.offsets, self.g))

        def look_up() -> None:
            with torch.no_grad():
                bag(ids, offsets)

        def step() -> None:
            optimizer.zero_grad()
            bag(ids, offsets).backward(g)
            optimizer.step()

        return look_up, step


class PooledLookups:
    """A million rows of 64; how many times as long a rival takes."""

    params = [["numpy", "sparse_rows", "torch"], ["lookup", "lookup, gradient and step"]]
    param_names = ("rival", "what")
    unit = "times the time with Bags"
    timeout = 120

    def track_ratio(self, rival: str, what: str) -> float:
        batch = _Batch()
        k = self.params[1].index(what)
        theirs, ours = best_times(getattr(batch, rival)()[k], batch.bags()[k])
        return theirs / ours


class TablesTogether:
    """26 tables of 100 000 rows of 16, each with 2048 bags; how many times as long others take."""

    params = ["one after another", "torch"]
    param_names = ("rival",)
    unit = "times the time of one call"
    timeout = 120

    def track_ratio(self, rival: str) -> float:
        make, together = public("bags.Bags"), public("bags.lookup_bags")
        random = np.random.default_rng(0)
        lists = [_some_bags(random) for _ in range(26)]
        tables = [filled((100_000, 16), seed=k) for k in range(26)]
        bags = [make(*each, 100_000) for each in lists]

        def one_after_another() -> None:
            for each, table in zip(bags, tables, strict=True):
                each.lookup(table)

        theirs = one_after_another if rival != "torch" else _of_torch(lists, tables)
        others, ours = best_times(theirs, lambda: together(bags, tables))
        return others / ours


def _some_bags(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return ids and offsets of bags of one to three ids."""
    lengths = random.integers(1, 4, 2048)
    return random.integers(100_000, size=lengths.sum()), np.append(0, np.cumsum(lengths)[:-1])


def _of_torch(lists: list[tuple[np.ndarray, np.ndarray]], tables: list[np.ndarray]) -> Any:
    torch = installed("torch")
    look_up = torch.nn.functional.embedding_bag
    given = [tuple(map(torch.from_numpy, (ids, table, offsets)))
             for (ids, offsets), table in zip(lists, tables, strict=True)]  # fmt: skip

    def one_after_another() -> None:
        with torch.no_grad():
            for each in given:
                look_up(*each, mode="sum")

    return one_after_another
