"""The interface between the loop of a fit and the methods that take steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from tfopt.linear_model._fit.certificate import Certificate
from tfopt.linear_model._fit.monitor import ConvergenceMonitor

__all__ = ["Steps"]


class Steps(ABC):
    """A method that steps from point to point, for several problems that share their rows."""

    @property
    @abstractmethod
    def active(self) -> Collection[int]:
        """The problems that it is solving."""

    @abstractmethod
    def start(self, k: int, w: np.ndarray, bias: float) -> None:
        """Begin at a point."""

    @abstractmethod
    def look(
        self, monitors: Sequence[ConvergenceMonitor]
    ) -> tuple[dict[int, Certificate], dict[int, Certificate]]:
        """Return estimates of the points' certificates, and the certificates that monitors want."""

    @abstractmethod
    def step(self, going: Mapping[int, Certificate]) -> list[int]:
        """Step on from the points of some problems; return the problems whose step failed."""

    @abstractmethod
    def certify(self, problems: Sequence[int]) -> dict[int, Certificate]:
        """Compute the duality gaps of the points from which the steps failed."""

    @abstractmethod
    def end(self, k: int) -> None:
        """Take no more steps for a problem; it may have taken none."""

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint; only fits to blocks save checkpoints."""
        raise NotImplementedError

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        raise NotImplementedError
