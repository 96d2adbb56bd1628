"""Several classes, each against the rest, whose epochs share each access to a row."""

from __future__ import annotations

import dataclasses

import numpy as np
from sklearn.utils.parallel import Parallel, delayed

from tfopt.kernels import sdca, sdca_classes
from tfopt.linear_model import newton
from tfopt.linear_model.problem import Certificate, Problem, Start, balance, certify_balanced
from tfopt.linear_model.search import Search, Settings, Solution
from tfopt.linear_model.solver import bucket_for, intercept_curvature, solve

__all__ = ["LANES", "solve_all"]

#: How many classes are solved together, at most.
LANES = sdca_classes.LANES


def solve_all(
    problem: Problem, starts: list[Start], settings: Settings, workers: int
) -> list[Solution]:
    """Solve problems that share their rows, on so many threads.

    Parameters
    ----------
    problem : Problem
    starts : list of Start
        Of one problem, or of classes, each against the rest.
    settings : Settings
    workers : int

    Returns
    -------
    list of Solution
    """
    if len(starts) == 1:
        return [solve(problem, starts[0], settings)]
    parallel = Parallel(n_jobs=workers, require="sharedmem")
    if settings.adaptive or settings.n_partitions > 1:
        solutions = parallel(
            delayed(solve)(problem, start, settings, k) for k, start in enumerate(starts)
        )
        return list(solutions)
    rounds = -(-len(starts) // (LANES * workers))
    groups = np.array_split(np.arange(len(starts)), min(rounds * workers, len(starts)))
    solved = parallel(
        delayed(_solve_together)(problem, [starts[k] for k in group], settings, int(group[0]))
        for group in groups
    )
    return [solution for group in solved for solution in group]


def _solve_together(
    problem: Problem, starts: list[Start], settings: Settings, first: int
) -> list[Solution]:
    """Solve LANES problems at most: what `solve` finds for each, but for rounding."""
    costs = newton.cost(problem), newton.cheap_epochs(problem)
    searches = [Search(settings, costs[0], first + k, costs[1]) for k in range(len(starts))]
    epochs = _Epochs(problem, starts, settings)
    going = list(range(len(starts)))
    for number in range(1, settings.max_iter + 1):
        estimates = epochs.run(number)
        due = [k for k in going if searches[k].due(number, estimates[k])]
        for k, point in zip(due, epochs.certificates(due), strict=True):
            if newton.ends(problem, searches[k], point, number, estimates[k]):
                going.remove(k)
        if not going:
            break
    return [search.solution() for search in searches]


class _Epochs:
    """The state that visits change, of all classes; a column of zeros for each that is missing."""

    def __init__(self, problem: Problem, starts: list[Start], settings: Settings):
        self.problem, self.starts, self.settings = problem, starts, settings
        first, n = starts[0], len(starts[0].y)
        self.bucket = bucket_for(problem)
        self.samples = np.zeros(n, sdca_classes.SAMPLE)
        self.samples["weight"], self.samples["curvature"] = first.weight, first.curvature
        self.samples["lane"] = -1
        self.labels = np.zeros((n, LANES))
        self.b = lines((n, LANES))
        self.bias = np.zeros(LANES)
        for c, start in enumerate(starts):
            self.samples["lane"][start.y > 0] = c
            self.labels[:, c] = start.y
            self.b[:, c] = start.y * start.a
            self.bias[c] = start.bias
        self.t = lines((n if problem.loss == "logistic_loss" else 0, LANES))
        self.bias_curvature = intercept_curvature(problem, first)
        self.v = lines((problem.n_weights, LANES))
        if self.b.any():
            self.v[...] = self.weights_of(self.labels * self.b)
        self.refresh(list(range(len(starts))))
        self.recentre()

    def weights_of(self, duals: np.ndarray) -> np.ndarray:
        """Return the unshrunk weights that belong to dual variables, a column of each."""
        factors = self.samples["weight"][:, None] * duals / self.problem.l2
        return sdca_classes.weights_of(*self.problem.rows, factors, self.problem.n_weights)

    def refresh(self, classes: list[int]) -> None:
        """Make the logits those of the dual variables again, where rounding has parted them.

        Of these classes alone: what is done to one must not depend on when others are certified.
        """
        if len(self.t):
            b = self.b[:, classes]
            with np.errstate(divide="ignore"):
                self.t[:, classes] = np.log(b) - np.log1p(-b)

    def run(self, number: int) -> np.ndarray:
        """Visit the samples once, and return the estimates of the gaps."""
        problem = self.problem
        plan = sdca.shuffled(len(self.samples), self.bucket, self.settings.seed, number)
        estimates = sdca_classes.epoch(
            *problem.rows,
            plan,
            self.samples,
            self.b,
            self.t,
            self.v,
            self.bias,
            len(self.starts),
            problem.loss,
            problem.gamma,
            problem.l2,
            problem.shrink,
            self.bias_curvature,
        )
        self.recentre()
        return estimates

    def recentre(self) -> None:
        """Move the intercepts' centres to where they are; see solver.py."""
        if self.problem.intercept:
            duals = self.labels * self.b
            duals *= self.samples["weight"][:, None]
            self.bias += self.bias_curvature * np.add.reduce(duals, axis=0)

    def certificates(self, classes: list[int]) -> list[Certificate]:
        if not classes:
            return []
        problem = self.problem
        w = problem.shrunk(self.v)
        wx = sdca_classes.predictions(*problem.rows, w)
        candidates = {k: self.candidate(k) for k in classes}
        v = self.v
        if problem.intercept:
            duals = np.zeros(self.b.shape)
            for k, examples in candidates.items():
                duals[:, k] = examples["a"]
            v = self.weights_of(duals)
        self.refresh(classes)
        return [
            certify_balanced(
                problem, examples, w[:, k].copy(), wx[:, k].copy(), self.bias[k], v[:, k].copy()
            )
            for k, examples in candidates.items()
        ]

    def candidate(self, k: int) -> np.ndarray:
        """Return a class's examples, with dual variables that a certificate may have."""
        start = self.starts[k]
        examples = dataclasses.replace(start, a=start.y * self.b[:, k]).examples()
        return balance(examples, self.problem.loss) if self.problem.intercept else examples


def lines(shape: tuple[int, int]) -> np.ndarray:
    """Return zeros, each row of LANES in one line of the cache."""
    size = shape[0] * shape[1]
    buffer = np.zeros(size + LANES)
    start = -(buffer.ctypes.data // buffer.itemsize) % LANES
    zeros: np.ndarray = buffer[start : start + size].reshape(shape)
    return zeros
