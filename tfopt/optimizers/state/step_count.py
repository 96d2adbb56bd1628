"""The number of an optimizer's steps, which a step returns."""

from __future__ import annotations

import numpy as np

from tfopt.core.engine import tracing
from tfopt.variable import Variable

__all__ = ["StepCount"]


class StepCount(Variable):
    """A variable that counts steps, and is shown as the last one: ``<step 12 of Adam>``."""

    __slots__ = ()

    @classmethod
    def of(cls, name: str) -> StepCount:
        """Return the count of an optimizer that has taken no step."""
        return cls(np.zeros((), np.int64), f"{name}/iterations", trainable=False)

    def __repr__(self) -> str:
        if tracing() is not None:
            return super().__repr__()
        return f"<step {self._array} of {self.name.removesuffix('/iterations')}>"
