"""Linear models by dual coordinate ascent over blocks of examples that stay together.

What ``tfopt.linear_model`` does with partitions that are given, in this process or on a cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfopt_ref.sdca import shuffled
from tfopt_ref.sdca_certificate import (
    Fit,
    Problem,
    examples_of,
    first_bias,
    rows_of,
)
from tfopt_ref.sdca_fit import INTERCEPT_SHARE, centred, climb
from tfopt_ref.sdca_losses import loss_named
from tfopt_ref.sdca_newton import Newton
from tfopt_ref.sdca_solver import Excess, bregman, kept, visit

__all__ = ["fit"]

#: In how many parts an epoch visits a block, and how many blocks are visited side by side, at most.
PARTS, SIDE_BY_SIDE = 4, 8


def fit(
    X: Any,
    y: np.ndarray,
    c: np.ndarray,
    loss: str,
    *,
    blocks: Sequence[int],
    parameter: float = 1.0,
    l1: float = 0.0,
    l2: float = 1.0,
    intercept: bool = True,
    tol: float = 1e-4,
    max_iter: int = 1000,
    seed: int = 0,
    newton: Newton | None = None,
) -> Fit:
    """Visit the examples, each block's in random order, until the gap is tol of the primal.

    Parameters
    ----------
    X : ndarray or CSR matrix of float32 or float64, shape (n_examples, n_features)
    y : ndarray of float64, shape (n_examples,)
        -1 or 1 for the losses of classification.
    c : ndarray of float64, shape (n_examples,)
        The examples' weights.
    loss : str
        A name of `LOSSES`.
    blocks : sequence of int
        How many examples each block has.
    parameter : float
        That of the loss, if it has one.
    l1, l2 : float
    intercept : bool
        Whether there is a b.
    tol, max_iter, seed, newton
        See `tfopt_ref.sdca_fit.fit`.

    Returns
    -------
    Fit
        The one with the least gap of those that were certified.
    """
    X, mean = centred(X, intercept)
    problem = Problem(X, y, c, loss_named(loss, parameter), l1, l2, intercept)
    state = Blocks(problem, blocks, seed)
    start = state.examples, state.v, state.b
    found = climb(problem, state.epoch, *start, tol, max_iter, newton)
    return found._replace(b=found.b - found.w @ mean)


class Blocks:
    """Examples in blocks, and the point that has been reached.

    Attributes
    ----------
    examples : ndarray of EXAMPLE
    v : ndarray, shape (n_features,)
    b, drift : float
        The intercept, and the sum of c * a.
    sigma : float
        How often a block counts its changes.
    """

    def __init__(self, problem: Problem, lengths: Sequence[int], seed: int) -> None:
        self.problem, self.seed = problem, seed
        self.rows, self.examples = rows_of(problem.X), examples_of(problem)
        self.blocks = np.split(np.arange(len(self.examples)), np.cumsum(lengths)[:-1])
        self.v, self.b, self.drift = np.zeros(problem.X.shape[1]), first_bias(problem), 0.0
        self.sigma = 1 + (min(len(lengths), SIDE_BY_SIDE) - 1) / 2
        self.curvature = 0.0
        if problem.intercept:
            sums = [float(self.examples["curvature"][block].sum()) for block in self.blocks]
            self.curvature = INTERCEPT_SHARE * (tree_sum(sums) / len(self.examples)) or 1.0

    def epoch(self, number: int) -> float:
        """Visit all examples, and return the estimate of the gap."""
        plans = [
            block[shuffled(len(block), 1, self.seed + (k << 32), number)]
            for k, block in enumerate(self.blocks)
        ]
        n_waves = -(-len(plans) // SIDE_BY_SIDE)
        estimate = 0.0
        for part in range(PARTS):
            for wave in range(n_waves):
                estimate += self.round([
                    plan[len(plan) * part // PARTS : len(plan) * (part + 1) // PARTS]
                    for plan in plans[wave::n_waves]
                ])  # fmt: skip
        self.b += self.curvature * self.drift  # the centre moves to where b is
        return estimate

    def round(self, shares: list[np.ndarray]) -> float:
        """Visit a share of each block of a wave, and keep what can be kept of the changes."""
        a, v, shrink = self.examples["a"], self.v, self.problem.l1 / self.problem.l2
        before = a.copy()
        dv, own, db, drift, estimate = map(tree_sum, zip(*map(self.visited, shares), strict=True))
        more = self.of_bias(db)
        joint, bound = bregman(v, dv, shrink) + more, bregman(v, dv, 0.0) + more
        theta, self.sigma = kept(Excess(joint, own, bound), len(shares), self.sigma)
        v += theta * dv
        self.b += theta * db
        self.drift += theta * drift
        if theta < 1:
            for share in shares:
                a[share] = before[share] + theta * (a[share] - before[share])
        return float(estimate)

    def visited(self, share: np.ndarray) -> tuple[np.ndarray, float, float, float, float]:
        """Visit examples, of one block, on a replica of v, counting changes sigma times.

        Returns the changes of v, of the squared norm beyond its first order, of b, and of the sum
        of c * a, each counted once; and the estimate of the gap.
        """
        problem, sigma = self.problem, self.sigma
        shrink, u, before = problem.l1 / problem.l2, self.v.copy(), self.examples["a"][share]
        b, estimate = visit(
            self.rows, share.tolist(), self.examples, u, self.b, problem.phi, problem.l2, shrink,
            self.curvature, sigma,
        )  # fmt: skip
        d, db = u - self.v, (b - self.b) / sigma
        own = bregman(self.v, d, shrink) / (sigma * sigma) + self.of_bias(db)
        drift = float(np.sum(problem.c[share] * (self.examples["a"][share] - before)))
        return d / sigma, own, db, drift, estimate

    def of_bias(self, db: float) -> float:
        """Return what a change of b adds, as that of a weight does."""
        return db * db / (2 * self.curvature * self.problem.l2) if self.curvature > 0 else 0.0


def tree_sum(terms: Sequence[Any]) -> Any:
    """Add up neighbours, then neighbours among the sums, and so on: whoever has which terms."""
    while len(terms) > 1:
        pairs = [terms[k : k + 2] for k in range(0, len(terms), 2)]
        terms = [pair[0] + pair[1] if len(pair) == 2 else pair[0] for pair in pairs]
    return terms[0]
