"""Dual coordinate ascent over rows in memory, for one problem or for several classes together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tfopt.kernels.linear import multiclass as sdca_classes
from tfopt.kernels.linear import solver as sdca_solver
from tfopt.kernels.linear import visits
from tfopt.linear_model._fit.design import Point, aligned_zeros
from tfopt.linear_model._fit.problem import InitialPoint, Problem
from tfopt.linear_model.loss_record import weighted_sum
from tfopt.linear_model.parameters import Parameters

__all__ = ["INTERCEPT_SHARE", "LANES", "LaneVisits", "RowVisits", "bucket_for"]

#: The largest number of classes that are solved together.
LANES = sdca_classes.LANES
#: The intercept's curvature, relative to the mean curvature of the examples; found by experiment.
INTERCEPT_SHARE = 0.1
#: With more stored values, neighbouring rows are visited together: the weights no longer fit in
#: the cache. (`sdca_ops.CACHED` counts the entries of a batch.)
LARGE = 600_000
MERGES = 2


def bucket_for(problem: Problem) -> int:
    """Return the number of neighbouring examples that are visited together."""
    return 8 if problem.n_features > LARGE else 1


def intercept_curvature(problem: Problem, initial: InitialPoint) -> float:
    """Return the curvature of the intercept's feature, or 0 if there is no intercept."""
    if not problem.intercept:
        return 0.0
    return INTERCEPT_SHARE * float(initial.curvature().mean()) or 1.0


class RowVisits:
    """Epochs over the examples of one problem, with number 0, in one partition or several.

    An epoch makes about as many visits as there are examples. If a visit leaves the dual variable
    at a corner, such as an end of its interval, the example is skipped, for twice as many sweeps
    each time. For many losses most examples are skipped, so an epoch has several sweeps over the
    others. Every example is visited again after some sweeps, and certificates cover all.
    """

    def __init__(
        self,
        problem: Problem,
        initial: InitialPoint,
        options: Parameters,
        n_partitions: int,
    ) -> None:
        self.problem, self.examples, self.options = problem, initial.examples(), options
        self.examples["curvature"] = initial.curvature()
        self.bucket = bucket_for(problem)
        started = bool(initial.a.any())
        self.v = problem.weights_of(self.examples) if started else np.zeros(problem.n_weights)
        n_replicas = n_partitions if n_partitions > 1 else 0
        self.replicas = np.zeros((n_replicas, problem.n_weights))
        self.before = np.zeros(len(self.examples) if n_replicas else 0)
        self.idle = np.zeros(len(self.examples), np.uint8)
        self.n_sweeps = 0
        self.sigma = 1 + (n_partitions - 1) / 2
        self.bias = initial.bias
        self.bias_curvature = intercept_curvature(problem, initial)
        self.update_multiplier()

    def run(self, epoch: int, problems: Sequence[int]) -> dict[int, float]:
        """Visit examples in as many sweeps as an epoch has; return an estimate of the gap."""
        if self.options.adaptive:
            self.n_sweeps += 1
            return {0: self.sweep(self.adaptive_plan())}
        problem, seed = self.problem, self.options.seed
        if not len(self.replicas):
            self.bias, self.n_sweeps, estimate = sdca_solver.epoch_of_sweeps(
                *problem.rows,
                examples=self.examples,
                v=self.v,
                idle=self.idle,
                bucket=self.bucket,
                seed=seed,
                n_sweeps=self.n_sweeps,
                loss=problem.phi.kernel,
                parameter=problem.phi.parameter,
                l2=problem.l2,
                shrink=problem.shrink,
                bias=self.bias,
                bias_curvature=self.bias_curvature,
            )
            return {0: estimate}
        n, n_visits, estimates = len(self.examples), 0, []
        while n_visits < n:
            rows = visits.awake(self.idle, self.n_sweeps + 1)
            if n_visits and n_visits + len(rows) > n:
                break
            self.n_sweeps += 1
            order = visits.shuffled(len(rows), self.bucket, seed, self.n_sweeps)
            estimates.append(self.sweep(order if len(rows) == n else rows[order]))
            n_visits += len(rows)
        return {0: sum(estimates) / len(estimates)}

    def sweep(self, plan: np.ndarray) -> float:
        """Visit the examples of a plan; return an estimate of the gap."""
        problem = self.problem
        self.bias, self.sigma, estimate = sdca_solver.epoch(
            *problem.rows,
            plan,
            self.examples,
            self.v,
            self.replicas,
            self.before,
            self.idle[: 0 if self.options.adaptive else None],
            *problem.loss,
            problem.l2,
            problem.shrink,
            self.bias,
            self.bias_curvature,
            self.sigma,
            MERGES,
            problem.threads,
        )
        self.update_multiplier()
        return estimate

    def update_multiplier(self) -> None:
        """Update the multiplier of the augmented Lagrangian, which is the intercept.

        With an intercept, the weighted dual variables must sum to 0. The intercept is treated as
        the weight of a constant feature with the penalty rho / 2 * (b - centre)**2; the centre then
        moves to b, so that the penalty vanishes in the limit.
        """
        if self.problem.intercept:
            dual_sum = weighted_sum(self.examples["weight"], self.examples["a"])
            self.bias += self.bias_curvature * dual_sum

    def adaptive_plan(self) -> np.ndarray:
        """Return a plan of visits, sampled by the examples' distances from their optima."""
        wx = visits.predictions(
            *self.problem.rows, self.v, self.problem.shrink, self.problem.threads
        )
        p = visits.importance(
            self.examples,
            wx + self.bias,
            self.problem.phi.kernel,
            self.problem.l2,
            self.problem.phi.parameter,
        )
        return visits.sampled(p, self.options.seed, self.n_sweeps)

    def points(self, problems: Sequence[int]) -> dict[int, Point]:
        """Return the unshrunk weights, an array that later visits change, and the intercept."""
        return {0: (self.v, self.bias)}

    def duals(self, k: int) -> np.ndarray:
        """Return the current dual variables."""
        duals: np.ndarray = self.examples["a"].copy()
        return duals


class LaneVisits:
    """Epochs of up to LANES classes together; unused columns are zero."""

    def __init__(self, problem: Problem, initial_points: list[InitialPoint], options: Parameters):
        self.problem, self.options, self.n_classes = problem, options, len(initial_points)
        first, n = initial_points[0], len(initial_points[0].y)
        self.bucket = bucket_for(problem)
        self.samples = np.zeros(n, sdca_classes.SAMPLE)
        self.samples["weight"], self.samples["curvature"] = first.weight, first.curvature()
        self.samples["lane"] = -1
        self.labels = np.zeros((n, LANES))
        self.b = aligned_zeros((n, LANES))
        self.bias = np.zeros(LANES)
        for c, initial in enumerate(initial_points):
            self.samples["lane"][initial.y > 0] = c
            self.labels[:, c] = initial.y
            self.b[:, c] = initial.y * initial.a
            self.bias[c] = initial.bias
        self.t = aligned_zeros((n if problem.phi.keeps_logits else 0, LANES))
        self.bias_curvature = intercept_curvature(problem, first)
        self.v = aligned_zeros((problem.n_weights, LANES))
        if self.b.any():
            self.v[...] = self.weights_of(self.labels * self.b)
        self.refresh(list(range(len(initial_points))))
        self.update_multiplier()

    def weights_of(self, duals: np.ndarray) -> np.ndarray:
        """Return the unshrunk weights of dual variables, a column for each class."""
        factors = self.samples["weight"][:, None] * duals / self.problem.l2
        return sdca_classes.weights_of(*self.problem.rows, factors, self.problem.n_weights)

    def refresh(self, classes: list[int]) -> None:
        """Recompute the logits from the dual variables, to remove accumulated rounding.

        Only these classes change: the result of one must not depend on when others are certified.
        """
        if len(self.t):
            b = self.b[:, classes]
            with np.errstate(divide="ignore"):
                self.t[:, classes] = np.log(b) - np.log1p(-b)

    def run(self, epoch: int, problems: Sequence[int]) -> dict[int, float]:
        """Visit the samples once; return estimates of the gaps."""
        problem = self.problem
        plan = visits.shuffled(len(self.samples), self.bucket, self.options.seed, epoch)
        estimates = sdca_classes.epoch(
            *problem.rows,
            plan,
            self.samples,
            self.b,
            self.t,
            self.v,
            self.bias,
            self.n_classes,
            *problem.loss,
            problem.l2,
            problem.shrink,
            self.bias_curvature,
        )
        self.update_multiplier()
        return dict(enumerate(estimates.tolist()))

    def update_multiplier(self) -> None:
        """Update the multipliers, which are the intercepts; see `RowVisits.update_multiplier`."""
        if self.problem.intercept:
            duals = self.labels * self.b
            duals *= self.samples["weight"][:, None]
            self.bias += self.bias_curvature * np.add.reduce(duals, axis=0)

    def points(self, problems: Sequence[int]) -> dict[int, Point]:
        """Remove rounding; return the unshrunk weights and the intercepts of classes."""
        self.refresh(list(problems))
        return {k: (self.v[:, k].copy(), float(self.bias[k])) for k in problems}

    def duals(self, k: int) -> np.ndarray:
        """Return the current dual variables of a class."""
        return np.asarray(self.labels[:, k] * self.b[:, k])
