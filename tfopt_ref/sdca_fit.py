"""Linear models by stochastic dual coordinate ascent, until a duality gap is small enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt_ref.sdca import awake, shuffled
from tfopt_ref.sdca_certificate import (
    Fit,
    Problem,
    certificate,
    examples_of,
    first_bias,
    rows_of,
)
from tfopt_ref.sdca_losses import loss_named
from tfopt_ref.sdca_newton import Newton, beginning, steps
from tfopt_ref.sdca_solver import epoch

__all__ = ["Fit", "fit"]

#: Epochs between certificates, at most; and what the estimate of the gap may be off by.
CERTIFY_EVERY, SLACK = 10, 1.2
#: The curvature of the intercept as a share of the mean example's.
INTERCEPT_SHARE = 0.1
MERGES = 2
#: Newton's method is not worth beginning if epochs take as long as so many steps, about.
NEWTON_STEPS = 3
#: By how much an epoch lowers the logarithm of the gap: a guess for the first certificate; and a
#: tol below which there is nothing but rounding.
FIRST_RATE, LEAST_TOL = 0.3, 1e-16


def fit(
    X: Any,
    y: np.ndarray,
    c: np.ndarray,
    loss: str,
    *,
    parameter: float = 1.0,
    l1: float = 0.0,
    l2: float = 1.0,
    intercept: bool = True,
    n_partitions: int = 1,
    tol: float = 1e-4,
    max_iter: int = 1000,
    seed: int = 0,
    newton: Newton | None = None,
) -> Fit:
    """Visit the examples in random order until the gap is tol of the primal.

    Parameters
    ----------
    X : ndarray or CSR matrix of float32 or float64, shape (n_examples, n_features)
    y : ndarray of float64, shape (n_examples,)
        -1 or 1 for the losses of classification.
    c : ndarray of float64, shape (n_examples,)
        The examples' weights.
    loss : str
        A name of `LOSSES`.
    parameter : float
        That of the loss, if it has one.
    l1, l2 : float
    intercept : bool
        Whether there is a b.
    n_partitions, tol, max_iter, seed
        See `tfopt.linear_model.LinearClassifier`.
    newton : Newton, optional
        For the losses but the hinge, without l1: when Newton's method is worth it.

    Returns
    -------
    Fit
        The one with the least gap of those that were certified.
    """
    X, mean = centred(X, intercept)
    problem = Problem(X, y, c, loss_named(loss, parameter), l1, l2, intercept)
    rows, examples, v = rows_of(X), examples_of(problem), np.zeros(X.shape[1])
    b = first_bias(problem)
    # b is the weight of a feature 1 with the penalty rho / 2 * (b - centre)**2: curvature 1 / rho
    curvature = (INTERCEPT_SHARE * float(examples["curvature"].mean()) or 1.0) if intercept else 0.0
    replicas = np.zeros((n_partitions if n_partitions > 1 else 0, len(v)))
    sigma = 1 + (n_partitions - 1) / 2

    idle, n, n_sweeps = np.zeros(len(y), np.uint8), len(y), 0

    def visit(_: int) -> float:
        """Visit about n examples, in sweeps over those that are awake."""
        nonlocal n_sweeps
        n_visits, estimates = 0, list[float]()
        while n_visits < n:
            chosen = awake(idle, n_sweeps + 1)
            if n_visits and n_visits + len(chosen) > n:
                break
            n_sweeps += 1
            estimates.append(sweep(chosen[shuffled(len(chosen), 1, seed, n_sweeps)]))
            n_visits += len(chosen)
        return sum(estimates) / len(estimates)

    def sweep(plan: np.ndarray) -> float:
        nonlocal b, sigma
        b, sigma, estimate = epoch(
            *rows, plan.tolist(), examples, v, replicas, np.zeros(n), idle, loss, parameter, l2,
            l1 / l2, b, curvature, sigma, MERGES, 1,
        )  # fmt: skip
        b += curvature * math.fsum(c * examples["a"])  # the centre moves to where b is
        return estimate

    found = climb(problem, visit, examples, v, b, tol, max_iter, newton)
    return found._replace(b=found.b - found.w @ mean)


def centred(X: Any, intercept: bool) -> tuple[Any, np.ndarray]:
    """Return X without the features' means, and these, if they outweigh the variances.

    An intercept, which is to be had for nothing, makes them of no account, but visits are slow to
    learn that. Of a CSR matrix, whose zeros must stay, nothing is subtracted, as 0 is here.
    """
    if intercept and isinstance(X, np.ndarray):
        mean = X.mean(axis=0, dtype=np.float64)
        if (mean**2).sum() > X.var(axis=0, dtype=np.float64).sum():
            return X - mean, mean
    return X, np.zeros(X.shape[1])


def climb(
    problem: Problem,
    visit: Callable[[int], float],
    examples: np.ndarray,
    v: np.ndarray,
    b: float,
    tol: float,
    max_iter: int,
    newton: Newton | None,
) -> Fit:
    """Return the best of what is certified after epochs, until one is good enough.

    `visit` changes the examples' dual variables and v, given an epoch's number, and returns the
    estimate of the gap. Where the certificates say that epochs would take longer than Newton's
    method, that takes over; if it comes to an end too early, epochs go on.
    """
    best: Fit | None = None
    certified, per_gap, last_gap = 0, 1.0, math.inf
    n_iter, number, begins = 0, 0, newton is not None and newton.cost == 0
    due = {2}
    found = Fit(v.copy(), b, examples["a"].copy(), math.inf, math.inf, 0)
    if newton is not None and begins and newton.sample:
        found = beginning(problem, found, newton.sample)
    while True:
        if newton is not None and begins:
            for point in steps(problem, found, newton):
                n_iter, best = n_iter + 1, better(best, point)
                if best.near(tol) or n_iter == max_iter:
                    return best
            newton = None
        n_iter, number = n_iter + 1, number + 1
        estimate = visit(number)
        small = best is not None and estimate <= SLACK * tol * best.primal * per_gap
        if small or number in due | {certified + CERTIFY_EVERY} or n_iter == max_iter:
            found = certificate(problem, examples["a"], v, n_iter)
            best = better(best, found)
            if best.near(tol) or n_iter == max_iter:
                return best
            rate = math.log(last_gap / found.gap) / (number - certified)
            is_first = math.isinf(last_gap)
            rate = FIRST_RATE if is_first else rate
            certified, per_gap, last_gap = number, estimate / found.gap, found.gap
            if newton is not None:
                left, cost = epochs_left(found, tol, rate), NEWTON_STEPS * newton.cost
                begins = left > cost
                if is_first and begins and left <= newton.doubt * cost:
                    begins, due = False, {number + 1}


def better(best: Fit | None, found: Fit) -> Fit:
    return found if best is None or found.gap < best.gap else best


def epochs_left(found: Fit, tol: float, rate: float) -> float:
    """Return how many epochs it takes to lower the gap's logarithm, by a rate, to its end."""
    if rate <= 0:
        return math.inf
    return math.log(found.gap / found.primal / max(tol, LEAST_TOL)) / rate
