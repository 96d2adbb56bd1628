"""What the options of an estimator ask of a fit, checked."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Parameters"]


class Parameters(NamedTuple):
    """What is asked of a fit, but for its objective.

    Attributes
    ----------
    solver : str
        "auto", or the only one to be used.
    adaptive : bool
        Whether visits are sampled by importance.
    n_partitions : int or None
        How many are visited in parallel; None: as many as the data are for.
    is_warm : bool
        Whether weights near the solution are known.
    seed : int
    max_iter : int
        The largest number of epochs and steps together.
    tol : float
        The relative duality gap to stop at.
    polish : bool
        Whether a solution within `tol` is refined to the last digits if that is cheap.
    report : callable, optional
        Called with the record of each iteration.
    stopped : callable
        Whether to end with the next certificate, whatever its gap.
    deadline : float
        The time of `time.perf_counter` from which on to do so.
    """

    solver: str = "auto"
    adaptive: bool = False
    n_partitions: int | None = None
    is_warm: bool = False
    seed: int = 0
    max_iter: int = 1000
    tol: float = 1e-4
    polish: bool = False
    report: Callable[[dict[str, Any]], object] | None = None
    stopped: Callable[[], bool] | None = None
    deadline: float = math.inf

    @property
    def asks_for_visits(self) -> bool:
        """Whether options of the visits were set, so that a fit is to begin with them."""
        return self.adaptive or self.n_partitions is not None
