"""When to certify, when to stop, and when Newton's method takes over."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tfopt.errors import NotFiniteError
from tfopt.linear_model.problem import Certificate

__all__ = ["Search", "Settings", "Solution"]

#: Epochs between certificates, at most.
CERTIFY_EVERY = 10
#: How many times the epochs that were enough it takes to reach the last digits, about.
POLISHING = 20
#: How many steps Newton's method takes from where a few epochs lead, about.
NEWTON_STEPS = 3
#: What a record of the history has, and the number of its problem.
_RECORD = ("iteration", "seconds", "objective", "gap", "certified")


@dataclasses.dataclass(frozen=True)
class Settings:
    """How to look for the minimum.

    Attributes
    ----------
    n_partitions : int
    adaptive : bool
        Visit examples by their importance.
    seed : int
    max_iter : int
        Epochs and Newton steps, together.
    tol : float
        The relative duality gap that is enough.
    report : callable, optional
        Told each iteration's record.
    polish : bool
        Whether what is enough is brought to the last digits where that takes next to no time.
    stopped : callable
        Whether the search is to end with the next certificate, good or not.
    """

    n_partitions: int
    adaptive: bool
    seed: int
    max_iter: int
    tol: float
    report: Callable[[dict[str, Any]], object] | None = None
    polish: bool = False
    stopped: Callable[[], bool] | None = None


@dataclasses.dataclass(frozen=True)
class Solution:
    """A certified pair of points, and how it was reached.

    Attributes
    ----------
    certificate : Certificate
    n_iter : int
    history : list of dict
        Of each iteration the problem's number and its own, the seconds since the start, the
        objective (NaN unless certified), the relative gap (an estimate unless certified) and
        whether it is certified.
    """

    certificate: Certificate
    n_iter: int
    history: list[dict[str, Any]]


class Search:
    """What is known of one problem's minimum, epoch after epoch.

    A certificate is taken only when the epoch's free estimate says that it is due: the ratio of the
    two is about the same from one certificate to the next.

    Parameters
    ----------
    settings : Settings
    newton_cost : float, optional
        About how many epochs a step of Newton's method takes as long as, where it applies.
    number : int, optional
        The problem's, among those that are solved side by side.
    cheap_epochs : int, optional
        How many epochs may be for the last digits.

    Attributes
    ----------
    best : Certificate or None
    wants_newton : bool
        Whether Newton's method is to take over.
    """

    def __init__(
        self,
        settings: Settings,
        newton_cost: float = math.inf,
        number: int = 0,
        cheap_epochs: int = 0,
    ):
        self.settings, self._newton_cost = settings, newton_cost
        self._cheap_epochs = cheap_epochs if settings.polish else 0
        self._polished_until: int | None = None
        self.wants_newton = False
        self._tracker = _Tracker(settings, number)
        self.best: Certificate | None = None
        self._last_gap, self._last_number, self._per_gap = math.inf, 0, 1.0
        self._last_step_gap = math.inf

    def due(self, number: int, estimate: float) -> bool:
        """Whether the epoch with this number and estimate is to be certified."""
        best = self.best
        if self._polished_until is not None:
            due = self._is_last or number == self._polished_until
        else:
            due = self._is_due(number, estimate)
        if not due:
            known = best.objective * self._per_gap if best is not None else math.nan
            self._tracker.estimated(estimate / known if known else math.nan)
        return due

    def _is_due(self, number: int, estimate: float) -> bool:
        best = self.best
        due = self._is_last or number == 2 or number - self._last_number >= CERTIFY_EVERY
        if best is not None:
            due |= estimate <= 1.2 * self.settings.tol * best.objective * self._per_gap
        return due

    def ends(self, point: Certificate, number: int, estimate: float) -> bool:
        """Take a certificate in; whether it is enough, or the last."""
        last = self._is_last
        self._take_in(point)
        self._tracker.certified(point)
        if last or self._is_stopped or self._polished_until is not None:
            return True
        if self.is_near:
            more = min(POLISHING * number, self._cheap_epochs) if point.gap > 0 else 0
            self._polished_until = number + more
            return more == 0
        if math.isinf(point.gap):  # so far away that losses overflow
            self._last_number = number
            return False
        self._per_gap = estimate / point.gap
        rate = math.log(self._last_gap / point.gap) / (number - self._last_number)
        if math.isinf(self._last_gap):
            rate = 0.3  # of a first certificate nothing is known
        wanted = max(self.settings.tol, 1e-16)  # of which rounding leaves nothing
        left = math.log(point.relative_gap / wanted) / rate if rate > 0 else math.inf
        self._last_gap, self._last_number = point.gap, number
        self.wants_newton = left > NEWTON_STEPS * self._newton_cost
        return False

    def polished(self, point: Certificate, to_the_end: bool = False) -> bool:
        """Take in where a step of Newton's method has led; whether it is enough, or the last.

        If its steps come to an end before, the rest is for epochs: it is not tried again. With
        `to_the_end`, it is enough when a step does not even halve the gap: that is rounding.
        """
        goes_on = to_the_end and 2 * point.gap < self._last_step_gap
        self._last_step_gap = point.gap
        self._newton_cost = math.inf
        best = self._take_in(point)
        self._tracker.certified(best)
        return (self.is_near and not goes_on) or self._is_full

    @property
    def is_near(self) -> bool:
        """Whether the best certificate is enough."""
        return self.best is not None and self.best.relative_gap <= self.settings.tol

    def _take_in(self, point: Certificate) -> Certificate:
        """Return the best certificate, this one included."""
        if not (np.isfinite(point.w).all() and point.objective >= 0 and point.gap >= 0):
            raise NotFiniteError(
                "the weights are no longer finite: the features, the targets or the samples' "
                "weights are too large; scale them"
            )
        if self.best is None or point.gap < self.best.gap:
            self.best = point
        return self.best

    @property
    def _is_last(self) -> bool:
        return len(self._tracker.history) + 1 >= self.settings.max_iter or self._is_stopped

    @property
    def _is_full(self) -> bool:
        return len(self._tracker.history) >= self.settings.max_iter or self._is_stopped

    @property
    def _is_stopped(self) -> bool:
        return self.settings.stopped is not None and self.settings.stopped()

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs."""
        best = self.best
        point = best and {"w": best.w, "bias": best.bias} | {
            "objective": best.objective,
            "gap": best.gap,
        }
        return {
            "best": point,
            "last": np.array([self._last_gap, self._last_number, self._per_gap, self._newton_cost]),
            "history": {
                name: np.array([record[name] for record in self._tracker.history])
                for name in _RECORD
            },
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        if state["best"] is not None:
            nothing = np.zeros(0)
            self.best = Certificate(**state["best"], examples=nothing, v=nothing)
        self._last_gap, number, self._per_gap, self._newton_cost = state["last"].tolist()
        self._last_number = int(number)
        columns = (state["history"][name].tolist() for name in _RECORD)
        rows = zip(*columns, strict=True)
        self._tracker.resume([self._tracker.record(row) for row in rows])

    def solution(self) -> Solution:
        """Return the best that was certified."""
        assert self.best is not None
        if not math.isfinite(self.best.objective):
            raise NotFiniteError(
                "the objective is infinite wherever the fit has been: scale the features and the "
                "targets, or raise max_iter"
            )
        return Solution(self.best, len(self._tracker.history), self._tracker.history)


class _Tracker:
    """Keeps the history and tells whoever wants to know."""

    def __init__(self, settings: Settings, number: int):
        self.settings, self.number, self.started = settings, number, time.perf_counter()
        self.history: list[dict[str, Any]] = []

    def resume(self, history: list[dict[str, Any]]) -> None:
        """Go on after a history, as if no time had passed since its last record."""
        self.history = history
        self.started = time.perf_counter() - (history[-1]["seconds"] if history else 0)

    def record(self, values: Iterable[Any]) -> dict[str, Any]:
        """Return an iteration's record, given what `_RECORD` names."""
        return {"problem": self.number, **dict(zip(_RECORD, values, strict=True))}

    def certified(self, point: Certificate) -> None:
        self._add(point.objective, point.relative_gap, True)

    def estimated(self, relative_gap: float) -> None:
        self._add(math.nan, relative_gap, False)

    def _add(self, objective: float, gap: float, certified: bool) -> None:
        seconds = time.perf_counter() - self.started
        values = (len(self.history) + 1, seconds, objective, gap, certified)
        record = self.record(values)
        self.history.append(record)
        if self.settings.report:
            self.settings.report(record)
