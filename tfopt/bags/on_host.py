"""Sums of rows of host arrays: lookups, gradients, and their operations on tapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from tfopt.bags.arguments import check_out
from tfopt.bags.memory import empty
from tfopt.bags.summed_later import Beside
from tfopt.core.engine import Op
from tfopt.kernels.update import dedup

if TYPE_CHECKING:
    from tfopt.bags.bags import Bags

__all__ = [
    "COMPUTED",
    "LOOKUP",
    "ROWS",
    "OnHost",
    "computed_in",
    "pooled",
    "pooled_together",
    "rows_of",
]

#: The dtypes of gradients that a step sums itself.
_SHARED = np.dtype(np.float32), np.dtype(np.float64)
#: The dtypes of tables, and those in which their rows are added up.
COMPUTED: dict[str, np.dtype[Any]] = {
    "float16": np.dtype(np.float32),
    "bfloat16": np.dtype(np.float32),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "complex64": np.dtype(np.complex64),
    "complex128": np.dtype(np.complex128),
}


@cache
def computed_in(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return the dtype in which rows of a dtype are added up; None if tables cannot have it."""
    return COMPUTED.get(dtype.name)  # whose name takes longer than a small lookup


class OnHost(Beside):
    """Bags beside host arrays, which need no copies of them."""

    @property
    def can_wait(self) -> bool:
        wide = math.prod(self.array.shape[1:]) > 1
        return wide and self.bags._weights is None and self.array.dtype in _SHARED

    def of_rows(self) -> np.ndarray:
        return rows_of(self.array, self.bags)

    def divided(self) -> Self:
        of_bags = empty("gradient of bags", self.array.shape, self.array.dtype)
        self.bags._divide(self.array, of_bags)
        return type(self)(self.bags, of_bags, self.name)

    def sums(self) -> np.ndarray:
        return _sums(self.array, self.bags)

    @property
    def rows(self) -> np.ndarray:
        return self.bags.rows

    @property
    def shared(self) -> tuple[np.ndarray, np.ndarray]:
        return self.bags._bag, self.bags._ids


class _Lookup(NamedTuple):
    """A lookup of a table: what is added up, and where."""

    table: np.ndarray
    bags: Bags
    out: np.ndarray | None
    result: np.ndarray
    added: tuple[Any, ...]  # rows, places, sums, ids and weights

    @classmethod
    def of(cls, table: np.ndarray, bags: Bags, out: np.ndarray | None) -> Self:
        shape, computed = (len(bags), *table.shape[1:]), computed_in(table.dtype)
        if out is not None:
            check_out(out, shape, table.dtype)
        rows, ids, first = table, bags._ids, table[:1]
        if not (first.flags.c_contiguous and first.flags.aligned):  # rows are not runs of numbers
            distinct, ids = bags._distinct()
            rows = table[distinct]
        width = math.prod(shape[1:])
        result = np.empty(shape, computed)
        if out is not None and out.dtype == computed and out.flags.carray:
            result = result if np.may_share_memory(out, table) else out
        matrices = rows.reshape(len(rows), width), result.reshape(len(bags), width)
        added = matrices[0], bags._bag, matrices[1], ids, bags._weights
        return cls(table, bags, out, result, added)

    def pooled(self) -> np.ndarray:
        """Return the pooled rows, after they have been added up."""
        table, bags, out, result, (*_, sums, _, _) = self
        bags._divide(sums, sums)
        if out is None and table.dtype == result.dtype:
            return result
        with np.errstate(over="ignore"):  # rounding to infinity gives no warning
            if out is None:
                return result.astype(table.dtype)
            if result is not out:
                out[...] = result
        return out


def pooled(table: np.ndarray, bags: Bags, out: np.ndarray | None = None) -> np.ndarray:
    """Return the pooled rows of each bag of a table."""
    lookup = _Lookup.of(table, bags, out)
    rows, places, sums, *others = lookup.added
    dedup.add_rows(rows, places, sums, math.inf, 1.0, *others)
    return lookup.pooled()


def pooled_together(tables: Sequence[np.ndarray], bags: Sequence[Bags]) -> list[np.ndarray]:
    """Return the pooled rows of several tables, which threads share."""
    lookups = [_Lookup.of(*each, None) for each in zip(tables, bags, strict=True)]
    dedup.add_many([lookup.added for lookup in lookups])
    return [lookup.pooled() for lookup in lookups]


def rows_of(g: np.ndarray, bags: Bags) -> np.ndarray:
    """Return the gradient of the distinct rows of a table."""
    computed = computed_in(g.dtype)
    of_bags = np.array(g, computed, order="C", copy=None if bags.pooling == "sum" else True)
    of_bags = of_bags.reshape(len(bags), math.prod(g.shape[1:]))
    bags._divide(of_bags, of_bags)
    with np.errstate(over="ignore"):
        return _sums(of_bags.reshape(g.shape), bags).astype(g.dtype, copy=False)


def _sums(of_bags: np.ndarray, bags: Bags) -> np.ndarray:
    """Return the sum for each distinct id of the rows of its bags."""
    distinct, place = bags._distinct()
    shape, dtype = (distinct.size, math.prod(of_bags.shape[1:])), of_bags.dtype
    sums = empty("gradient of rows", shape, dtype)
    terms = of_bags.reshape(len(bags), shape[1])
    dedup.add_rows(terms, place, sums, math.inf, 1.0, bags._bag, bags._weights)
    return sums.reshape(distinct.size, *of_bags.shape[1:])


# ---- both are linear: the gradient of each is the other one, of the rows that there are

LOOKUP = Op("BagsLookup", pooled, label="Bags.lookup")
LOOKUP.define(lambda g, y, table, bags: bags.gradient(g))
ROWS = Op("BagsGradient", rows_of, label="Bags.gradient")
ROWS.define(lambda g, y, of_bags, bags: bags._among_distinct().lookup(g))
