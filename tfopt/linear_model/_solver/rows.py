"""What a solver computes with the rows of one problem: functions of their state.

States are immutable and share unchanged arrays, so that a computation whose result was lost can be
repeated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tfopt.kernels.sdca import hessian_products, second_order
from tfopt.linear_model._solver.objective import Objective
from tfopt.linear_model._solver.reductions import weighted_sum

__all__ = [
    "Linearization",
    "RowState",
    "dual_residual",
    "dual_sums",
    "gap_sums",
    "hessian",
    "hessian_product",
    "intercept_derivatives",
    "linearize",
    "predicted",
    "projected",
]

#: Points with larger losses count as infinitely bad: sums of derivatives would overflow there.
FAR = 1e200

_NOTHING = np.zeros(0)


@dataclasses.dataclass(frozen=True)
class RowState:
    """The rows of one problem: labels, dual variables, and what was computed last.

    Attributes
    ----------
    examples : ndarray of EXAMPLE
        With the initial dual variables.
    a : ndarray, shape (n_rows,)
        The current dual variables of the visits.
    visited, before : ndarray
        The rows that were visited last, and their dual variables before that.
    wx : ndarray, shape (n_rows,)
        x . w at the last point.
    kinks : tuple of ndarray
        For the hinge loss: see `_kinks`.
    hess_pointwise : ndarray, shape (n_rows,)
        The weighted second derivatives of the losses at the last linearization.
    certified, best : ndarray, shape (n_rows,)
        The dual variables of the last certificate, or about to be certified, and of the best.
    """

    examples: np.ndarray
    a: np.ndarray
    visited: np.ndarray
    before: np.ndarray
    wx: np.ndarray
    kinks: tuple[np.ndarray, ...]
    hess_pointwise: np.ndarray
    certified: np.ndarray
    best: np.ndarray

    @classmethod
    def initial(cls, examples: np.ndarray) -> RowState:
        """Return the state of rows that were not visited yet."""
        a, no_rows = examples["a"].copy(), np.zeros(0, np.int64)
        return cls(examples, a, no_rows, _NOTHING, _NOTHING, (), _NOTHING, a, a)

    def examples_with(self, a: np.ndarray) -> np.ndarray:
        """Return the examples with these dual variables."""
        examples = self.examples.copy()
        examples["a"] = a
        return examples


class Linearization(NamedTuple):
    """The losses at a point and their derivatives, summed over rows.

    Attributes
    ----------
    losses : float
        Infinity where they or their derivatives overflow.
    gradient : ndarray, shape (n_weights + 1,)
        The intercept is last.
    hessian : ndarray, shape (n_weights + 1, n_weights + 1) or (n_weights + 1,)
        The Hessian, or its diagonal.
    residual : ndarray or None
        `dual_residual` of minus the losses' derivatives, if there is an intercept.
    """

    losses: float
    gradient: np.ndarray
    hessian: np.ndarray
    residual: np.ndarray | None


def predicted(objective: Objective, state: RowState, wx: np.ndarray) -> RowState:
    """Return the state at new predictions, where the current dual variables are to be certified."""
    kinks: tuple[np.ndarray, ...] = ()
    if objective.intercept and objective.loss == "hinge_loss":
        kinks = _kinks(state.examples, wx)
    return dataclasses.replace(state, wx=wx, kinks=kinks, certified=state.a)


def _kinks(examples: np.ndarray, wx: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the intercepts where the losses have corners, ascending, and cumulated weights.

    The weights are those of the negative and of the positive examples up to each corner.
    """
    kinks = examples["y"] - wx
    order = np.argsort(kinks, kind="stable")
    y, weight = examples["y"][order], examples["weight"][order]
    return kinks[order], *(
        np.append(0.0, np.cumsum(np.where(y * side > 0, weight, 0.0))) for side in (-1, 1)
    )


def intercept_derivatives(
    objective: Objective, state: RowState, biases: Sequence[float]
) -> np.ndarray:
    """Return the first and second derivatives of the sum of the losses by the intercept.

    Returns
    -------
    ndarray, shape (2, n_biases)
    """
    if state.kinks:  # a negative example counts right of its corner, a positive one left of it
        kinks, negative, positive = state.kinks
        gradient = (
            negative[np.searchsorted(kinks, biases)]
            + positive[np.searchsorted(kinks, biases, side="right")]
            - positive[-1]
        )
        return np.array([gradient, np.zeros_like(gradient)])
    each = (objective.derivatives(state.examples, state.wx, bias) for bias in biases)
    return np.array([[part.sum() for part in pair] for pair in each]).T


def dual_residual(objective: Objective, state: RowState) -> np.ndarray | None:
    """Return the sums over all rows that `projected` has to know, if there is an intercept."""
    return (
        dual_sums(state.examples, state.certified, objective.loss) if objective.intercept else None
    )


def dual_sums(examples: np.ndarray, a: np.ndarray, loss: str) -> np.ndarray:
    """Return two sums that say how far dual variables are from a weighted sum of 0."""
    y, weight = examples["y"], examples["weight"]
    if loss == "squared_loss":
        return np.array([weighted_sum(weight, a), weight.sum()])
    if loss == "poisson_loss":
        return np.array([weighted_sum(weight, y), weighted_sum(weight, y - a)])
    return np.array([weighted_sum(weight, np.abs(a) * (side == (a > 0))) for side in (0, 1)])


def projected(objective: Objective, state: RowState, residual: np.ndarray | None) -> RowState:
    """Make the dual variables feasible for an intercept: shift or scale them to a sum of 0.

    Parameters
    ----------
    objective : Objective
    state : RowState
    residual : ndarray or None
        `dual_residual` of all rows.
    """
    if residual is None:
        return state
    a, y = state.certified, state.examples["y"]
    if objective.loss == "squared_loss":
        a = a - residual[0] / residual[1]
    elif objective.loss == "poisson_loss":  # y - a >= 0, and must have the mean of y
        a = y - (y - a) * (residual[0] / residual[1])
    else:  # a range around 0: scale down those of the sign with the larger sum
        heavy = int(residual[1] > residual[0])
        if residual[heavy] > residual[1 - heavy]:
            a = np.where((a > 0) == heavy, a * (residual[1 - heavy] / residual[heavy]), a)
    return dataclasses.replace(state, certified=a)


def gap_sums(objective: Objective, state: RowState, bias: float) -> np.ndarray:
    """Return the sums of the losses and of the Fenchel-Young gaps at the last x . w."""
    return np.array(objective.gaps(state.examples_with(state.certified), state.wx, bias))


@np.errstate(over="ignore", invalid="ignore")  # what is not finite is far away
def linearize(
    objective: Objective, state: RowState, w: np.ndarray, bias: float
) -> tuple[RowState, Linearization]:
    """Return the losses at a point and their derivatives, with the diagonal of the Hessian.

    Minus the losses' derivatives are then to be certified.
    """
    weight, a = state.examples["weight"], state.certified.copy()
    losses, wx, grad_pointwise, hess_pointwise, gradient, diagonal = hessian_products.tangent(
        *objective.rows,
        state.examples,
        w,
        bias,
        objective.loss,
        objective.parameter,
        objective.threads,
    )
    if not (losses < FAR and np.isfinite(gradient).all() and np.isfinite(diagonal).all()):
        losses, grad_pointwise = np.inf, np.zeros_like(grad_pointwise)
        hess_pointwise = np.zeros_like(hess_pointwise)
        gradient, diagonal = np.zeros_like(gradient), np.zeros_like(diagonal)
    np.divide(-grad_pointwise, weight, out=a, where=weight > 0)
    state = dataclasses.replace(state, wx=wx, hess_pointwise=hess_pointwise, certified=a)
    return state, Linearization(losses, gradient, diagonal, dual_residual(objective, state))


def hessian(objective: Objective, state: RowState) -> np.ndarray:
    """Return the Hessian of the losses at the last linearization."""
    return second_order.hessian(
        *objective.rows, state.hess_pointwise, objective.n_weights, objective.threads
    )


def hessian_product(objective: Objective, state: RowState, s: np.ndarray) -> np.ndarray:
    """Return the product of the Hessian of the losses and a vector."""
    return hessian_products.product(
        *objective.rows, state.hess_pointwise, s, threads=objective.threads
    )
