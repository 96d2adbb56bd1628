"""Proximal Newton steps by coordinate descent on working sets, for smooth losses and any l1, l2.

A step minimizes a quadratic model of the losses plus the penalties over the weights of a working
set: those that are not 0, and those that violate the optimality conditions most. For the squared
loss the model is exact. (Yuan, Ho, Lin: An improved GLMNET for l1-regularized logistic regression,
2012; Massias, Gramfort, Salmon: Celer, 2018.)
"""

from __future__ import annotations

import dataclasses
import math
import threading
from typing import Any

import numpy as np
from scipy import sparse

from tfopt.kernels.sdca import coordinate_descent, second_order, visits
from tfopt.linear_model._solver import rows
from tfopt.linear_model._solver.certificate import Certificate
from tfopt.linear_model._solver.costs import DESCENT_SOLVER, estimate_costs
from tfopt.linear_model._solver.intercept import intercept_search
from tfopt.linear_model._solver.monitor import ConvergenceMonitor, SolverOptions, SolverResult
from tfopt.linear_model._solver.newton import MIN_DECREASE, armijo_holds
from tfopt.linear_model._solver.objective import InitialPoint, Objective, Rows, as_rows
from tfopt.linear_model._solver.reductions import weighted_sum
from tfopt.linear_model._solver.rows import RowState

__all__ = ["Features", "certify_derivatives", "run_descent", "solve_by_descent"]

#: The size of the first working set; that of later ones is at least twice the number of weights
#: that are not 0.
SMALLEST = 128
#: With a larger working set the matrix of the model is not formed.
MOST_IN_MATRIX = 512
#: The largest number of sweeps for one step, by columns.
SWEEPS = 1000
#: The smallest number of sweeps before a linear system is solved, and the largest number of both.
SWEEPS_BEFORE_SOLVING, ROUNDS = 5, 100
#: Sweeps end when they lower the model by less than this times the square of the relative gap: near
#: the minimum a gap is of the order of the violations, and the primal of that of their squares.
PRECISION = 1e-6
#: The share of the largest curvature of a loss that is linear far from its minimum which the others
#: have in the model, too, while the relative gap is not smaller: far from there, there is none.
LEAST_CURVATURE = 0.1
#: Steps that promise mere rounding end when the gap is not below this share of the last.
STALLED = 0.9
#: Curvatures below this share of what they are the difference of are rounding.
CURVATURE_ROUNDING = 1e-12


class Features:
    """The rows of an objective, of which columns are taken; CSR matrices are converted once."""

    def __init__(self, objective: Objective):
        self._n, self._rows = objective.n_weights, objective.rows
        self._dense = objective.rows[3] if objective.rows[3].shape[1] else None
        self._columns: Any = None
        self._lock = threading.Lock()

    def take(self, features: np.ndarray) -> Any:
        """Return columns: an array, or a CSC matrix."""
        if self._dense is not None:
            return self._dense if features.size == self._n else self._dense[:, features]
        with self._lock:  # classes are solved in parallel
            if self._columns is None:
                *entries, dense = self._rows
                shape = (len(dense), self._n)
                self._columns = sparse.csr_array(tuple(entries), shape=shape).tocsc()
        return self._columns if features.size == self._n else self._columns[:, features]

    def rows(self, features: np.ndarray) -> Rows:
        """Return the rows of these columns, as the kernels take them."""
        if features.size == self._n:
            return self._rows
        taken = self.take(features)
        return as_rows(taken.tocsr() if sparse.issparse(taken) else np.ascontiguousarray(taken))

    def columns(self, features: np.ndarray) -> Rows:
        """Return these columns, as the kernels take rows."""
        taken = self.take(features)
        return as_rows(
            sparse.csr_array(taken.T) if sparse.issparse(taken) else np.ascontiguousarray(taken.T)
        )


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def solve_by_descent(
    objective: Objective,
    features: Features,
    initial: InitialPoint,
    options: SolverOptions,
    number: int = 0,
) -> tuple[SolverResult, np.ndarray]:
    """Minimize the objective of one problem; return the result and its dual variables."""
    costs = estimate_costs(objective, DESCENT_SOLVER)
    monitor = ConvergenceMonitor(options, costs, number)
    state = RowState.initial(initial.examples())
    w = np.zeros(objective.n_weights)
    if initial.w is not None:
        wx = objective.predictions(initial.w)
        losses = objective.losses(state.examples, wx, initial.bias)
        w = initial.w if math.isfinite(losses) else w  # which may be far from other rows' minimum
    state = run_descent(objective, features, monitor, state, w, initial.bias)
    return monitor.result(), state.best


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def run_descent(
    objective: Objective,
    features: Features,
    monitor: ConvergenceMonitor,
    state: RowState,
    w: np.ndarray,
    bias: float,
) -> RowState:
    """Take steps from a point until the monitor or rounding ends them.

    Return the state of the rows, with the dual variables of the best certificate.
    """
    weight = state.examples["weight"]
    wx = objective.predictions(w)
    model, last_gap = _Model(objective, features), math.inf
    while True:
        state = rows.predicted(objective, state, wx)
        if objective.intercept:
            bias = best_intercept(objective, state, bias)
        slopes, bends = objective.derivatives(state.examples, wx, bias)
        duals = np.divide(-slopes, weight, out=np.zeros_like(slopes), where=weight > 0)
        state = dataclasses.replace(state, certified=duals)
        state, point, x_duals = certify_derivatives(objective, state, w, bias)
        monitor.update_newton(point)
        if monitor.best is point:
            state = dataclasses.replace(state, best=state.certified)
        if monitor.is_done:
            return state
        gradient = objective.l2 * w - x_duals
        relative_gap = min(point.relative_gap, 1.0)
        if objective.loss == "squared_loss":  # the model is exact
            relative_gap = min(relative_gap, monitor.options.tol)
        if objective.phi.is_linear_far:
            least = min(LEAST_CURVATURE, relative_gap) / objective.phi.gamma
            bends = np.maximum(bends, least * weight)
        tolerance = PRECISION * relative_gap**2 * point.objective
        step = model.step(w, gradient, slopes, bends, tolerance)
        found = w + step[:-1]
        promised = -weighted_sum(gradient, step[:-1])
        promised += objective.l1 * float(np.sum(np.abs(w) - np.abs(found)))
        is_rounding = not promised > MIN_DECREASE * point.objective
        moved = None
        if not is_rounding or point.gap <= STALLED * last_gap:
            moved = _line_search(objective, state, point, step, promised)
        if moved is None:
            monitor.end_newton()
            return state
        w, wx, bias = moved
        last_gap = point.gap


def best_intercept(objective: Objective, state: RowState, bias: float) -> float:
    """Return the intercept that minimizes the losses at the last predictions."""
    search = intercept_search(objective.loss, bias, 0.0)
    while not search.update(rows.intercept_derivatives(objective, state, search.places)):
        pass
    return search.bias


def _line_search(
    objective: Objective,
    state: RowState,
    point: Certificate,
    step: np.ndarray,
    promised: float,
) -> tuple[np.ndarray, np.ndarray, float] | None:
    """Halve a step until the Armijo condition holds; return w, x . w and the intercept there."""
    wx_step = objective.predictions(step[:-1])
    share = 1.0
    while True:
        w, bias = point.w + share * step[:-1], point.bias + share * float(step[-1])
        wx = state.wx + share * wx_step
        with np.errstate(over="ignore"):
            value = objective.losses(state.examples, wx, bias) + objective.penalty(w)
        if armijo_holds(point, value, share * promised):
            return w, wx, bias
        if not share * promised > MIN_DECREASE * point.objective:
            return None
        share /= 2


class _Model:
    """The quadratic models of one problem, and their working sets."""

    def __init__(self, objective: Objective, features: Features):
        self.objective, self.features = objective, features
        self.size = SMALLEST
        self.working = np.zeros(0, np.intp)
        self.matrix: tuple[np.ndarray, np.ndarray, float] | None = None

    def select(self, w: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Return the working set: features by their violation of the optimality conditions."""
        n = w.size
        n_active = int(np.count_nonzero(w))
        self.size = max(self.size, 2 * n_active)
        if self.size >= n / 2:
            return np.arange(n)
        score = np.where(w != 0, np.inf, np.abs(gradient))
        chosen = np.argpartition(-score, self.size - 1)[: self.size]
        return np.sort(chosen)

    def step(
        self,
        w: np.ndarray,
        gradient: np.ndarray,
        slopes: np.ndarray,
        bends: np.ndarray,
        tolerance: float,
    ) -> np.ndarray:
        """Return how far the minimum of the model is away; the intercept is last."""
        working = self.select(w, gradient)
        descend = self._by_matrix if working.size <= MOST_IN_MATRIX else self._by_columns
        new, bias_step = descend(working, w[working], gradient[working], slopes, bends, tolerance)
        self.working = working
        step = np.zeros(w.size + 1)
        step[working] = new - w[working]
        step[-1] = bias_step
        return step

    def _by_matrix(
        self,
        working: np.ndarray,
        w: np.ndarray,
        gradient: np.ndarray,
        slopes: np.ndarray,
        bends: np.ndarray,
        tolerance: float,
    ) -> tuple[np.ndarray, float]:
        objective = self.objective
        known = objective.loss == "squared_loss" and np.array_equal(working, self.working)
        if self.matrix is None or not known:
            _, H = second_order.newton_system(
                *self.features.rows(working), slopes, bends, working.size, objective.threads
            )
            self.matrix = self._without_intercept(H)
        A, sums, share = self.matrix
        new = w.copy()
        gradient = gradient - sums * (share * slopes.sum())
        minimize_model(A, gradient, new, objective.l1, tolerance)
        return new, -share * (float(slopes.sum()) + weighted_sum(sums, new - w))

    def _without_intercept(self, H: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Eliminate the intercept; return the matrix, the intercept's column and 1 / its diagonal.

        Without one the latter is 0.
        """
        A, sums = np.ascontiguousarray(H[:-1, :-1]), H[-1, :-1].copy()
        diagonal = np.diagonal(A).copy()
        share = 1 / H[-1, -1] if self.objective.intercept and H[-1, -1] > 0 else 0.0
        if share:
            A -= np.outer(sums, sums) * share
        left = np.diagonal(A)
        A[np.diag_indices(len(A))] = self._curvatures(left, diagonal)
        return A, sums, share

    def _curvatures(self, left: np.ndarray, diagonal: np.ndarray) -> np.ndarray:
        curvatures = np.where(left > CURVATURE_ROUNDING * diagonal, left, 0.0)
        return np.asarray(curvatures + self.objective.l2)

    def _by_columns(
        self,
        working: np.ndarray,
        w: np.ndarray,
        gradient: np.ndarray,
        slopes: np.ndarray,
        bends: np.ndarray,
        tolerance: float,
    ) -> tuple[np.ndarray, float]:
        objective = self.objective
        taken = self.features.take(working)
        if sparse.issparse(taken):
            sums, squares = taken.T @ bends, (taken**2).T @ bends
        else:  # without BLAS, whose number of threads would change the bits
            sums = np.einsum("ij,i->j", taken, bends)
            squares = np.einsum("ij,ij,i->j", taken, taken, bends)
        total = bends.sum()
        share = float(1 / total) if objective.intercept and total > 0 else 0.0
        curvatures = self._curvatures(squares - share * sums**2, squares)
        new, slopes = w.copy(), slopes.copy()
        _, bias_step = coordinate_descent.descend_columns(
            *self.features.columns(working),
            bends,
            sums,
            curvatures,
            slopes,
            new,
            share,
            objective.l1,
            objective.l2,
            tolerance,
            SWEEPS,
        )
        return new, bias_step


def minimize_model(
    A: np.ndarray, gradient: np.ndarray, w: np.ndarray, l1: float, tolerance: float
) -> None:
    """Minimize a model given as a matrix; updates w and the model's gradient without l1.

    Sweeps find the signs of the weights. Where features resemble each other they converge slowly
    after that, and a linear system for the weights that are not 0 goes on: on the way to its
    solution the first weight that would change its sign becomes 0.
    """
    for _ in range(ROUNDS):
        n_active = int(np.count_nonzero(w))
        most = max(SWEEPS_BEFORE_SOLVING, n_active // 4)
        if coordinate_descent.descend_matrix(A, gradient, w, l1, tolerance, most) < most:
            return
        active = np.flatnonzero(w)
        signs = np.sign(w[active])
        step = -(gradient[active] + l1 * signs)
        if not second_order.solve(A[np.ix_(active, active)], step):
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            crossings = np.where(step * signs < 0, -w[active] / step, np.inf)
        first = int(np.argmin(crossings)) if crossings.size else 0
        share = min(1.0, float(crossings[first])) if crossings.size else 1.0
        moved = share * step
        if share < 1:
            moved[first] = -w[active[first]]
        w[active] += moved
        gradient += np.sum(A[active] * moved[:, None], axis=0)


def certify_derivatives(
    objective: Objective, state: RowState, w: np.ndarray, bias: float
) -> tuple[RowState, Certificate, np.ndarray]:
    """Compute the duality gap, with dual variables that are minus the losses' derivatives.

    Returns
    -------
    RowState
        With the dual variables of the certificate.
    Certificate
    x_duals : ndarray, shape (n_weights,)
        X^T (weight * a) for these derivatives.

    Notes
    -----
    The dual is ::

        -sum of weight * phi*(-a) - sum of max(|X^T (weight * a)| - l1, 0)**2 / (2 * l2)

    For l2 = 0 the second sum is a constraint, into which the dual variables are scaled. They may be
    for any l2, if that gives the smaller gap: a small l2 makes violations expensive.
    """
    state = rows.projected(objective, state, rows.dual_residual(objective, state))
    x_duals = np.zeros(objective.n_weights)
    visits.weights_of(*objective.rows, state.examples_with(state.certified), x_duals, 1.0)
    largest = float(np.abs(x_duals).max(initial=0.0))
    scales = [1.0]
    if largest > objective.l1 > 0:
        scales = [objective.l1 / largest, *([1.0] if objective.l2 > 0 else [])]
    apart, scale = min((_feature_gap(objective, w, each * x_duals), each) for each in scales)
    state = dataclasses.replace(state, certified=scale * state.certified)
    losses, gap = rows.gap_sums(objective, state, bias).tolist()
    point = Certificate(w, bias, losses + objective.penalty(w), max(gap + apart, 0.0))
    return state, point, x_duals


def _feature_gap(objective: Objective, w: np.ndarray, x_duals: np.ndarray) -> float:
    """Return the Fenchel-Young gaps of the penalties, which are not negative."""
    inside = np.clip(x_duals, -objective.l1, objective.l1)
    gaps = objective.l1 * np.abs(w) - inside * w
    if objective.l2 > 0:
        with np.errstate(over="ignore"):
            gaps = gaps + np.square(objective.l2 * w - (x_duals - inside)) / (2 * objective.l2)
    return float(gaps.sum())
