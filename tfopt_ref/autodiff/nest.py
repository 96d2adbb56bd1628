"""Nested lists, tuples and dictionaries as one list of leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any


def flatten(nest: Any) -> list[Any]:
    """Return the leaves depth first; leaves of a dictionary in the order of sorted keys."""
    if isinstance(nest, dict):
        return [leaf for key in sorted(nest) for leaf in flatten(nest[key])]
    if isinstance(nest, (list, tuple)):
        return [leaf for part in nest for leaf in flatten(part)]
    return [nest]


def pack(structure: Any, leaves: Iterable[Any]) -> Any:
    """Return a nest of the same structure with other leaves, in the order of `flatten`."""
    return _packed(structure, iter(leaves))


def _packed(structure: Any, leaves: Iterator[Any]) -> Any:
    if isinstance(structure, dict):
        made = {key: _packed(structure[key], leaves) for key in sorted(structure)}
        return type(structure)((key, made[key]) for key in structure)
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        return type(structure)(*(_packed(part, leaves) for part in structure))
    if isinstance(structure, (list, tuple)):
        return type(structure)(_packed(part, leaves) for part in structure)
    return next(leaves)


def map_leaves(function: Callable[[Any], Any], nest: Any) -> Any:
    """Return the nest with a function applied to each leaf."""
    return pack(nest, map(function, flatten(nest)))
