"""Nested structures with tensors among their leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from tfopt.core import engine
from tfopt.core.engine import Tensor
from tfopt.core.nest import flatten, pack

__all__ = ["Composite", "TensorTree"]


class Composite:
    """A leaf of a nested structure that consists of several tensors, or arrays."""

    __slots__ = ()

    @property
    def _parts(self) -> tuple[Any, ...]:
        """The tensors; what is written of them is the first."""
        raise NotImplementedError

    def _with_parts(self, *parts: Any) -> Self:
        """Return the same with other tensors."""
        raise NotImplementedError


class TensorTree:
    """A nested structure of tensors and other things, such as the arguments of a call.

    Parameters
    ----------
    structure

    Attributes
    ----------
    leaves : list
    tensors : list of Tensor
        The leaves that are tensors, and the parts of those that consist of several.
    """

    def __init__(self, structure: Any) -> None:
        self.structure = structure
        self.tensors: list[Tensor] = []
        self.leaves = flatten(structure)
        for leaf in self.leaves:
            if isinstance(leaf, Tensor):
                self.tensors.append(leaf)
            elif isinstance(leaf, Composite):
                self.tensors += map(_wrapped, leaf._parts)

    def filled(self, values: Sequence[Any], renamed: Mapping[Any, Any] | None = None) -> Any:
        """Return such a structure with other tensors, and with variables replaced by others."""
        if isinstance(self.structure, Tensor):
            return values[0]
        tensors, leaves = iter(values), []
        for leaf in self.leaves:
            if renamed and isinstance(leaf, engine.Readable):
                leaves.append(renamed.get(leaf, leaf))
            elif isinstance(leaf, Composite):
                leaves.append(leaf._with_parts(*(next(tensors) for _ in leaf._parts)))
            else:
                leaves.append(next(tensors) if isinstance(leaf, Tensor) else leaf)
        return pack(self.structure, leaves)


def _wrapped(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else engine.wrapped(np.asarray(value))
