"""Dual coordinate ascent until a certificate says it is enough."""

from __future__ import annotations

import numpy as np

from tfopt.kernels import sdca, sdca_solver
from tfopt.linear_model import newton
from tfopt.linear_model.problem import Certificate, Problem, Start, certify
from tfopt.linear_model.search import Search, Settings, Solution
from tfopt.linear_model.sums import total

__all__ = ["bucket_for", "intercept_curvature", "partitions_for", "solve"]

#: The intercept's curvature as a share of the mean example's: of those tried, the best for all.
INTERCEPT_SHARE = 0.1
#: From so many features on, the rows of neighbours are visited together: the weights, of float64
#: and one for each feature, leave the cache. (`sdca_ops.CACHED` counts the entries of a batch.)
LARGE = 600_000
MERGES = 2


def partitions_for(n_features: int, n_weights: int) -> int:
    """Return how many partitions data of a size is worth.

    The changes of two partitions must hardly overlap, or they cost more epochs than they save: so
    one for few weights. The number must not depend on the machine, for it changes the result.
    """
    if n_features < 2**20 or n_weights < 2000:
        return 1
    return 2 if n_features < 2**24 else 4


def bucket_for(problem: Problem) -> int:
    """Return how many neighbours are visited together."""
    return 8 if problem.n_features > LARGE else 1


def intercept_curvature(problem: Problem, start: Start) -> float:
    """Return the curvature of the intercept's feature, or 0 if there is no intercept."""
    if not problem.intercept:
        return 0.0
    return INTERCEPT_SHARE * float(start.curvature.mean()) or 1.0


class _Epochs:
    """The state that visits change."""

    def __init__(self, problem: Problem, start: Start, settings: Settings):
        self.problem, self.examples, self.settings = problem, start.examples(), settings
        self.bucket = bucket_for(problem)
        started = bool(start.a.any())
        self.v = problem.weights_of(self.examples) if started else np.zeros(problem.n_weights)
        n_replicas = settings.n_partitions if settings.n_partitions > 1 else 0
        self.replicas = np.zeros((n_replicas, problem.n_weights))
        self.before = np.zeros(len(self.examples) if n_replicas else 0)
        self.sigma = 1 + (settings.n_partitions - 1) / 2
        self.bias = start.bias
        self.bias_curvature = intercept_curvature(problem, start)
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


def solve(problem: Problem, start: Start, settings: Settings, number: int = 0) -> Solution:
    """Minimize.

    Parameters
    ----------
    problem : Problem
    start : Start
    settings : Settings
    number : int, optional
        The problem's, for the history.

    Returns
    -------
    Solution
        Its relative gap is above `settings.tol` only if there were not enough iterations, or
        rounding forbids to come nearer.
    """
    search = Search(settings, newton.cost(problem), number, newton.cheap_epochs(problem))
    epochs = _Epochs(problem, start, settings)
    for epoch in range(1, settings.max_iter + 1):
        estimate = epochs.run(epoch)
        if not search.due(epoch, estimate):
            continue
        if newton.ends(problem, search, epochs.certificate(), epoch, estimate):
            break
    return search.solution()
