"""Nested structures that tensors are taken out of, and others put into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfopt.core import engine
from tfopt.core.engine import Tensor
from tfopt.core.nest import flatten, pack
from tfopt.indexed_slices import IndexedSlices

__all__ = ["Opened"]


class Opened:
    """A nested structure whose leaves are tensors and other things: what a function returns.

    Parameters
    ----------
    structure
        Rows (`IndexedSlices`) are taken apart.
    """

    def __init__(self, structure: Any) -> None:
        self.structure = structure
        self.tensors: list[Tensor] = []
        self.leaves = flatten(structure)
        for leaf in self.leaves:
            if isinstance(leaf, Tensor):
                self.tensors.append(leaf)
            elif isinstance(leaf, IndexedSlices):
                self.tensors += [_as_tensor(leaf.values), _as_tensor(leaf.indices)]

    def closed(self, values: Sequence[Any], renamed: Mapping[Any, Any] | None = None) -> Any:
        """Return such a structure of other values, and of other variables."""
        given, leaves = iter(values), []
        for leaf in self.leaves:
            if renamed and isinstance(leaf, engine.Readable):
                leaves.append(renamed.get(leaf, leaf))
            elif isinstance(leaf, IndexedSlices):
                leaves.append(IndexedSlices(next(given), next(given), leaf.dense_shape))
            else:
                leaves.append(next(given) if isinstance(leaf, Tensor) else leaf)
        return pack(self.structure, leaves)


def _as_tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else engine.wrapped(np.asarray(value))
