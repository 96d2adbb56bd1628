"""Sums over blocks whose order does not depend on who computes them, or when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["FAN", "added", "tree_sum"]

#: How many answers are added up at a time, one after the other: fewer would mean more tasks.
FAN = 8


def added(answers: Sequence[Any]) -> Any:
    """Return the sum of answers, from the first to the last.

    Parameters
    ----------
    answers : sequence of None, dict, tuple, or what has a sum
        Dicts are added key by key, and tuples place by place.

    Returns
    -------
    object
        As each of them.
    """
    total = answers[0]
    for answer in answers[1:]:
        total = _sum(total, answer)
    return total


def _sum(a: Any, b: Any) -> Any:
    if a is None:
        return b
    if isinstance(a, dict):
        return {key: _sum(a.get(key), b[key]) if key in b else a[key] for key in {**a, **b}}
    if isinstance(a, tuple):
        return tuple(_sum(x, y) for x, y in zip(a, b, strict=True))
    return a + b


def tree_sum(answers: Sequence[Any]) -> Any:
    """Return the sum of answers by a tree whose shape depends on their number alone."""
    while len(answers) > 1:
        answers = [added(answers[k : k + FAN]) for k in range(0, len(answers), FAN)]
    return answers[0]
