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
    columns = list(zip(*watched, strict=True)) or [(), (), (), ()]
    gradient, update, nonfinite, at_bound = map(sum, columns)
    return StepReport(
        gradient_norm=abs(scale) * math.sqrt(gradient) if gradient == gradient else math.nan,
        update_norm=math.sqrt(update) if update == update else math.nan,
        clipped=clipped or at_bound > 0,
        nonfinite=nonfinite,
    )
