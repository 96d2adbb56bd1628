"""Proximal Newton steps by coordinate descent on working sets, for smooth losses and any l1, l2.

A step minimizes a quadratic model of the losses plus the penalties over the weights of a working
set: those that are not 0, and those that violate the optimality conditions most. For the squared
loss the model is exact. (Yuan, Ho, Lin: An improved GLMNET for l1-regularized logistic regression,
2012; Massias, Gramfort, Salmon: Celer, 2018.)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from scipy import sparse

from tfopt.kernels.sdca import coordinate_descent, second_order, visits
from tfopt.linear_model._solver import rows
from tfopt.linear_model._solver.certificate import Certificate
from tfopt.linear_model._solver.design import MemoryDesign, Point, Tangents
from tfopt.linear_model._solver.features import Features
from tfopt.linear_model._solver.monitor import ConvergenceMonitor
from tfopt.linear_model._solver.newton import MIN_DECREASE, line_search, promised_decrease
from tfopt.linear_model._solver.objective import Objective
from tfopt.linear_model._solver.reductions import weighted_sum
from tfopt.linear_model._solver.rows import RowState
from tfopt.linear_model._solver.steps import Steps

__all__ = ["CoordinateDescent", "minimize_model", "without_intercept"]

#: The size of the first working set; that of later ones is at least twice the number of weights
#: that are not 0.
SMALLEST = 128
#: With a larger working set the matrix of the model is not formed; up to the second number it is if
#: a sweep over it reads fewer values than one over the columns.
MOST_IN_MATRIX, LARGEST_MATRIX = 512, 2048
#: The largest number of sweeps for one step, by columns.
SWEEPS = 1000
#: The smallest number of sweeps before a linear system is solved, and the largest number of both.
SWEEPS_BEFORE_SOLVING, ROUNDS = 20, 100
#: Sweeps end when they lower the model by less than this times the square of the relative gap: near
#: the minimum a gap is of the order of the violations, and the primal of that of their squares.
PRECISION = 1e-5
#: The share of the largest curvature of a loss that is linear far from its minimum which the others
#: have in the model, too, while the relative gap is not smaller: far from there, there is none.
LEAST_CURVATURE = 0.1
#: Steps that promise mere rounding end when the gap is not below this share of the last.
STALLED = 0.9
#: Curvatures below this share of what they are the difference of are rounding.
CURVATURE_ROUNDING = 1e-12


@dataclasses.dataclass
class _Descent:
    """Where the descent of a problem is.

    Attributes
    ----------
    point : Point
    tangents : Tangents
    model : _Model
    predicted : ndarray or None
        X^T of the dual variables that the last step predicts.
    last_gap : float
        Of the last certificate or, if the last point was not certified, of its estimate.
    """

    point: Point
    tangents: Tangents
    model: _Model
    predicted: np.ndarray | None = None
    relative_gap: float = 1.0
    gradient: np.ndarray | None = None
    is_certified: bool = False
    last_gap: dict[bool, float] = dataclasses.field(
        default_factory=lambda: {True: math.inf, False: math.inf}
    )


class CoordinateDescent(Steps):
    """The steps of coordinate descent for several problems that share their rows in memory.

    Parameters
    ----------
    objective : Objective
    design : MemoryDesign
    features : Features
    tol : float
        The relative gap to be reached.
    """

    def __init__(
        self, objective: Objective, design: MemoryDesign, features: Features, tol: float
    ) -> None:
        self.objective, self.design, self.features, self.tol = objective, design, features, tol
        self._factors: np.ndarray | None = None
        self._descents: dict[int, _Descent] = {}

    @property
    def active(self) -> Collection[int]:
        """The problems that are being solved."""
        return self._descents.keys()

    @np.errstate(over="ignore", invalid="ignore")
    def start(self, problem: int, w: np.ndarray, bias: float) -> None:
        """Begin at a point, or at 0 if losses overflow there."""
        if self._factors is None:
            self._factors = self.design.states[problem].factors()
        point = w, bias
        tangents = self.design.tangents({problem: point})[problem]
        if not math.isfinite(tangents.losses):
            point = np.zeros_like(w), 0.0
            tangents = self.design.tangents({problem: point})[problem]
        model = _Model(self.objective, self.features, self._factors)
        self._descents[problem] = _Descent(point, tangents, model)

    def end(self, problem: int) -> None:
        """Take no more steps of a problem."""
        self._descents.pop(problem, None)

    def look(
        self, monitors: Sequence[ConvergenceMonitor]
    ) -> tuple[dict[int, Certificate], dict[int, Certificate]]:
        """Return estimates of the points' certificates, and those of points that are due."""
        found = {k: self._look(k, monitors[k]) for k in self._descents}
        return found, {k: found[k] for k, each in self._descents.items() if each.is_certified}

    def _look(self, problem: int, monitor: ConvergenceMonitor) -> Certificate:
        """Return a certificate of the point, or an estimate of it if that is large."""
        objective, each, state = (
            self.objective,
            self._descents[problem],
            self.design.states[problem],
        )
        (w, bias), losses = each.point, each.tangents.losses
        if objective.phi.is_linear_far:
            least = min(LEAST_CURVATURE, each.relative_gap) / objective.phi.gamma
            bends = np.maximum(state.hess_pointwise, least * state.examples["weight"])
            state = state._replace(hess_pointwise=bends)
        point, each.is_certified, each.gradient = None, False, None
        if each.predicted is not None and math.isfinite(each.tangents.step_gap):
            point = estimate(objective, w, bias, losses, each.predicted, each.tangents.step_gap)
            if monitor.should_certify_step(point):
                state = state._replace(certified=state.step_duals)
                state, point = certify(objective, state, point, losses, each.predicted)
                each.is_certified = math.isfinite(point.gap)
        if point is None or not math.isfinite(point.gap):
            each.gradient = each.model.gradient(state, w)
            point = estimate(objective, w, bias, losses, -each.gradient[:-1], 0.0)
            each.is_certified = monitor.should_certify_step(point)
            if each.is_certified:
                state, point = certify_slopes(objective, state, point, losses, each.gradient)
        self.design.states[problem] = state
        return point

    def step(self, going: Mapping[int, Certificate]) -> list[int]:
        """Step on from the points of some problems; return those where no step is good."""
        return [k for k, point in going.items() if not self._step(k, point)]

    def _step(self, problem: int, point: Certificate) -> bool:
        """Step on from a certificate or an estimate; return whether that is good."""
        objective, each, state = (
            self.objective,
            self._descents[problem],
            self.design.states[problem],
        )
        w, is_certified = each.point[0], each.is_certified
        if each.gradient is None:
            each.gradient = each.model.gradient(state, w)
        each.relative_gap = min(point.relative_gap, 1.0)
        precise = objective.phi.is_quadratic  # the model is exact
        gap = min(each.relative_gap, self.tol) if precise else each.relative_gap
        left = each.gradient.copy()
        left[:-1] += objective.l2 * w
        step, predicted = each.model.step(state, w, left, PRECISION * gap**2 * point.objective)
        left[-1] = left[-1] if objective.intercept else 0.0
        promised = promised_decrease(objective, w, left, step)
        gap_falls = point.gap <= STALLED * each.last_gap[is_certified]
        if not (gap_falls or promised > MIN_DECREASE * point.objective):
            return False
        solved = None if predicted is None else {problem: predicted}
        one = {problem: point}, {problem: left}, {problem: step}
        moved = line_search(objective, self.design, *one, solved)
        if not moved:
            return False
        each.point, each.tangents, origin = moved[problem]
        each.predicted = None if origin is None else predicted
        each.last_gap[is_certified] = point.gap
        return True

    def certify(self, problems: Sequence[int]) -> dict[int, Certificate]:
        """Compute the duality gaps of the points that no step led on from."""
        return {k: self._certified_slopes(k) for k in problems}

    def _certified_slopes(self, problem: int) -> Certificate:
        each, states = self._descents[problem], self.design.states
        assert each.gradient is not None
        (w, bias), losses = each.point, each.tangents.losses
        point = estimate(self.objective, w, bias, losses, -each.gradient[:-1], 0.0)
        states[problem], point = certify_slopes(
            self.objective, states[problem], point, losses, each.gradient
        )
        return point


class _Model:
    """The quadratic models of one problem, and their working sets."""

    def __init__(self, objective: Objective, features: Features, factors: np.ndarray):
        self.objective, self.features, self.factors = objective, features, factors
        self.size = SMALLEST
        self.working = np.zeros(0, np.intp)
        self.matrix: tuple[np.ndarray, np.ndarray, float] | None = None
        per_column = objective.n_features // objective.n_weights
        self.most_in_matrix = max(MOST_IN_MATRIX, min(per_column, LARGEST_MATRIX))

    def gradient(self, state: RowState, w: np.ndarray) -> np.ndarray:
        """Return the gradient of the losses, and form the matrix if it is of all features."""
        n = w.size
        self.size = max(self.size, 2 * int(np.count_nonzero(w)))
        if self.size < n / 2 or n > self.most_in_matrix or self._is_known(np.arange(n)):
            return rows.gradient(self.objective, state, self.factors)
        gradient, H = rows.newton_system(self.objective, state)
        self.working, self.matrix = np.arange(n), self._without_intercept(H)
        return gradient

    def _is_known(self, working: np.ndarray) -> bool:
        exact = self.objective.phi.is_quadratic
        return exact and self.matrix is not None and np.array_equal(working, self.working)

    def select(self, w: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Return the working set: features by their violation of the optimality conditions."""
        n = w.size
        if self.size >= n / 2:
            return np.arange(n)
        score = np.where(w != 0, np.inf, np.abs(gradient))
        chosen = np.argpartition(-score, self.size - 1)[: self.size]
        return np.sort(chosen)

    def step(
        self, state: RowState, w: np.ndarray, gradient: np.ndarray, tolerance: float
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return how far the minimum of the model is away, given the gradient of losses and l2.

        The intercept is last. If the model is of all features, return X^T of the dual variables
        that it predicts, too.
        """
        n = w.size
        working = self.select(w, gradient[:-1])
        descend = self._by_matrix if working.size <= self.most_in_matrix else self._by_columns
        new, left, bias_step = descend(
            state, working, w[working], gradient[working], float(gradient[-1]), tolerance
        )
        self.working = working
        step = np.zeros(n + 1)
        step[working] = new - w[working]
        step[-1] = bias_step
        if left is None or working.size < n:
            return step, None
        return step, self.objective.l2 * new - left

    def _by_matrix(
        self,
        state: RowState,
        working: np.ndarray,
        w: np.ndarray,
        gradient: np.ndarray,
        slope: float,
        tolerance: float,
    ) -> tuple[np.ndarray, np.ndarray, float]:
        objective = self.objective
        if working.size < objective.n_weights and not self._is_known(working):
            _, H = second_order.newton_system(
                *self.features.rows(working),
                state.grad_pointwise,
                state.hess_pointwise,
                working.size,
                objective.threads,
            )
            self.matrix = self._without_intercept(H)
        assert self.matrix is not None
        A, sums, share = self.matrix
        new, left = w.copy(), gradient - sums * (share * slope)
        minimize_model(A, left, new, objective.l1, tolerance)
        return new, left, -share * (slope + weighted_sum(sums, new - w))

    def _without_intercept(self, H: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        A, sums, share = without_intercept(H, self.objective.intercept)
        np.einsum("ii->i", A)[:] += self.objective.l2
        return A, sums, share

    def _by_columns(
        self,
        state: RowState,
        working: np.ndarray,
        w: np.ndarray,
        gradient: np.ndarray,
        slope: float,
        tolerance: float,
    ) -> tuple[np.ndarray, None, float]:
        objective, bends = self.objective, state.hess_pointwise
        taken = self.features.take(working)
        if sparse.issparse(taken):
            sums, squares = taken.T @ bends, (taken**2).T @ bends
        else:  # without BLAS, whose number of threads would change the bits
            sums = np.einsum("ij,i->j", taken, bends)
            squares = np.einsum("ij,ij,i->j", taken, taken, bends)
        total = bends.sum()
        share = float(1 / total) if objective.intercept and total > 0 else 0.0
        curvatures = _curvatures(squares - share * sums**2, squares) + objective.l2
        first = -share * slope  # of the intercept, which is then the best for the weights
        new, slopes = w.copy(), state.grad_pointwise + first * bends
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
        return new, None, first + bias_step


def without_intercept(H: np.ndarray, intercept: bool) -> tuple[np.ndarray, np.ndarray, float]:
    """Eliminate the intercept; return the matrix, the intercept's column and 1 / its diagonal.

    Without one the latter is 0.
    """
    A, sums = H[:-1, :-1].copy(), H[-1, :-1].copy()
    diagonal = np.diagonal(A).copy()
    share = 1 / H[-1, -1] if intercept and H[-1, -1] > 0 else 0.0
    if share:
        A -= np.outer(sums, sums) * share
    np.einsum("ii->i", A)[:] = _curvatures(np.diagonal(A), diagonal)
    return A, sums, share


def _curvatures(left: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.where(left > CURVATURE_ROUNDING * whole, left, 0.0)


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


def estimate(
    objective: Objective,
    w: np.ndarray,
    bias: float,
    losses: float,
    x_duals: np.ndarray,
    gap: float,
) -> Certificate:
    """Return about what `certify` would, given X^T (weight * a) and the gap of the losses."""
    apart, _ = best_scale(objective, w, losses, x_duals)
    return Certificate(w, bias, losses + objective.penalty(w), gap + apart)


def best_scale(
    objective: Objective, w: np.ndarray, losses: float, x_duals: np.ndarray
) -> tuple[float, float]:
    """Return by how much the best multiple of dual variables raises the gap, and the factor.

    The dual is ::

        -sum of weight * phi*(-a) - sum of max(|X^T (weight * a)| - l1, 0)**2 / (2 * l2)

    For l2 = 0 the second sum is a constraint, into which the dual variables are scaled. They may be
    for any l2, if that gives the smaller gap: a small l2 makes violations expensive. What a factor
    s adds to the examples' part is counted as (1 - s)**2 times the losses: minus the derivatives of
    the squared loss have that gap, and those of others if s is 0.
    """
    largest = float(np.abs(x_duals).max(initial=0.0))
    if not largest > objective.l1 > 0:
        return _feature_gap(objective, w, x_duals), 1.0
    scale = objective.l1 / largest
    scaled = _feature_gap(objective, w, scale * x_duals) + (1 - scale) ** 2 * losses, scale
    if objective.l2 == 0:
        return scaled
    return min(scaled, (_feature_gap(objective, w, x_duals), 1.0))


def certify(
    objective: Objective, state: RowState, point: Certificate, losses: float, x_duals: np.ndarray
) -> tuple[RowState, Certificate]:
    """Compute the duality gap of a point with the dual variables that are to be certified."""
    _, scale = best_scale(objective, point.w, losses, x_duals)
    state = state._replace(certified=scale * state.certified)
    gap = float(rows.gap_sums(objective, state, point.bias)[1])
    gap += _feature_gap(objective, point.w, scale * x_duals)
    return state, point._replace(gap=max(gap, 0.0))


def certify_slopes(
    objective: Objective, state: RowState, point: Certificate, losses: float, gradient: np.ndarray
) -> tuple[RowState, Certificate]:
    """Compute the duality gap, with dual variables that are minus the losses' derivatives."""
    state = state._replace(certified=rows.minus_slopes(objective, state))
    if not objective.intercept:
        return certify(objective, state, point, losses, -gradient[:-1])
    state = rows.projected(objective, state, rows.dual_residual(objective, state))
    x_duals = np.zeros(objective.n_weights)
    visits.weights_of(*objective.rows, state.examples_with(state.certified), x_duals, 1.0)
    return certify(objective, state, point, losses, x_duals)


def _feature_gap(objective: Objective, w: np.ndarray, x_duals: np.ndarray) -> float:
    """Return the Fenchel-Young gaps of the penalties, which are not negative."""
    inside = np.clip(x_duals, -objective.l1, objective.l1)
    gaps = objective.l1 * np.abs(w) - inside * w
    if objective.l2 > 0:
        with np.errstate(over="ignore"):
            gaps = gaps + np.square(objective.l2 * w - (x_duals - inside)) / (2 * objective.l2)
    return float(gaps.sum())
