"""Updates of some rows of a table, as for embeddings."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from .common import (
    RULES,
    Step,
    best_times,
    filled,
    operands,
    public,
    random_rows_loop,
    same_traffic_loop,
    step,
)


def _zipf(n: int, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Return row numbers distributed like words: 19 000 distinct ones among 100 000."""
    shares = np.arange(1, rows + 1) ** -1.145
    ranks = np.searchsorted(np.cumsum(shares / shares.sum()), rng.random(n))
    return rng.permutation(rows)[np.minimum(ranks, rows - 1)]


def _distinct(n: int, rows: int, rng: np.random.Generator) -> np.ndarray:
    return rng.permutation(rows)[:n]


def _uniform(n: int, rows: int, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(rows, size=n)


#: The number of ids, their distribution, and the rows and width of the table.
LOOKUPS = {
    "100 000 zipf ids of 1 000 000 x 32": (100_000, _zipf, 1_000_000, 32),
    "100 000 distinct ids of 1 000 000 x 32": (100_000, _distinct, 1_000_000, 32),
    "1 000 000 ids of 10 000 000 x 1": (1_000_000, _uniform, 10_000_000, 1),
}


#: The rules that step some rows of a variable.
WITH_ROWS = {name: rule for name, rule in RULES.items() if rule.reduction != "tensor"}


class Update(NamedTuple):
    """A sparse step, the arrays it changes and the minimum memory traffic."""

    step: Step
    changed: list[np.ndarray]
    ids: np.ndarray
    bytes: int


@cache
def _update(rule: str, lookup: str) -> Update:
    """Return the update to time; cached, because asv runs the setup for each sample."""
    n, draw, rows, width = LOOKUPS[lookup]
    ids = draw(n, rows, np.random.default_rng(0))
    grad = filled((n, width))
    changed = operands(rule, (rows, width))[:-1]
    stepped = rows if RULES[rule].absent else len(np.unique(ids))
    read_and_written = 2 * stepped * sum(array[0].nbytes for array in changed)
    return Update(
        step(rule, [*changed, grad], indices=ids),
        changed,
        ids,
        read_and_written + grad.nbytes + ids.nbytes,
    )


class Time:
    params = (list(WITH_ROWS), list(LOOKUPS))
    param_names = ("rule", "lookup")
    rounds = 1
    repeat = (3, 15, 0.5)

    def setup(self, rule: str, lookup: str) -> None:
        self.step = _update(rule, lookup).step

    def time_step(self, rule: str, lookup: str) -> None:
        self.step()


class Bandwidth:
    """The rate of a step in percent of moving only its ids, its gradient and their rows.

    Of rules that let all others decay, of all rows, though some leave the variable's as they are.
    That at the speed of the plain loop over the whole table; it runs before each step, so no row
    is in cache. Rows of one number cannot come near 100 %: memory moves lines of sixteen.
    """

    params = (list(WITH_ROWS), list(LOOKUPS))
    param_names = ("rule", "lookup")
    unit = "%"

    def setup(self, rule: str, lookup: str) -> None:
        self.update = _update(rule, lookup)
        first = self.update.changed[0]
        arrays = [*self.update.changed, filled(first.shape)]
        self.loop = same_traffic_loop(arrays, public("threads.get_num_threads")())
        self.loop_bytes = RULES[rule].traffic * first.nbytes

    def track_percent_of_memory_traffic(self, rule: str, lookup: str) -> float:
        loop, step = best_times(self.loop, self.update.step)
        return 100 * (loop * self.update.bytes / self.loop_bytes) / step


class RandomRows:
    """The rate of a step in percent of a loop in C that only reads and writes the same rows.

    Memory is read in lines, and random ones come more slowly than those of a stream; so this loop,
    which asks for its lines ahead, shows how fast distinct rows can be. Rules that let all other
    rows decay are not measured.
    """

    params = (
        [rule for rule in WITH_ROWS if not RULES[rule].absent],
        [lookup for lookup in LOOKUPS if "zipf" not in lookup],
    )
    param_names = ("rule", "lookup")
    unit = "%"

    def setup(self, rule: str, lookup: str) -> None:
        self.update = _update(rule, lookup)
        threads = public("threads.get_num_threads")()
        self.loop = random_rows_loop(self.update.changed, self.update.ids, threads)

    def track_percent_of_random_rows(self, rule: str, lookup: str) -> float:
        loop, step = best_times(self.loop, self.update.step)
        return 100 * loop / step
