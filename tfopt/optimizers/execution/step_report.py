"""What a step did."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from tfopt.kernels.together import Watched

__all__ = ["StepReport", "report_of"]


class StepReport(NamedTuple):
    """What a step did, of all its variables together.

    Attributes
    ----------
    gradient_norm : float
        The norm of the gradients before they were clipped by a norm, after `clipvalue` and after
        they were scaled (by a loss scale, or to a mean).
    update_norm : float
        The norm of what was added to the variables.
    clipped : bool
        Whether any gradient was clipped, or had the very value it is clipped to.
    nonfinite : int
        How many elements of the gradients were infinite or NaN.
    """

    gradient_norm: float
    update_norm: float
    clipped: bool
    nonfinite: int


def report_of(watched: Iterable[Watched], scale: float, clipped: bool) -> StepReport:
    """Return the report of parts that have been watched."""
    parts = list(watched)
    return StepReport(
        gradient_norm=_norm([part.gradient for part in parts], abs(scale)),
        update_norm=_norm([part.update for part in parts], 1.0),
        clipped=clipped or any(part.at_bound for part in parts),
        nonfinite=sum(part.nonfinite for part in parts),
    )


def _norm(sums: list[tuple[float, int]], scale: float) -> float:
    """Return the root of sums of squares, each a number times a power of four, times a scale."""
    top = max((exponent for squares, exponent in sums if squares), default=0)
    total = sum(math.ldexp(squares, 2 * (exponent - top)) for squares, exponent in sums)
    if not math.isfinite(total):
        return total
    try:
        return math.ldexp(scale * math.sqrt(total), top)
    except OverflowError:  # no float is that large
        return math.inf
