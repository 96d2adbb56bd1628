"""How the gradients of a step reach it, and what goes along with the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.calls import Call
from tfopt.variable import Variable

__all__ = ["DIRECT", "NotFinite", "Route", "scaled"]


class NotFinite(Exception):
    """Why a step that was to be of finite gradients (`Route.finite`) is none.

    Parameters
    ----------
    instead : sequence of Commit
        What is carried out in place of the step, by those through whom it came.
    """

    def __init__(self, *instead: Any) -> None:
        super().__init__()
        self.instead = instead


class Route(NamedTuple):
    """What those through whom gradients come ask of a step."""

    scale: float = 1.0  # of the gradients, which are multiplied by it as they are read
    lead: Callable[[list[int]], Call] | None = None  # makes the dense gradients at these places
    follow: Callable[[list[Variable]], Call] | None = None  # comes after variables' updates
    finite: bool = False  # `NotFinite` if an element, once aggregated, is infinite or NaN
    aggregates: bool = True  # whether a `gradient_aggregator` is to be called


DIRECT = Route()


def scaled(grads: tuple[Any, ...], scale: float) -> tuple[Any, ...]:
    """Return gradients multiplied by a number, for steps that do not multiply as they read."""
    if scale == 1:
        return grads
    return tuple(
        IndexedSlices(_times(grad.values, scale), grad.indices)
        if isinstance(grad, IndexedSlices)
        else _times(grad, scale)
        for grad in grads
    )


def _times(array: np.ndarray, scale: float) -> np.ndarray:
    if array.dtype.itemsize != 2:
        return np.asarray(array * array.dtype.type(scale))
    with np.errstate(over="ignore"):  # the scale itself may be beyond 16 bits
        return np.asarray(array.astype(np.float32) * np.float32(scale)).astype(array.dtype)
