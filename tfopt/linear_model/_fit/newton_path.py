"""Newton's method along a path of l2 penalties, whose solutions share sums over the rows.

The losses at a point, their gradient and the dual variables do not depend on l2. So the solution
for one l2 gets a certificate for the next l2 without a pass over the rows, and the first step from
there uses the last Hessian. (For the squared loss, see `least_squares`.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfopt.linear_model._fit import rows
from tfopt.linear_model._fit.certificate import Certificate, assemble
from tfopt.linear_model._fit.design import MemoryDesign, Point
from tfopt.linear_model._fit.monitor import ConvergenceMonitor, SolverResult
from tfopt.linear_model._fit.newton import line_search, solve_newton_system
from tfopt.linear_model._fit.plan import Plan
from tfopt.linear_model._fit.problem import InitialPoint, Problem
from tfopt.linear_model.loss_record import weighted_sum
from tfopt.linear_model.parameters import Parameters

__all__ = ["FeasibleDuals", "NewtonPath", "shifted_duals"]


class FeasibleDuals(NamedTuple):
    """The examples' part of the gap, or an upper bound of it, and X^T (weight * a)."""

    gap: float
    x_duals: np.ndarray


def shifted_duals(
    gradient: np.ndarray, bends: np.ndarray, others: np.ndarray, column: np.ndarray
) -> FeasibleDuals | None:
    """Make the sum of the dual variables 0 without a pass over the rows.

    The dual variables are the negative derivatives of the losses, plus a multiple of second
    derivatives, which may come from another point. The loss must bound the gaps of moved dual
    variables (`bounds_moves`).

    Parameters
    ----------
    gradient : ndarray, shape (n_weights + 1,)
        The gradient of the losses; the intercept is last.
    bends, others : ndarray, shape (n_examples,)
        The weighted second derivatives at this point, and those to be added.
    column : ndarray, shape (n_weights + 1,)
        The sum of `others` times the features, and the sum of `others`.

    Returns
    -------
    FeasibleDuals or None
        None if the move is too large for the bound.
    """
    share = gradient[-1] / column[-1]
    with np.errstate(divide="ignore", over="ignore"):
        changes = np.divide(others, bends, out=np.zeros_like(bends), where=others > 0)
    if not abs(share) * changes.max() <= 1:
        return None
    gap = share * share * weighted_sum(others, changes)
    return FeasibleDuals(gap, share * column[:-1] - gradient[:-1])


def secant_update(hessian: np.ndarray, step: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Return the BFGS update of a Hessian: it maps the step to the change of the gradient."""
    product = np.sum(hessian * step, axis=1)
    before, after = weighted_sum(step, product), weighted_sum(step, change)
    if not (before > 0 and after > 0):
        return hessian
    updated: np.ndarray = hessian - np.outer(product, product) / before
    updated += np.outer(change, change) / after
    return updated


class NewtonPath:
    """The solutions of one problem for several l2.

    Parameters
    ----------
    problem : Problem
        Its loss is smooth, but not the squared loss; l1 is 0, and l2 is not used.
    initial : InitialPoint
    plan : Plan
    number : int, optional
        The number of the problem in the history.
    """

    def __init__(
        self, problem: Problem, initial: InitialPoint, plan: Plan, number: int = 0
    ) -> None:
        self.problem = problem._replace(l2=1.0)
        self.plan, self.number = plan, number
        examples = initial.examples()
        self._design = MemoryDesign(self.problem, [examples], plan, lambda _: initial.a)
        self._factors = self._design.states[0].factors()
        self._hessian: np.ndarray | None = None
        start = np.zeros(problem.n_weights), initial.bias
        self._move(start, self._design.tangents({0: start})[0].losses)

    def _move(self, point: Point, losses: float) -> None:
        """Note that the design has moved to a point."""
        (self._w, self._bias), self._losses = point, losses
        self._gradient = rows.gradient(self.problem, self._design.states[0], self._factors)
        self._duals: FeasibleDuals | None = None

    @np.errstate(over="ignore", invalid="ignore")  # overflow means far from the minimum
    def solve(self, l1: float, l2: float, options: Parameters) -> SolverResult | None:
        """Return the solution for an l2, starting from the last one; None if the steps fail.

        l1 must be 0.
        """
        problem = self.problem._replace(l2=l2)
        monitor = ConvergenceMonitor(options, self.plan, self.number)
        is_first = True
        while True:
            point = self._certificate(problem)
            if self._duals is None and monitor.should_certify_step(point):
                self._duals = self._feasible_duals()
                point = self._certificate(problem)
            if self._duals is None:
                monitor.skip_step(point)
            else:
                monitor.update_step(point)
            if monitor.is_done:
                return monitor.result()
            if not self._step(problem, point, reuse=is_first):
                return None
            is_first = False

    def _certificate(self, problem: Problem) -> Certificate:
        """Return the certificate of the current point; without duals its gap is an estimate."""
        gap, x_duals = self._duals or FeasibleDuals(0.0, -self._gradient[:-1])
        v = x_duals / problem.l2
        return assemble(problem, self._w, self._bias, v, self._losses, gap)

    def _feasible_duals(self) -> FeasibleDuals:
        """Return the negative derivatives of the losses, made feasible for an intercept."""
        if not self.problem.intercept:
            return FeasibleDuals(0.0, -self._gradient[:-1])
        if self._hessian is not None and self.problem.phi.bounds_moves:
            bends = self._design.states[0].hess_pointwise
            duals = shifted_duals(self._gradient, bends, self._bends, self._column)
        else:
            duals = None
        return duals or self._projected_duals()

    def _projected_duals(self) -> FeasibleDuals:
        """Make the sum of the duals 0 by a pass over the rows."""
        return FeasibleDuals(*self._design.tangent_gaps({0: self._bias})[0])  # l2 is 1

    def _step(self, problem: Problem, point: Certificate, *, reuse: bool) -> bool:
        """Take a Newton step, perhaps with an earlier Hessian; return whether it succeeds."""
        gradient = self._penalized_gradient(problem)
        if reuse and self._hessian is not None:
            if self._descend(problem, point, gradient):
                return True
            self._design.tangents({0: (self._w, self._bias)})  # not where the step led
        self._form_hessian()
        return self._descend(problem, point, gradient)

    def _form_hessian(self) -> None:
        state = self._design.states[0]
        _, self._hessian = rows.newton_system(self.problem, state)
        self._bends, self._column = state.hess_pointwise, self._hessian[-1]

    def _penalized_gradient(self, problem: Problem) -> np.ndarray:
        gradient = self._gradient.copy()
        gradient[:-1] += problem.l2 * self._w
        if not problem.intercept:
            gradient[-1] = 0.0
        return gradient

    def _descend(self, problem: Problem, point: Certificate, gradient: np.ndarray) -> bool:
        assert self._hessian is not None
        step = solve_newton_system(problem, self._hessian, gradient)
        steps = {} if step is None else {0: step}
        moved = line_search(problem, self._design, {0: point}, {0: gradient}, steps)
        for move in moved.values():
            last = np.append(self._w, self._bias), self._gradient
            self._move(move.point, move.tangents.losses)
            now = np.append(self._w, self._bias), self._gradient
            self._hessian = secant_update(self._hessian, now[0] - last[0], now[1] - last[1])
        return bool(moved)
