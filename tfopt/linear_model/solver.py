"""Dual coordinate ascent until a certificate says it is enough."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt.kernels import sdca, sdca_solver
from tfopt.linear_model import newton
from tfopt.linear_model.problem import Certificate, Problem, certify
from tfopt.linear_model.sums import total

__all__ = ["Settings", "Solution", "partitions_for", "solve"]

#: Epochs between certificates, at most.
CERTIFY_EVERY = 10
#: The intercept's curvature as a share of the mean example's: of those tried, the best for all.
INTERCEPT_SHARE = 0.1
#: From so many features on, the rows of neighbours are visited together: they leave the cache.
LARGE = 600_000
MERGES = 2
#: How many steps Newton's method takes from where a few epochs lead, about.
NEWTON_STEPS = 3


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
    """

    n_partitions: int
    adaptive: bool
    seed: int
    max_iter: int
    tol: float
    report: Callable[[dict[str, Any]], object] | None = None


@dataclasses.dataclass(frozen=True)
class Solution:
    """A certified pair of points, and how it was reached.

    Attributes
    ----------
    certificate : Certificate
    n_iter : int
    history : list of dict
        Of each iteration its number, the seconds since the start, the objective (NaN unless
        certified), the relative gap (an estimate unless certified) and whether it is certified.
    """

    certificate: Certificate
    n_iter: int
    history: list[dict[str, Any]]


def partitions_for(n_features: int, n_weights: int) -> int:
    """Return how many partitions data of a size is worth.

    The changes of two partitions must hardly overlap, or they cost more epochs than they save: so
    one for few weights. The number must not depend on the machine, for it changes the result.
    """
    if n_features < 2**20 or n_weights < 2000:
        return 1
    return 2 if n_features < 2**24 else 4


class _Epochs:
    """The state that visits change."""

    def __init__(self, problem: Problem, examples: np.ndarray, bias: float, settings: Settings):
        self.problem, self.examples, self.settings = problem, examples, settings
        n_features = problem.rows[0].size + problem.rows[3].size
        self.bucket = 8 if n_features > LARGE else 1
        started = bool(examples["a"].any())
        self.v = problem.weights_of(examples) if started else np.zeros(problem.n_weights)
        n_replicas = settings.n_partitions if settings.n_partitions > 1 else 0
        self.replicas = np.zeros((n_replicas, problem.n_weights))
        self.before = np.zeros(len(examples) if n_replicas else 0)
        self.sigma = 1 + (settings.n_partitions - 1) / 2
        self.bias = bias
        mean = float(examples["curvature"].mean())
        self.bias_curvature = INTERCEPT_SHARE * mean or 1.0
        if not problem.intercept:
            self.bias_curvature = 0.0
        self.recentre()

    def run(self, number: int) -> float:
        """Visit the examples once, and return the estimate of the gap."""
        problem = self.problem
        self.bias, self.sigma, estimate = sdca_solver.epoch(
            *problem.rows,
            self.plan(number),
            self.examples,
            self.v,
            self.replicas,
            self.before,
            problem.loss,
            problem.gamma,
            problem.l2,
            problem.shrink,
            self.bias,
            self.bias_curvature,
            self.sigma,
            MERGES,
            problem.threads,
        )
        self.recentre()
        return estimate

    def recentre(self) -> None:
        """Move the intercept's centre to where it is, so that its penalty is none in the end.

        The intercept is the weight of a feature 1 whose penalty is rho / 2 * (b - centre)**2: an
        augmented Lagrangian for the dual's constraint that the weighted variables sum to 0.
        """
        if self.problem.intercept:
            drift = total(self.examples["weight"], self.examples["a"])
            self.bias += self.bias_curvature * drift

    def plan(self, number: int) -> np.ndarray:
        if not self.settings.adaptive:
            return sdca.shuffled(len(self.examples), self.bucket, self.settings.seed, number)
        wx = sdca.predictions(*self.problem.rows, self.v, self.problem.shrink, self.problem.threads)
        p = sdca.importance(self.examples, wx + self.bias, self.problem.loss, self.problem.l2)
        return sdca.sampled(p, self.settings.seed, number)

    def certificate(self) -> Certificate:
        problem = self.problem
        w = problem.shrunk(self.v)
        wx = problem.predictions(w)
        v = None if problem.intercept else self.v.copy()
        return certify(problem, self.examples.copy(), w, wx, self.bias, v)


def solve(problem: Problem, examples: np.ndarray, bias: float, settings: Settings) -> Solution:
    """Minimize.

    Parameters
    ----------
    problem : Problem
    examples : ndarray of EXAMPLE
        The dual variables are where to start, and are changed.
    bias : float
        About the intercept.
    settings : Settings

    Returns
    -------
    Solution
        Its relative gap is above `settings.tol` only if there were not enough iterations, or
        rounding forbids to come nearer.
    """
    tracker = _Tracker(settings)
    epochs = _Epochs(problem, examples, bias, settings)
    newton_cost = newton.cost(problem) if newton.applies(problem) else math.inf
    best: Certificate | None = None
    last_gap, last_number, per_gap = math.inf, 0, 1.0
    for number in range(1, settings.max_iter + 1):
        estimate = epochs.run(number)
        last = len(tracker.history) + 1 >= settings.max_iter
        due = last or number == 2 or number - last_number >= CERTIFY_EVERY
        if best is not None:
            due |= estimate <= 1.2 * settings.tol * abs(best.objective) * per_gap
        if not due:
            known = abs(best.objective) * per_gap if best is not None else math.nan
            tracker.estimated(estimate / known if known else math.nan)
            continue
        point = epochs.certificate()
        tracker.certified(point)
        if best is None or point.gap < best.gap:
            best = point
        if best.relative_gap <= settings.tol or last:
            break
        per_gap = estimate / point.gap
        rate = math.log(last_gap / point.gap) / (number - last_number)
        if math.isinf(last_gap):
            rate = 0.3  # of a first certificate nothing is known
        wanted = max(settings.tol, 1e-16)  # of which rounding leaves nothing
        left = math.log(point.relative_gap / wanted) / rate if rate > 0 else math.inf
        last_gap, last_number = point.gap, number
        if left > NEWTON_STEPS * newton_cost:
            best = _polish(problem, best, settings, tracker)
            if best.relative_gap <= settings.tol or len(tracker.history) >= settings.max_iter:
                break
            newton_cost = math.inf  # it has ended; what is left is for epochs
    assert best is not None
    return Solution(best, len(tracker.history), tracker.history)


def _polish(
    problem: Problem, best: Certificate, settings: Settings, tracker: _Tracker
) -> Certificate:
    """Return the best that Newton's method finds."""
    for point in newton.newton_steps(problem, best):
        if point.gap < best.gap:
            best = point
        tracker.certified(best)
        if best.relative_gap <= settings.tol or len(tracker.history) >= settings.max_iter:
            break
    return best


class _Tracker:
    """Keeps the history and tells whoever wants to know."""

    def __init__(self, settings: Settings):
        self.settings, self.started = settings, time.perf_counter()
        self.history: list[dict[str, Any]] = []

    def certified(self, point: Certificate) -> None:
        self._add(point.objective, point.relative_gap, True)

    def estimated(self, relative_gap: float) -> None:
        self._add(math.nan, relative_gap, False)

    def _add(self, objective: float, gap: float, certified: bool) -> None:
        record = {
            "iteration": len(self.history) + 1,
            "seconds": time.perf_counter() - self.started,
            "objective": objective,
            "gap": gap,
            "certified": certified,
        }
        self.history.append(record)
        if self.settings.report:
            self.settings.report(record)
