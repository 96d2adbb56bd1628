"""The calls of one part of a step: what makes its gradients, the update, what comes after."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tfopt.errors import InvalidTypeError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.calls import Call
from tfopt.kernels.clip import gradients_of
from tfopt.kernels.norms import norm
from tfopt.kernels.together import Watched, run_together
from tfopt.kernels.training import run
from tfopt.optimizers.plan import Dense, Rows
from tfopt.optimizers.route import Route

__all__ = ["Chain", "around", "refuse_watching"]


class Chain(NamedTuple):
    """An update with what goes before it and after it, over the same elements."""

    lead: Call | None
    call: Call
    follow: Call | None

    def run(self, bound: float | None) -> list[Watched]:
        """Carry out dense calls; elements stay in the cache from one to the next.

        With a bound the update is watched.
        """
        calls = [one for one in self if one is not None]
        if bound is not None:
            watched = run_together(calls, calls.index(self.call), bound)
            return [] if watched is None else [watched]
        if len(calls) > 1:
            run_together(calls)
        else:
            run(self.call)
        return []

    def run_rows(self, part: Rows, slices: IndexedSlices, bound: float | None) -> list[Watched]:
        """Carry out an update of rows, then what follows for the whole variable.

        With a bound the update is watched: its rows are looked at once more before and after.
        """
        if bound is None:
            self._run_rows()
            return []
        var, values = part.arrays[0], np.asarray(slices.values)
        rows = np.unique(slices.indices)
        before = var[rows]
        nonfinite = int(np.count_nonzero(~np.isfinite(values)))
        at_bound = int(np.count_nonzero(np.abs(values) >= bound))
        squares = _square(values if bound == math.inf else np.clip(values, -bound, bound))
        self._run_rows()
        moved = var[rows].astype(np.float64) - before.astype(np.float64)
        return [Watched(squares, _square(moved), nonfinite, at_bound)]

    def _run_rows(self) -> None:
        run(self.call)
        if self.follow is not None:
            run(self.follow)


def _square(array: np.ndarray) -> float:
    root, exponent = norm([array])
    return (root * 2.0**exponent) ** 2


def around(part: Dense | Rows, call: Call, route: Route) -> Chain:
    """Return the chain of a part's update and of what a route asks for."""
    follow = route.follow
    if isinstance(part, Rows):
        return Chain(None, call, None if follow is None else follow([part.variable]))
    lead = None if route.lead is None else route.lead(part.places)
    return Chain(lead, call, None if follow is None else follow(part.variables))


def refuse_watching(calls: list[Call], there: bool) -> None:
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
