"""Sums in a fixed order, so that results do not depend on threads, workers or timing.

`tree_reduce` adds up the answers of blocks in a binary tree over their positions. The node
(level, k) is the sum of the 2**level positions from k * 2**level on, fewer at the end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

__all__ = ["SparseDelta", "Nodes", "TreeSum", "reduce_nodes", "tree_reduce"]

#: Partial sums by their nodes.
Nodes: TypeAlias = Mapping[tuple[int, int], Any]


def reduce_nodes(nodes: Nodes, n_places: int) -> dict[tuple[int, int], Any]:
    """Add each pair of siblings if both are known, up to the root.

    Parameters
    ----------
    nodes : dict
    n_places : int
        The number of leaves of the whole tree.

    Returns
    -------
    dict
        The remaining nodes: only the root if all leaves were known.
    """
    folded, width = dict(nodes), n_places
    for level in range((n_places - 1).bit_length()):
        for index in [index for at, index in folded if at == level]:
            left, right = (level, index - index % 2), (level, index - index % 2 + 1)
            parent = level + 1, index // 2
            if right[1] >= width and left in folded:
                folded[parent] = folded.pop(left)
            elif left in folded and right in folded:
                folded[parent] = _sum(folded.pop(left), folded.pop(right))
        width = (width + 1) // 2
    return folded


def tree_reduce(values: Sequence[Any]) -> Any:
    """Add up answers pairwise, in a binary tree.

    Parameters
    ----------
    answers : sequence of None, dict, tuple, or what has a sum
        Dicts are added by key, tuples by position.
    """
    (root,) = reduce_nodes(
        {(0, k): answer for k, answer in enumerate(values)}, len(values)
    ).values()
    return root


class TreeSum:
    """The sum of `tree_reduce` for answers that arrive one by one, without keeping all of them."""

    def __init__(self) -> None:
        self._nodes: list[tuple[int, Any]] = []  # complete ones, and their levels

    def add(self, value: Any) -> None:
        """Add the next answer."""
        level = 0
        while self._nodes and self._nodes[-1][0] == level:
            value, level = _sum(self._nodes.pop()[1], value), level + 1
        self._nodes.append((level, value))

    def total(self) -> Any:
        """Return the sum of the answers so far; None if there are none."""
        total = None
        for _, value in reversed(self._nodes):
            total = value if total is None else _sum(value, total)
        return total


def _sum(a: Any, b: Any) -> Any:
    if a is None:
        return b
    if isinstance(a, dict):
        return {key: _sum(a.get(key), b[key]) if key in b else a[key] for key in {**a, **b}}
    if isinstance(a, tuple):
        return tuple(_sum(x, y) for x, y in zip(a, b, strict=True))
    return a + b


#: With a larger share of non-zeros, the dense vector is the shorter message.
MAX_DENSITY = 0.25


@dataclasses.dataclass(frozen=True)
class SparseDelta:
    """A change of weights, stored sparsely if few entries are non-zero.

    Attributes
    ----------
    size : int
    indices : ndarray of int64 or None
        Ascending; None if `values` is dense.
    values : ndarray of float64
    """

    size: int
    indices: np.ndarray | None
    values: np.ndarray

    @classmethod
    def from_dense(cls, vector: np.ndarray) -> SparseDelta:
        """Return a vector in the shorter form."""
        if np.count_nonzero(vector) > MAX_DENSITY * vector.size:
            return cls(vector.size, None, vector)
        indices = np.flatnonzero(vector)
        return cls(vector.size, indices, vector[indices])

    def __add__(self, other: SparseDelta) -> SparseDelta:
        if self.indices is None or other.indices is None:
            return SparseDelta(self.size, None, self.dense() + other.dense())
        indices = np.union1d(self.indices, other.indices)
        values = np.zeros(indices.size)
        values[np.searchsorted(indices, self.indices)] = self.values
        values[np.searchsorted(indices, other.indices)] += other.values
        delta = SparseDelta(self.size, indices, values)
        return (
            SparseDelta(self.size, None, delta.dense())
            if indices.size > MAX_DENSITY * self.size
            else delta
        )

    def dense(self) -> np.ndarray:
        """Return the dense vector."""
        if self.indices is None:
            return self.values
        vector = np.zeros(self.size)
        vector[self.indices] = self.values
        return vector
