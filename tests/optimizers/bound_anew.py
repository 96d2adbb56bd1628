"""Optimizers that bind every step anew, for comparison with those that repeat one."""

from __future__ import annotations

from typing import Any

from tfopt.kernels.update.repetition import Repeats
from tfopt.optimizers.step.gradients import apart_from, as_taken


class Fresh(Repeats):
    """Repeats nothing."""

    def keep(self, bound: Any) -> bool:
        return False


def bind_anew(optimizer: Any) -> None:
    """Let an optimizer, and those inside, bind each step anew."""
    for each in optimizer._tree():
        vars(each).update(_repeated=Fresh(as_taken, apart_from))
        vars(each).update(_prepared=Fresh(as_taken, apart_from))
