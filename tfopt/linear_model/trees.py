"""Sums over blocks whose order does not depend on who computes them, or when.

The sum is a binary tree over the blocks' places. A node (level, k) is the sum of the places from
k * 2**level on, 2**level of them or as many as there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

__all__ = ["Nodes", "fold", "tree_sum"]

#: Sums of some places, by their nodes.
Nodes: TypeAlias = Mapping[tuple[int, int], Any]


def fold(nodes: Nodes, n_places: int) -> dict[tuple[int, int], Any]:
    """Add up what can be added up.

    Parameters
    ----------
    nodes : dict
    n_places : int
        Of the whole tree.

    Returns
    -------
    dict
        The nodes that are left: the root alone if all places are there.
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


def tree_sum(answers: Sequence[Any]) -> Any:
    """Return the sum of what all places have to say.

    Parameters
    ----------
    answers : sequence of None, dict, tuple, or what has a sum
        Dicts are added key by key, and tuples place by place.
    """
    (total,) = fold({(0, k): answer for k, answer in enumerate(answers)}, len(answers)).values()
    return total


def _sum(a: Any, b: Any) -> Any:
    if a is None:
        return b
    if isinstance(a, dict):
        return {key: _sum(a.get(key), b[key]) if key in b else a[key] for key in {**a, **b}}
    if isinstance(a, tuple):
        return tuple(_sum(x, y) for x, y in zip(a, b, strict=True))
    return a + b
