"""Reports of the effect of a step."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tfopt.errors import InvalidTypeError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.reduce.norms import norm
from tfopt.kernels.update.adjustments import gradients_of
from tfopt.kernels.update.checks import Call
from tfopt.kernels.update.pipeline import Turns, Watched
from tfopt.optimizers.state.transaction import Work, Writes
from tfopt.updates.rule_steps import DenseBucket, SparseUpdate

__all__ = ["Observer", "StepReport"]


class StepReport(NamedTuple):
    """The effect of a step on all its variables together.

    Attributes
    ----------
    gradient_norm : float
        The norm of the gradients after scaling (by a loss scale, or to a mean) and after
        clipping to `clipvalue`, but before clipping by norm.
    update_norm : float
        The norm of the change of the variables.
    clipped : bool
        Whether any gradient was clipped, or was exactly at the limit.
    nonfinite : int
        The number of infinite or NaN elements in the gradients.
    """

    gradient_norm: float
    update_norm: float
    clipped: bool
    nonfinite: int


class Observer:
    """Watches the updates of a step.

    Parameters
    ----------
    calls : list of Call
        All calls of the step.
    clipvalue : float, optional
        The limit of the gradients' elements.
    scale : float
        Multiplies the gradients before they are clipped.
    clips : bool
        Whether any gradient is clipped by its norm.

    Attributes
    ----------
    scale : float
        As above; may be set if the same calls are carried out again.

    Raises
    ------
    InvalidTypeError
        If any gradient is complex.
    """

    def __init__(
        self, calls: list[Call], clipvalue: float | None, scale: float, clips: bool
    ) -> None:
        for call in calls:
            for gradient in gradients_of(call):
                if gradient.dtype.kind == "c":
                    raise InvalidTypeError(f"a step of {gradient.dtype} cannot be observed")
        self._bound = math.inf if clipvalue is None else clipvalue / abs(scale)
        self.scale, self._clips = scale, clips
        self._watches: list[Turns | _Watch] = []

    def watch(self, calls: list[Call], place: int) -> Turns:
        """Return calls that take turns, of which the one at `place` is watched."""
        turns = Turns(calls, place, self._bound)
        self._watches.append(turns)
        return turns

    def watch_rows(self, part: SparseUpdate, slices: IndexedSlices, everywhere: bool) -> Work:
        """Watch an update of rows; return the work that must precede it.

        `everywhere` says that the rows without a gradient change, too.
        """
        rows = ... if everywhere else np.unique(slices.indices)
        watch = _Watch(part.arrays[0], rows, slices.values, self._bound)
        self._watches.append(watch)
        return watch.look

    def watch_whole(self, part: DenseBucket, grads: tuple[Any, ...]) -> Work:
        """Watch an update of whole variables that does not go through elements in order."""
        each = zip(part.operands[0], part.gradients(grads), strict=True)
        watches = [_Watch(var, ..., grad, self._bound) for var, grad in each]
        self._watches += watches

        def look(writes: Writes) -> None:
            for watch in watches:
                watch.look(writes)

        return look

    def report(self) -> StepReport:
        """Return the report, after the step."""
        parts = [watch.watched() for watch in self._watches]
        return StepReport(
            gradient_norm=_norm([part.gradient for part in parts], abs(self.scale)),
            update_norm=_norm([part.update for part in parts], 1.0),
            clipped=self._clips or any(part.at_bound for part in parts),
            nonfinite=sum(part.nonfinite for part in parts),
        )


class _Watch:
    """Watches an update of rows, or of all, by reading them once before and once after it.

    It counts the gradient's elements whose magnitude is at least a bound.
    """

    def __init__(self, var: np.ndarray, rows: Any, gradient: np.ndarray, bound: float) -> None:
        self._var, self._rows = var, rows
        self._before = np.array(var[rows])
        values = np.asarray(gradient)
        self._nonfinite = int(np.count_nonzero(~np.isfinite(values)))
        self._at_bound = int(np.count_nonzero(np.abs(values) >= bound))
        self._gradient = _squares(values if bound == math.inf else np.clip(values, -bound, bound))

    def look(self, writes: Writes) -> None:
        """Read the rows before the update."""
        self._before = np.array(self._var[self._rows])

    def watched(self) -> Watched:
        """Return the effect of the update, after it."""
        wide = np.result_type(self._var.dtype, np.float64)
        before, after = self._before.astype(wide) / 2, self._var[self._rows].astype(wide) / 2
        with np.errstate(all="ignore"):  # the difference of the halves does not overflow
            squares, exponent = _squares(after - before)
        return Watched(self._gradient, (squares, exponent + 1), self._nonfinite, self._at_bound)


def _squares(array: np.ndarray) -> tuple[float, int]:
    """Return the sum of squares as (s, e), which stands for s * 4**e."""
    root, exponent = norm([np.asarray(array)])  # of no axes, NumPy makes scalars
    return root * root, exponent


def _norm(sums: list[tuple[float, int]], scale: float) -> float:
    """Return the scaled root of the total of sums of squares, as returned by `_squares`."""
    top = max((exponent for squares, exponent in sums if squares), default=0)
    total = sum(math.ldexp(squares, 2 * (exponent - top)) for squares, exponent in sums)
    if not math.isfinite(total):
        return total
    try:
        return math.ldexp(scale * math.sqrt(total), top)
    except OverflowError:  # no float is that large
        return math.inf
