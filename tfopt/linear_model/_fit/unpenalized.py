"""Feasible dual variables for weights without a penalty.

For such a weight, X^T (weight * a) must be 0, or at most 0 if the weight may not be negative; with
an intercept the weighted sum of the dual variables must be 0. Dual variables near the minimum are
made feasible by a Newton step over these weights only. The cost of the remaining rounding error is
added to the gap.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tfopt.errors import InvalidArgumentError
from tfopt.kernels.linear import second_order, visits
from tfopt.linear_model._fit.features import Features
from tfopt.linear_model._fit.problem import Problem, Rows
from tfopt.linear_model._fit.rows import RowState
from tfopt.linear_model.loss_record import weighted_sum

__all__ = ["Moved", "check_separation", "moved_duals", "refuse_separated"]

#: The largest number of moves: where some dual variables reach their bounds, the others move again.
ROUNDS = 10
#: The cost of the remaining violation, as a share of the losses: below the first number no move is
#: made; below the second one, moves end when one does not lower it to less than a quarter.
LEAST, MOST = 2.0**-100, 2.0**-60
#: With nonnegative weights, at most SPARE + MORE * (number of nonzero weights) constraints may be
#: violated: otherwise the minimum is far.
SPARE, MORE = 10, 2
#: The share of the diagonal that is added to it, so that features may be linearly dependent.
RIDGE = 1e-10


class Moved(NamedTuple):
    """Dual variables that have been moved.

    Attributes
    ----------
    certified : ndarray, shape (n_rows,)
    x_duals : ndarray, shape (n_weights,)
    cost : float
        The cost of correcting the remaining violation, in units of the losses.
    """

    certified: np.ndarray
    x_duals: np.ndarray
    cost: float


@np.errstate(over="ignore", invalid="ignore")
def moved_duals(
    problem: Problem, features: Features, state: RowState, w: np.ndarray, losses: float
) -> Moved | None:
    """Make the dual variables `state.certified` feasible, at weights with these losses.

    Return None if that fails, since the minimum is far or a system cannot be solved.
    """
    examples, free, a = state.examples, problem.penalties.are_free, state.certified
    weight, bends, H = examples["weight"], state.hess_pointwise, np.zeros((0, 0))
    is_bound, last = free & (w != 0) if problem.positive else free, math.inf
    for _ in range(ROUNDS):
        u = np.zeros(problem.n_weights)
        visits.weights_of(*problem.rows, state.examples_with(a), u, 1.0)
        bound = np.flatnonzero(is_bound | (free & (u > 0)))
        if problem.positive and bound.size > SPARE + MORE * np.count_nonzero(w):
            return None  # far from the minimum
        left = np.append(u[bound], weighted_sum(weight, a) if problem.intercept else 0.0)
        is_known = len(H) == left.size
        if not is_known:
            is_bound[bound], few = True, features.rows(bound)
            H = _curvature(problem, few, bends, bound.size)
            diagonal = np.diagonal(H).copy()
        cost = weighted_sum(np.square(left), 1 / diagonal) / 2
        if cost <= LEAST * losses or last / 4 < cost <= MOST * losses:
            return Moved(a, u, cost)
        last = cost
        if not second_order.solve(H, left, is_known):
            return None
        change = visits.predictions(*few, left[:-1], 0.0, problem.threads) + left[-1]
        moved = a - np.divide(bends * change, weight, out=np.zeros_like(a), where=weight > 0)
        a = problem.phi.clip_duals(moved, examples["y"])
        if (a != moved).any():
            bends, H = np.where(a == moved, bends, 0.0), np.zeros((0, 0))
    return None


def _curvature(problem: Problem, few: Rows, bends: np.ndarray, n: int) -> np.ndarray:
    """Return the Hessian by some weights and the intercept, plus a ridge that makes it regular."""
    nothing = np.zeros_like(bends)
    _, H = second_order.newton_system(*few, nothing, bends, n, problem.threads)
    if not problem.intercept:
        H[-1] = H[:, -1] = 0.0
    diagonal = np.einsum("ii->i", H)
    diagonal += np.where(diagonal > 0, RIDGE * diagonal, 1.0)
    return H


def check_separation(
    problem: Problem, features: Features, state: RowState, w: np.ndarray, bias: float
) -> None:
    """Raise InvalidArgumentError if unpenalized weights separate the classes of a likelihood."""
    phi, free = problem.phi, np.flatnonzero(problem.penalties.are_free)
    if phi.is_classification and phi.is_likelihood:
        z = visits.predictions(*features.rows(free), w[free], 0.0, problem.threads) + bias
        refuse_separated(state.examples, z)


def refuse_separated(examples: np.ndarray, z: np.ndarray) -> None:
    """Raise InvalidArgumentError if all samples with a positive weight have positive margins."""
    margins = examples["y"] * z
    if margins[examples["weight"] > 0].min() > 0:
        raise InvalidArgumentError(
            "without a penalty there is no minimum: these weights separate the classes, and larger "
            "ones always have smaller losses; set l2 above 0, and no factor of 0 in penalty_factor"
        )
