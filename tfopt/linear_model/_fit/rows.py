"""A solver's computations with the rows of one problem: functions of the state of the rows.

States are immutable and share unchanged arrays. So a computation can be repeated if its result is
lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tfopt.kernels.linear import hessian_products, second_order, visits
from tfopt.linear_model._fit.problem import Problem, Rows
from tfopt.linear_model.loss_record import Corner

__all__ = [
    "Linearization",
    "Near",
    "RowState",
    "certified_step",
    "certified_tangents",
    "dual_residual",
    "gap_sums",
    "gradient",
    "hessian_product",
    "intercept_derivatives",
    "linearize",
    "minus_slopes",
    "newton_system",
    "predicted",
    "projected",
    "tangent_residual",
    "tangents",
]

#: Points with larger losses count as infinitely bad: sums of derivatives would overflow there.
FAR = 1e200

_NOTHING = np.zeros(0)


class RowState(NamedTuple):
    """The state of the rows of one problem: labels, dual variables, and the last results.

    Attributes
    ----------
    examples : ndarray of EXAMPLE
        The labels, weights and curvatures, with the initial dual variables.
    a : ndarray, shape (n_rows,)
        The current dual variables of the visits.
    visited, before : ndarray
        The rows of the last visits, and their dual variables before them.
    wx : ndarray, shape (n_rows,)
        x . w at the last point.
    kinks : tuple of ndarray
        The kinks of losses with corners; see `_kinks`.
    bias : float
        The intercept of the last tangents.
    grad_pointwise, hess_pointwise : ndarray, shape (n_rows,)
        The weighted first and second derivatives of the losses there.
    step_duals : ndarray, shape (n_rows,) or (0,)
        After a Newton step, the negative first derivatives that the tangents at its start predict.
    certified, best : ndarray, shape (n_rows,)
        The dual variables of the last certificate or the next one, and of the best certificate.
    interior : ndarray
        The variables of the interior-point method, if it is used: the fields of its kernel.
    near : Near or None
        The rows to which `interior` belongs, if some are left out.
    seen : ndarray, shape (n_rows,) or (0,)
        The predictions when these rows were chosen.
    reach : float
        The largest absolute residual of a row that was not left out then.
    offset : ndarray, shape (n_rows,), or None
        The numbers added to predictions.
    """

    examples: np.ndarray
    a: np.ndarray
    visited: np.ndarray
    before: np.ndarray
    wx: np.ndarray
    kinks: tuple[np.ndarray, ...]
    bias: float
    grad_pointwise: np.ndarray
    hess_pointwise: np.ndarray
    step_duals: np.ndarray
    certified: np.ndarray
    best: np.ndarray
    interior: np.ndarray = _NOTHING
    near: Near | None = None
    seen: np.ndarray = _NOTHING
    reach: float = 0.0
    offset: np.ndarray | None = None

    @classmethod
    def initial(cls, examples: np.ndarray) -> RowState:
        """Return the state of rows before the first visit."""
        a, no_rows = examples["a"].copy(), np.zeros(0, np.int64)
        nothing = _NOTHING
        return cls(
            *(examples, a, no_rows, nothing, nothing, ()),
            *(0.0, nothing, nothing, nothing, a, a),
        )

    def factors(self) -> np.ndarray:
        """Return a buffer for `gradient`: examples of zeros whose dual variables are 1."""
        factors = np.zeros_like(self.examples)
        factors["a"] = 1.0
        return factors

    def examples_with(self, a: np.ndarray) -> np.ndarray:
        """Return the examples with these dual variables."""
        examples = self.examples.copy()
        examples["a"] = a
        return examples


class Near(NamedTuple):
    """The active rows of the interior-point method, if it leaves out others.

    Attributes
    ----------
    at : ndarray of int
        The numbers of the active rows.
    rows : tuple of ndarray
    duals : ndarray, shape (n_rows,)
        The dual variables of the other rows, at ends of their intervals; 0 for the active rows.
    sums : ndarray, shape (n_weights + 1,)
        X^T times the weighted `duals`, followed by their sum.
    losses : float
        The losses of the other rows at the point where they were left out.
    """

    at: np.ndarray
    rows: Rows
    duals: np.ndarray
    sums: np.ndarray
    losses: float


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
        The `dual_residual` of the negative derivatives, if there is an intercept.
    step_gap : float
        See `tangents`.
    """

    losses: float
    gradient: np.ndarray
    hessian: np.ndarray
    residual: np.ndarray | None
    step_gap: float


def predicted(problem: Problem, state: RowState, wx: np.ndarray) -> RowState:
    """Return the state at new predictions, with the current dual variables to be certified."""
    kinks: tuple[np.ndarray, ...] = ()
    if problem.intercept and not problem.phi.is_smooth:
        kinks = _kinks(state.examples, wx, problem.phi.corners(state.examples["y"]))
    return state._replace(wx=wx, kinks=kinks, certified=state.a)


def _kinks(
    examples: np.ndarray, wx: np.ndarray, corners: Sequence[Corner]
) -> tuple[np.ndarray, ...]:
    """Return the intercepts where the losses have corners, ascending, and cumulated weights.

    The weights are multiplied by the derivatives on the right of the corners, and by the negative
    derivatives on the left.
    """
    kinks = np.concatenate([corner.place - wx for corner in corners])
    order = np.argsort(kinks, kind="stable")
    weight = np.tile(examples["weight"], len(corners))[order]
    rises = np.concatenate([-corner.low for corner in corners])[order]
    falls = np.concatenate([corner.high for corner in corners])[order]
    return kinks[order], *(np.append(0.0, np.cumsum(weight * share)) for share in (rises, falls))


def intercept_derivatives(problem: Problem, state: RowState, biases: Sequence[float]) -> np.ndarray:
    """Return the first and second derivatives of the sum of the losses by the intercept.

    Returns
    -------
    ndarray, shape (2, n_biases)
    """
    if state.kinks:
        kinks, rises, falls = state.kinks
        gradient = (
            rises[np.searchsorted(kinks, biases)]
            + falls[np.searchsorted(kinks, biases, side="right")]
            - falls[-1]
        )
        return np.array([gradient, np.zeros_like(gradient)])
    each = (problem.derivatives(state.examples, state.wx, bias) for bias in biases)
    return np.array([[part.sum() for part in pair] for pair in each]).T


def dual_residual(problem: Problem, state: RowState) -> np.ndarray | None:
    """Return the sums over all rows that `projected` needs, if there is an intercept."""
    if not problem.intercept:
        return None
    examples = state.examples
    return problem.phi.dual_sums(examples["weight"], examples["y"], state.certified)


def projected(problem: Problem, state: RowState, residual: np.ndarray | None) -> RowState:
    """Shift or scale the dual variables to a weighted sum of 0, as an intercept requires.

    Parameters
    ----------
    problem : Problem
    state : RowState
    residual : ndarray or None
        `dual_residual` of all rows.
    """
    if residual is None:
        return state
    a = problem.phi.balanced(state.certified, state.examples["y"], residual)
    return state._replace(certified=a)


def gap_sums(problem: Problem, state: RowState, bias: float) -> np.ndarray:
    """Return the sums of the losses and of the Fenchel-Young gaps at the last x . w."""
    return np.array(problem.gaps(state.examples, state.certified, state.wx, bias))


def tangents(
    problem: Problem, state: RowState, w: np.ndarray, bias: float, after_step: bool
) -> tuple[RowState, float, float]:
    """Return the losses at a point, without sums of their derivatives.

    Parameters
    ----------
    problem : Problem
    state : RowState
    w, bias
        The point.
    after_step : bool
        Whether a Newton step from the last tangents led to the point.

    Returns
    -------
    RowState
    losses : float
        Infinity where they or their derivatives overflow.
    step_gap : float
        An estimate of the Fenchel-Young gaps of the step's dual variables; infinity without a step.
    """
    wx = problem.predictions(w) if w.any() else np.zeros(len(state.examples))
    wx = wx if state.offset is None else wx + state.offset
    last = None
    if after_step:
        change = (wx - state.wx) + (bias - state.bias)
        last = state.grad_pointwise, state.hess_pointwise, change
    losses, slopes, bends, duals, gap = second_order.tangents(
        state.examples, wx, bias, *problem.loss, last, problem.threads
    )
    if not losses < FAR:
        losses, slopes, bends = np.inf, np.zeros_like(slopes), np.zeros_like(bends)
    return _at(state, wx, bias, slopes, bends, duals), losses, gap


def _at(
    state: RowState,
    wx: np.ndarray,
    bias: float,
    slopes: np.ndarray,
    bends: np.ndarray,
    duals: np.ndarray,
) -> RowState:
    return state._replace(
        wx=wx, bias=bias, grad_pointwise=slopes, hess_pointwise=bends, step_duals=duals
    )


def gradient(problem: Problem, state: RowState, factors: np.ndarray) -> np.ndarray:
    """Return the gradient of the losses at the last tangents; the intercept is last.

    `factors` is a buffer from `RowState.factors`: making one takes as long as the gradient.
    """
    factors["weight"] = state.grad_pointwise
    sums = np.zeros(problem.n_weights + 1)
    visits.weights_of(*problem.rows, factors, sums[:-1], 1.0)
    sums[-1] = state.grad_pointwise.sum()
    return sums


def newton_system(problem: Problem, state: RowState) -> tuple[np.ndarray, np.ndarray]:
    """Return the gradient and the Hessian of the losses at the last tangents."""
    return second_order.newton_system(
        *problem.rows,
        state.grad_pointwise,
        state.hess_pointwise,
        problem.n_weights,
        problem.threads,
    )


@np.errstate(over="ignore", invalid="ignore")  # points that are not finite are far away
def linearize(
    problem: Problem, state: RowState, w: np.ndarray, bias: float
) -> tuple[RowState, Linearization]:
    """Return the losses at a point and their derivatives, with the diagonal of the Hessian."""
    losses, wx, slopes, bends, gradient, diagonal = hessian_products.tangent(
        *problem.rows,
        state.examples,
        w,
        bias,
        *problem.loss,
        problem.threads,
    )
    if not (losses < FAR and np.isfinite(gradient).all() and np.isfinite(diagonal).all()):
        losses, slopes, bends = np.inf, np.zeros_like(slopes), np.zeros_like(bends)
        gradient, diagonal = np.zeros_like(gradient), np.zeros_like(diagonal)
    state = _at(state, wx, bias, slopes, bends, _NOTHING)
    residual = tangent_residual(problem, state)
    return state, Linearization(losses, gradient, diagonal, residual, np.inf)


def minus_slopes(problem: Problem, state: RowState) -> np.ndarray:
    """Return the dual variables of the last tangents; those of rows without weight are kept."""
    weight, a = state.examples["weight"], state.certified.copy()
    np.divide(-state.grad_pointwise, weight, out=a, where=weight > 0)
    if problem.phi.link == "identity":  # weight * epsilon / weight may be above epsilon
        a = problem.phi.clip_duals(a, state.examples["y"])
    return a


def tangent_residual(problem: Problem, state: RowState) -> np.ndarray | None:
    """Return the `dual_residual` of the negative derivatives at the last tangents."""
    return dual_residual(problem, state._replace(certified=minus_slopes(problem, state)))


def certified_tangents(
    problem: Problem, state: RowState, bias: float, residual: np.ndarray | None
) -> tuple[RowState, float]:
    """Set the negative derivatives as the dual variables to certify; return the sum of their gaps.

    The sum is 0 unless an intercept requires a projection of the dual variables.
    """
    state = state._replace(certified=minus_slopes(problem, state))
    if residual is None:
        return state, 0.0
    state = projected(problem, state, residual)
    _, gap = problem.gaps(state.examples, state.certified, state.wx, bias)
    return state, gap


def certified_step(problem: Problem, state: RowState, bias: float) -> tuple[RowState, float]:
    """Set a Newton step's dual variables as those to certify; return the sum of their gaps.

    The sum is infinite if they are outside the conjugate's domain.
    """
    _, gap = problem.gaps(state.examples, state.step_duals, state.wx, bias)
    return state._replace(certified=state.step_duals), gap


def hessian_product(problem: Problem, state: RowState, s: np.ndarray) -> np.ndarray:
    """Return the product of the Hessian of the losses and a vector."""
    return hessian_products.product(*problem.rows, state.hess_pointwise, s, threads=problem.threads)
