"""Proximal Newton steps by coordinate descent on working sets, for smooth losses and any penalties.

A step minimizes a quadratic model of the losses plus the penalties over the weights of a working
set: the nonzero weights, and the weights that violate the optimality conditions most. For the
squared loss the model is exact. (Yuan, Ho, Lin: An improved GLMNET for l1-regularized logistic
regression, 2012; Massias, Gramfort, Salmon: Celer, 2018.)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from tfopt.kernels.linear import visits
from tfopt.linear_model._fit import rows
from tfopt.linear_model._fit.certificate import Certificate, estimate_scaled, scaled_gap
from tfopt.linear_model._fit.design import MemoryDesign, Point, Tangents
from tfopt.linear_model._fit.features import Features
from tfopt.linear_model._fit.monitor import ConvergenceMonitor
from tfopt.linear_model._fit.newton import MIN_DECREASE, line_search, promised_decrease
from tfopt.linear_model._fit.problem import Problem
from tfopt.linear_model._fit.quadratic_model import QuadraticModel
from tfopt.linear_model._fit.rows import RowState
from tfopt.linear_model._fit.steps import Steps
from tfopt.linear_model._fit.unpenalized import check_separation, moved_duals

__all__ = ["CoordinateDescent"]

#: Sweeps end when one lowers the model by less than this share of the objective, times the square
#: of `nearness`: near the minimum the gap is proportional to the violations, and the decrease of
#: the objective to their squares.
PRECISION = 1e-5
#: Losses that are linear far from the minimum have no curvature there: the model uses at least
#: SECANT * nearness times the curvature of the parabola above them, as iteratively reweighted least
#: squares do.
SECANT = 0.3
#: If steps promise a decrease below rounding, they end when the gap is above this share of the last
#: one.
STALLED = 0.9


@dataclasses.dataclass
class _Descent:
    """The state of one problem's descent.

    Attributes
    ----------
    point : Point
    tangents : Tangents
    model : QuadraticModel
    predicted : ndarray or None
        X^T of the weighted dual variables that the last step predicts.
    nearness : float
        The relative gap, or the root of the decrease that the last step promised relative to the
        objective, if that is smaller: scaled dual variables may have a large gap near the minimum.
    gradient : ndarray or None
        The gradient of the losses at the point, if it is known.
    is_certified : bool
        Whether the point has a certificate, not just an estimate.
    last_gap : dict
        The gap of the last certificate (True), and that of the last estimate (False).
    """

    point: Point
    tangents: Tangents
    model: QuadraticModel
    predicted: np.ndarray | None = None
    nearness: float = 1.0
    gradient: np.ndarray | None = None
    is_certified: bool = False
    last_gap: dict[bool, float] = dataclasses.field(
        default_factory=lambda: {True: math.inf, False: math.inf}
    )


class CoordinateDescent(Steps):
    """The steps of coordinate descent for several problems that share their rows in memory.

    Parameters
    ----------
    problem : Problem
    design : MemoryDesign
    features : Features
    tol : float
        The relative gap to be reached.
    """

    def __init__(
        self, problem: Problem, design: MemoryDesign, features: Features, tol: float
    ) -> None:
        self.problem, self.design, self.features, self.tol = problem, design, features, tol
        self._factors: np.ndarray | None = None
        self._descents: dict[int, _Descent] = {}

    @property
    def active(self) -> Collection[int]:
        return self._descents.keys()

    @np.errstate(over="ignore", invalid="ignore")
    def start(self, k: int, w: np.ndarray, bias: float) -> None:
        """Begin at a point, or at 0 if losses overflow there."""
        if self._factors is None:
            self._factors = self.design.states[k].factors()
        point = w, bias
        tangents = self.design.tangents({k: point})[k]
        if not math.isfinite(tangents.losses):
            point = np.zeros_like(w), 0.0
            tangents = self.design.tangents({k: point})[k]
        model = QuadraticModel(self.problem, self.features, self._factors)
        self._descents[k] = _Descent(point, tangents, model)

    def end(self, k: int) -> None:
        self._descents.pop(k, None)

    def look(
        self, monitors: Sequence[ConvergenceMonitor]
    ) -> tuple[dict[int, Certificate], dict[int, Certificate]]:
        found = {k: self._look(k, monitors[k]) for k in self._descents}
        return found, {k: found[k] for k, each in self._descents.items() if each.is_certified}

    def _look(self, k: int, monitor: ConvergenceMonitor) -> Certificate:
        """Return a certificate of the point, or an estimate of it if that is large."""
        problem, each, state = (
            self.problem,
            self._descents[k],
            self.design.states[k],
        )
        w, losses = each.point[0], each.tangents.losses
        if problem.phi.is_linear_far:
            far = problem.phi.far(state.wx + state.bias, state.examples["y"])
            least = SECANT * each.nearness / (problem.phi.gamma + 2 * far)
            bends = np.maximum(state.hess_pointwise, least * state.examples["weight"])
            state = state._replace(hess_pointwise=bends)
        point, each.is_certified, each.gradient = None, False, None
        if each.predicted is not None and math.isfinite(each.tangents.step_gap):
            point = estimate_scaled(
                problem, each.point, losses, each.predicted, each.tangents.step_gap
            )
            if monitor.should_certify_step(point):
                state = state._replace(certified=state.step_duals)
                state, point = self._certify(state, point, losses, each.predicted)
                each.is_certified = math.isfinite(point.gap)
        if point is None or not math.isfinite(point.gap):
            each.gradient = each.model.gradient(state, w)
            point = estimate_scaled(problem, each.point, losses, -each.gradient[:-1], 0.0)
            each.is_certified = monitor.should_certify_step(point)
            if each.is_certified:
                state, point = self._certify_slopes(state, point, losses, each.gradient)
        self.design.states[k] = state
        return point

    def step(self, going: Mapping[int, Certificate]) -> list[int]:
        return [k for k, point in going.items() if not self._step(k, point)]

    def _step(self, k: int, point: Certificate) -> bool:
        """Step on from a certificate or an estimate; return whether the step succeeded."""
        problem, each, state = (
            self.problem,
            self._descents[k],
            self.design.states[k],
        )
        w, is_certified = each.point[0], each.is_certified
        if each.gradient is None:
            each.gradient = each.model.gradient(state, w)
        near = min(point.relative_gap, each.nearness)
        near = min(near, self.tol) if problem.phi.is_quadratic else near  # the model is exact
        left = each.gradient.copy()
        left[:-1] += each.model.penalties.l2 * w
        step, predicted = each.model.step(state, w, left, PRECISION * near**2 * point.objective)
        left[-1] = left[-1] if problem.intercept else 0.0
        promised = promised_decrease(problem, w, left, step)
        share = promised / point.objective if point.objective else 0.0
        each.nearness = min(point.relative_gap, math.sqrt(max(share, 0.0)), 1.0)
        gap_falls = point.gap <= STALLED * each.last_gap[is_certified]
        if not (gap_falls or promised > MIN_DECREASE * point.objective):
            return False
        solved = None if predicted is None else {k: predicted}
        one = {k: point}, {k: left}, {k: step}
        moved = line_search(problem, self.design, *one, solved)
        if not moved:
            return False
        each.point, each.tangents, origin = moved[k]
        each.predicted = None if origin is None else predicted
        each.last_gap[is_certified] = point.gap
        return True

    def certify(self, problems: Sequence[int]) -> dict[int, Certificate]:
        return {k: self._certified_slopes(k) for k in problems}

    def _certified_slopes(self, k: int) -> Certificate:
        each, states = self._descents[k], self.design.states
        assert each.gradient is not None
        losses = each.tangents.losses
        point = estimate_scaled(self.problem, each.point, losses, -each.gradient[:-1], 0.0)
        states[k], point = self._certify_slopes(states[k], point, losses, each.gradient)
        return point

    def _certify(
        self, state: RowState, point: Certificate, losses: float, x_duals: np.ndarray
    ) -> tuple[RowState, Certificate]:
        """Compute the duality gap of a point and the dual variables `state.certified`."""
        problem, w, cost = self.problem, point.w, 0.0
        of_zeros = state._replace(certified=np.zeros_like(state.certified))
        has_free = not problem.is_plain and bool(problem.penalties.are_free.any())
        if has_free:
            moved = moved_duals(problem, self.features, state, w, losses)
            if moved is None:
                check_separation(problem, self.features, state, w, point.bias)
                return of_zeros, point._replace(gap=point.objective)
            certified, x_duals, cost = moved
            state = state._replace(certified=certified)
        apart, scale = scaled_gap(problem, w, losses, x_duals)
        state = state._replace(certified=scale * state.certified)
        gap = max(float(rows.gap_sums(problem, state, point.bias)[1]), 0.0)
        gap = (math.sqrt(gap) + math.sqrt(cost)) ** 2 + apart if cost else gap + apart
        if has_free and not gap < point.objective:
            check_separation(problem, self.features, state, w, point.bias)
            return of_zeros, point._replace(gap=point.objective)
        return state, point._replace(gap=max(gap, 0.0))

    def _certify_slopes(
        self, state: RowState, point: Certificate, losses: float, gradient: np.ndarray
    ) -> tuple[RowState, Certificate]:
        """Compute the duality gap with the negative derivatives of the losses as dual variables."""
        problem = self.problem
        state = state._replace(certified=rows.minus_slopes(problem, state))
        if not problem.intercept:
            return self._certify(state, point, losses, -gradient[:-1])
        state = rows.projected(problem, state, rows.dual_residual(problem, state))
        x_duals = np.zeros(problem.n_weights)
        visits.weights_of(*problem.rows, state.examples_with(state.certified), x_duals, 1.0)
        return self._certify(state, point, losses, x_duals)
