"""Least squares along a path of l1 and l2; all solutions use the same sums over the rows.

The losses are a quadratic function of the weights and the intercept, given by the moments of the
rows. For cross-validation, the moments of a fold are subtracted from the moments of all rows.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tfopt.kernels.linear import second_order
from tfopt.linear_model._fit import rows
from tfopt.linear_model._fit.certificate import Certificate, scaled_gap
from tfopt.linear_model._fit.lanes import lane_predictions, lane_sums
from tfopt.linear_model._fit.monitor import ConvergenceMonitor, SolverResult
from tfopt.linear_model._fit.plan import Plan
from tfopt.linear_model._fit.problem import InitialPoint, Problem, Rows
from tfopt.linear_model._fit.quadratic_model import minimize_model, without_intercept
from tfopt.linear_model._fit.rows import RowState
from tfopt.linear_model.loss_record import weighted_sum
from tfopt.linear_model.parameters import Parameters

__all__ = ["LeastSquares", "Moments", "paths_of_targets", "residuals"]

#: Sweeps end when one lowers the model by less than PRECISION * objective * tol**2. If the relative
#: gap is then above tol, they go on with MORE_PRECISE times this bound.
PRECISION, MORE_PRECISE = 0.1, 1e-3
#: The largest number of such bounds, and of times that the losses are computed anew at a solution
#: because the rounding errors of the model are too large.
ROUNDS, CENTRES = 3, 3
#: The relative rounding error of one operation.
ROUNDING = float(np.finfo(float).eps)


class Moments(NamedTuple):
    """The squared losses of rows at a point, and their derivatives by weights and intercept.

    Attributes
    ----------
    losses : float
    gradient : ndarray, shape (n_weights + 1,)
        The intercept is last.
    hessian : ndarray, shape (n_weights + 1, n_weights + 1)
    norms : ndarray, shape (n_weights,)
        The norms of the columns of all rows, of which these rows may be a part.
    n_rows : int
        The number of all rows.
    total : float
        The losses of all rows: half the squared norm of their residuals.
    """

    losses: float
    gradient: np.ndarray
    hessian: np.ndarray
    norms: np.ndarray
    n_rows: int
    total: float

    @classmethod
    def of(cls, problem: Problem, examples: np.ndarray, bias: float) -> Moments:
        """Return the moments of rows at the weights 0 and an intercept."""
        state, w = RowState.initial(examples), np.zeros(problem.n_weights)
        state, losses, _ = rows.tangents(problem, state, w, bias, False)
        gradient, hessian = rows.newton_system(problem, state)
        norms = np.sqrt(np.diagonal(hessian)[:-1])
        return cls(losses, gradient, hessian, norms, len(examples), losses)

    def without(self, part: Moments) -> Moments:
        """Return the moments of the rows that are not in `part`, at the same point."""
        return self._replace(
            losses=max(self.losses - part.losses, 0.0),
            gradient=self.gradient - part.gradient,
            hessian=self.hessian - part.hessian,
        )


class LeastSquares:
    """The solutions of one problem with the squared loss, for several l1 and l2.

    Parameters
    ----------
    problem : Problem
        Its penalties are not used; its rows are used only if rounding errors of the moments are too
        large.
    initial : InitialPoint
    plan : Plan
    moments : Moments, optional
        The moments at the initial intercept, if they are known; the problem then has no rows.
    """

    def __init__(
        self,
        problem: Problem,
        initial: InitialPoint,
        plan: Plan,
        moments: Moments | None = None,
    ) -> None:
        self.problem, self.plan, self.number = problem, plan, 0
        self._initial, self._has_rows = initial, moments is None
        if moments is None:
            moments = Moments.of(problem, initial.examples(), initial.bias)
        self.moments = moments
        self._norms, self._n_rows = moments.norms, moments.n_rows
        self._matrix, self._column, self._share = without_intercept(
            moments.hessian, problem.intercept
        )
        self._curvatures, self._penalized = np.diagonal(self._matrix).copy(), self._matrix.copy()
        self._factors: dict[float, np.ndarray] = {}
        self._begin()

    def _begin(self) -> None:
        """Begin at the weights 0."""
        moments, zero = self.moments, np.zeros(self.problem.n_weights)
        self._size, self._is_centred = math.sqrt(2 * moments.total), False
        self._move(zero, self._initial.bias, moments.losses, moments.gradient)
        self._w, self._slopes, self._value = zero, self._gradient, self._least

    def of_target(self, initial: InitialPoint, losses: float, gradient: np.ndarray) -> LeastSquares:
        """Return the path for another target of the same rows; both share the matrices."""
        path = copy.copy(self)
        path.number += 1
        path.moments = self.moments._replace(losses=losses, gradient=gradient, total=losses)
        path._initial = initial
        path._begin()
        return path

    def without(self, held: Rows, y: np.ndarray, weight: np.ndarray) -> LeastSquares:
        """Return the path for the rows that are not held out."""
        initial = InitialPoint(
            y, weight, self._initial.curvature, np.zeros(len(y)), self._initial.bias
        )
        problem = self.problem._replace(rows=held)
        part = Moments.of(problem, initial.examples(), initial.bias)
        return LeastSquares(self.problem, self._initial, self.plan, self.moments.without(part))

    def _move(self, w: np.ndarray, bias: float, losses: float, gradient: np.ndarray) -> None:
        """Expand the model around a point, with the best intercept for it."""
        change = -self._share * gradient[-1]
        self._centre, self._bias = w, bias + float(change)
        self._gradient = gradient[:-1] + self._column * change
        self._least = max(losses + float(change * gradient[-1]) / 2, 0.0)

    def solve(self, l1: float, l2: float, options: Parameters) -> SolverResult | None:
        """Return the solution for an l1 and l2, starting from the last one.

        Return None if rounding errors are too large for the tolerance.
        """
        problem = self.problem._replace(l1=l1, l2=l2)
        monitor = ConvergenceMonitor(options, self.plan, self.number)
        for _ in range(CENTRES):
            point = self._minimum(problem, options.tol)
            if point is not None and not point.relative_gap <= options.tol:
                point = self._centred(problem, point)
            if point is None:
                return None
            if point.relative_gap <= options.tol:
                monitor.update_step(point)
                return monitor.result()
        return None

    def _minimum(self, problem: Problem, tol: float) -> Certificate | None:
        """Return the certificate of an approximate minimum of the model; None if none is found."""
        A, l1, l2 = self._penalized, problem.l1, problem.l2
        np.einsum("ii->i", A)[:] = self._curvatures + l2
        precision, point = PRECISION * tol * tol, None
        for _ in range(ROUNDS):
            w, left = self._w.copy(), self._slopes + l2 * self._w
            if l1 == 0:
                known = self._factors.get(l2)
                factor = A.copy() if known is None else known
                if not second_order.solve(factor, left, known is not None):
                    return None
                if known is None:
                    self._factors.clear()
                    self._factors[l2] = factor
                w -= left
            else:
                minimize_model(A, left, w, problem.penalties, precision * self._value)
            point = self._certificate(problem, w)
            if point.relative_gap <= tol:
                break
            precision *= MORE_PRECISE
        return point

    def _certificate(self, problem: Problem, w: np.ndarray) -> Certificate:
        """Go to weights and return their certificate, without a pass over the rows.

        The dual variables are the residuals, whose weighted sum is 0, or a multiple of them. A
        bound of the model's rounding errors is added to the gap; as for any sum, it grows with the
        number of rows. It is 0 where the losses have just been computed from the rows.
        """
        step = w - self._centre
        moved = np.flatnonzero(step)
        some = step[moved]
        slopes = self._gradient + np.add.reduce(self._matrix[moved] * some[:, None], axis=0)
        losses = max(self._least + weighted_sum(step, self._gradient + slopes) / 2, 0.0)
        size = self._size + weighted_sum(np.abs(step), self._norms)
        error = 0.0 if self._is_centred and not moved.size else ROUNDING * self._n_rows * size
        apart, scale = scaled_gap(problem, w, losses, -slopes, error * self._norms)
        gap = max(apart + (1 - scale) ** 2 * losses, 0.0) + 2 * error * size
        bias = self._bias - self._share * weighted_sum(self._column, step)
        self._w, self._slopes, self._value = w, slopes, losses + problem.penalty(w)
        return Certificate(w, bias, self._value, gap)

    def _centred(self, problem: Problem, point: Certificate) -> Certificate | None:
        """Expand the model around a point; return the point's certificate, or None without rows."""
        if not self._has_rows:
            return None
        state = RowState.initial(self._initial.examples())
        state, losses, _ = rows.tangents(problem, state, point.w, point.bias, False)
        gradient = rows.gradient(problem, state, state.factors())
        self._move(point.w, point.bias, losses, gradient)
        self._size, self._is_centred = math.sqrt(2 * losses), True
        return self._certificate(problem, point.w)


def paths_of_targets(
    problem: Problem, points: Sequence[InitialPoint], plan: Plan
) -> list[LeastSquares]:
    """Return the paths of several targets of the same rows, which share one Gram matrix."""
    paths = [LeastSquares(problem, points[0], plan)]
    if len(points) == 1:
        return paths
    apart = np.array([point.bias - point.y for point in points[1:]])
    slopes = points[0].weight * apart
    gradients = np.empty((len(slopes), problem.n_weights + 1))
    gradients[:, :-1] = lane_sums(problem.rows, slopes, problem.n_weights)
    gradients[:, -1] = np.add.reduce(slopes, axis=1)
    losses = np.add.reduce(slopes * apart, axis=1) / 2
    for point, each, gradient in zip(points[1:], losses.tolist(), gradients, strict=True):
        paths.append(paths[-1].of_target(point, each, gradient))
    return paths


def residuals(
    problem: Problem, points: Sequence[InitialPoint], found: Sequence[Certificate]
) -> np.ndarray:
    """Return the residuals as dual variables; with an intercept their weighted sum is 0."""
    duals = -lane_predictions(problem.rows, np.array([each.w for each in found]))
    for a, point, each in zip(duals, points, found, strict=True):
        a += point.y - each.bias
        if problem.intercept:
            a -= weighted_sum(point.weight, a) / point.weight.sum()
        a[point.weight == 0] = 0.0
    return duals
