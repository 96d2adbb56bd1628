"""The calls of one part of a step: what makes its gradients, the update, what comes after."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tfopt.errors import InvalidTypeError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.calls import Call
from tfopt.kernels.clip import gradients_of
from tfopt.kernels.norms import norm
from tfopt.kernels.together import Turns, Watched
from tfopt.optimizers.execution.commit import Writes
from tfopt.optimizers.execution.route import Route
from tfopt.optimizers.execution.step_plan import Dense, Rows

__all__ = ["Chain", "RowWatch", "around", "refuse_watching"]


class Chain(NamedTuple):
    """An update with what goes before it and after it, over the same elements."""

    lead: Call | None
    call: Call
    follow: Call | None

    def writes(self, bound: float | None) -> tuple[Writes, Turns | None]:
        """Return dense calls as writes; elements stay in the cache from one to the next.

        With a bound the update is watched, by the second that is returned.
        """
        calls = [one for one in self if one is not None]
        if bound is not None:
            turns = Turns(calls, calls.index(self.call), bound)
            return [turns], turns
        return ([Turns(calls)] if len(calls) > 1 else [self.call]), None

    def row_writes(self) -> Writes:
        """Return an update of rows as writes, and what follows for the whole variable."""
        return [self.call] if self.follow is None else [self.call, self.follow]


class RowWatch:
    """Watches an update of rows, which are looked at once before it and once after.

    Parameters
    ----------
    part : Rows
    slices : IndexedSlices
        The gradient.
    bound : float
        A magnitude; the gradient's elements that have it, or more, are counted.
    """

    def __init__(self, part: Rows, slices: IndexedSlices, bound: float) -> None:
        self._var, self._rows = part.arrays[0], np.unique(slices.indices)
        self._before = self._var[self._rows]
        values = np.asarray(slices.values)
        self._nonfinite = int(np.count_nonzero(~np.isfinite(values)))
        self._at_bound = int(np.count_nonzero(np.abs(values) >= bound))
        self._gradient = _squares(values if bound == math.inf else np.clip(values, -bound, bound))

    def look(self, writes: Writes) -> None:
        """Look at the rows as they are before the update."""
        self._before = self._var[self._rows]

    def watched(self) -> Watched:
        """Return what the update did, after it."""
        wide = np.result_type(self._var.dtype, np.float64)
        before, now = self._before.astype(wide) / 2, self._var[self._rows].astype(wide) / 2
        with np.errstate(all="ignore"):  # of halves no difference overflows
            squares, exponent = _squares(now - before)
        return Watched(self._gradient, (squares, exponent + 1), self._nonfinite, self._at_bound)


def _squares(array: np.ndarray) -> tuple[float, int]:
    """Return the sum of squares, which is the first times four to the power of the second."""
    root, exponent = norm([array])
    return root * root, exponent


def around(part: Dense | Rows, call: Call, route: Route) -> Chain:
    """Return the chain of a part's update and of what a route asks for."""
    follow = route.follow
    if isinstance(part, Rows):
        return Chain(None, call, None if follow is None else follow([part.variable]))
    lead = None if route.lead is None else route.lead(part.places)
    return Chain(lead, call, None if follow is None else follow(part.variables))


def refuse_watching(calls: list[Any], there: bool) -> None:
    """Refuse to watch updates of complex numbers, or on a GPU (`there`).

    Raises
    ------
    InvalidTypeError
        If there are any.
    """
    if there:
        raise InvalidTypeError("a step on a GPU cannot be observed")
    for call in calls:
        for gradient in gradients_of(call):
            if gradient.dtype.kind == "c":
                raise InvalidTypeError(f"a step of {gradient.dtype} cannot be observed")
