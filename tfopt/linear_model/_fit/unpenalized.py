"""Dual variables for weights without a penalty, of which nothing may be left in X^T (weight * a).

Of weights that may not be negative, nothing above 0; and with an intercept their sum is 0. Dual
variables near the minimum are moved by what a Newton step of these weights alone predicts. What
rounding leaves is counted to the gap.
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

#: How often dual variables are moved: where some would leave their range, the others move further.
ROUNDS = 10
#: What may be left: as a share of the losses, what making up for it would cost. Rounds go on while
#: they lower it to less than a quarter, if it is above the first number.
LEAST, MOST = 2.0**-100, 2.0**-60
#: Of weights that may not be negative so many may be bound, and so many times those that are not 0:
#: with more the minimum is far.
SPARE, MORE = 10, 2
#: What is added to the diagonal, as a share of it, so that features may depend on each other.
RIDGE = 1e-10


class Moved(NamedTuple):
    """Dual variables that have been moved.

    Attributes
    ----------
    certified : ndarray, shape (n_rows,)
    x_duals : ndarray, shape (n_weights,)
    cost : float
        That of making up for what is left, in losses.
    """

    certified: np.ndarray
    x_duals: np.ndarray
    cost: float


@np.errstate(over="ignore", invalid="ignore")
def moved_duals(
    problem: Problem, features: Features, state: RowState, w: np.ndarray, losses: float
) -> Moved | None:
    """Move the dual variables that are to be certified, at weights with these losses.

    None: they could not be moved far enough.
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
    """Return the Hessian by some weights and the intercept, whatever depends on what."""
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
    """Raise InvalidArgumentError if weights without a penalty make a likelihood grow for ever."""
    phi, free = problem.phi, np.flatnonzero(problem.penalties.are_free)
    if phi.is_classification and phi.is_likelihood:
        z = visits.predictions(*features.rows(free), w[free], 0.0, problem.threads) + bias
        refuse_separated(state.examples, z)


def refuse_separated(examples: np.ndarray, z: np.ndarray) -> None:
    """Raise InvalidArgumentError if all samples with weight are on the right side."""
    margins = examples["y"] * z
    if margins[examples["weight"] > 0].min() > 0:
        raise InvalidArgumentError(
            "without a penalty there is no minimum: these weights separate the classes, and larger "
            "ones always have smaller losses; set l2 above 0, and no factor of 0 in penalty_factor"
        )
