"""What the methods of a tape take and return: types, and checks."""

from __future__ import annotations

import enum
from typing import Any, Literal, TypeVar

from tfopt.core.engine import Operand, Readable, Tensor
from tfopt.core.nest import flatten

__all__ = [
    "Gradient",
    "Key",
    "Source",
    "Unconnected",
    "UnconnectedGradients",
    "check_single_target",
    "check_target",
    "checked_sources",
    "is_zero",
]

#: Also `IndexedSlices` of rows, and None: Any, so that the usual case needs no check of the type.
Gradient = Tensor | Any
Source = TypeVar("Source", bound=Operand)
Key = TypeVar("Key")


class UnconnectedGradients(enum.Enum):
    """The gradient of a source that the target does not depend on.

    NONE is None, ZERO zeros of the source's shape.
    """

    NONE = "none"
    ZERO = "zero"


Unconnected = UnconnectedGradients | Literal["none", "zero"]


def check_target(target: Any) -> None:
    """Refuse None."""
    if target is None:
        raise TypeError(
            "Argument `target` should be a list or nested structure of Tensors, Variables or "
            "CompositeTensors to be differentiated, but received None."
        )


def check_single_target(target: Any) -> None:
    """Refuse all but one tensor or variable."""
    check_target(target)
    if not isinstance(target, (Tensor, Readable)):
        raise TypeError(f"target must be a Tensor, not {type(target).__name__}")


def is_zero(unconnected: Any) -> bool:
    """Return whether the gradient of an unconnected source is zeros, not None."""
    if unconnected is UnconnectedGradients.NONE:
        return False
    try:
        return UnconnectedGradients(unconnected) is UnconnectedGradients.ZERO
    except ValueError:
        raise ValueError(f"Unknown value for unconnected_gradients: {unconnected!r}") from None


def checked_sources(sources: Any) -> list[Any]:
    """Return the leaves of sources; refuse what a tape cannot have watched."""
    leaves = flatten(sources)
    for k, leaf in enumerate(leaves):
        if not isinstance(leaf, (Tensor, Readable)):
            raise TypeError(f"source {k} must be a Tensor or a Variable, not {type(leaf).__name__}")
    return leaves
