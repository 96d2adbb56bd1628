"""What a step did."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["StepReport", "report_of"]


class StepReport(NamedTuple):
    """What a step did, of all its variables together; norms before clipping by a norm."""

    gradient_norm: float
    update_norm: float
    clipped: bool
    nonfinite: int


def report_of(
    grads: list[np.ndarray],
    moved: list[np.ndarray],
    clipvalue: float | None,
    scale: float,
    clips: bool,
) -> StepReport:
    """Return the report of a step by gradients that were multiplied by a scale."""
    with np.errstate(all="ignore"):
        given = [scale * grad.astype(np.float64) for grad in grads]
        if clipvalue is not None:
            clips = clips or any((np.abs(grad) >= clipvalue).any() for grad in given)
            given = [np.clip(grad, -clipvalue, clipvalue) for grad in given]
        return StepReport(
            gradient_norm=_norm(given),
            update_norm=_norm(moved),
            clipped=clips,
            nonfinite=sum(int((~np.isfinite(grad)).sum()) for grad in given),
        )


def _norm(arrays: list[np.ndarray]) -> float:
    return float(np.sqrt(sum(np.square(array).sum() for array in arrays)))
