"""Newton's method only, for likelihoods without a penalty or of classes with an offset.

Without l2 the dual variables a have to satisfy X^T (weight * a) = 0, and with an intercept their
weighted sum has to be 0. By the Newton system, the negative derivatives that a step predicts do so.
The remaining violation, by rounding or by a move into the range of dual variables, is added to the
gap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from tfopt.errors import InvalidArgumentError
from tfopt.kernels.linear import second_order, visits
from tfopt.linear_model._fit import rows, work
from tfopt.linear_model._fit.certificate import Certificate
from tfopt.linear_model._fit.design import Point
from tfopt.linear_model._fit.fit import Minimization
from tfopt.linear_model._fit.monitor import ConvergenceMonitor, SolverResult
from tfopt.linear_model._fit.newton import armijo_holds
from tfopt.linear_model._fit.plan import Plan
from tfopt.linear_model._fit.problem import InitialPoint, Problem
from tfopt.linear_model._fit.steps import Steps
from tfopt.linear_model._fit.unpenalized import refuse_separated
from tfopt.linear_model.loss_record import weighted_sum
from tfopt.linear_model.parameters import CHOLESKY, Parameters

__all__ = ["solve_by_newton"]

#: A predicted decrease below this share of the losses is rounding.
MIN_DECREASE = 1e-16
#: Dual variables are certified if the cost of making them feasible is at most the share ROUNDING of
#: the gap plus the share LEAST of the losses.
ROUNDING, LEAST = 1e-3, 2.0**-60


def solve_by_newton(
    problem: Problem,
    initial_point: Callable[[int], InitialPoint],
    n_problems: int,
    options: Parameters,
    duals: np.ndarray,
) -> list[SolverResult]:
    """Minimize the losses and the penalty of l2, without l1, as `fit.solve_all` does.

    Raises
    ------
    InvalidArgumentError
        If features are linearly dependent, so that the minimum is not unique; or if a hyperplane
        separates the classes, so that there is none.
    """
    step_polishes = work.hessian_work(problem) <= work.CHEAP
    why = "with an offset" if problem.is_penalized else "without a penalty"
    reason = f"{CHOLESKY}: {why} nothing else applies"
    plan = Plan(CHOLESKY, CHOLESKY, reason, is_only=True, step_polishes=step_polishes)
    results = []
    for k in range(n_problems):
        initial = initial_point(k)
        state = rows.RowState.initial(initial.examples())._replace(offset=initial.offset)
        steps = NewtonAlone(problem, state)
        minimization = Minimization(plan, steps, None, steps.keep_best, options, 1, k)
        w = np.zeros(problem.n_weights) if initial.w is None else initial.w
        minimization.begin_steps(0, w, initial.bias)
        minimization.run()
        results.append(minimization.monitors[0].result())
        duals[k : k + 1] = steps.best
    return results


class NewtonAlone(Steps):
    """The steps of one problem, with number 0; the point after each step is certified.

    Attributes
    ----------
    best : ndarray, shape (n_samples,)
        The dual variables of the best certificate.
    """

    def __init__(self, problem: Problem, state: rows.RowState) -> None:
        self.problem, self._state, self.best = problem, state, state.best
        self._point: Point | None = None
        self._losses, self._duals, self._moved = math.inf, state.best, False

    @property
    def active(self) -> Collection[int]:
        return () if self._point is None else (0,)

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def start(self, k: int, w: np.ndarray, bias: float) -> None:
        for point in ((w, bias), (np.zeros_like(w), 0.0)):
            self._point = point
            self._state, self._losses, _ = rows.tangents(self.problem, self._state, *point, False)
            if math.isfinite(self._losses):
                break

    def look(
        self, monitors: Sequence[ConvergenceMonitor]
    ) -> tuple[dict[int, Certificate], dict[int, Certificate]]:
        problem, weight = self.problem, self._state.examples["weight"]
        assert self._point is not None
        gradient, hessian = rows.newton_system(problem, self._state)
        gradient[:-1] += problem.l2 * self._point[0]
        if not problem.intercept:
            gradient[-1] = 0.0
        system, step = problem.penalized(hessian), -gradient
        self._moved = second_order.solve(system.copy(), step)
        if not self._moved:
            if monitors[0].best is None:
                raise InvalidArgumentError(
                    "without a penalty the features, and a constant one for the intercept, must "
                    "not depend on each other, nor be more than the samples with weight: these "
                    "have no single minimum; set l2 above 0"
                )
            return {}, {}
        share = self._line_search(step, -weighted_sum(gradient, step))
        duals, state = self._state.step_duals, self._state
        if not self._moved:  # at the minimum, up to rounding
            change = problem.predictions(step[:-1]) + float(step[-1])
            predicted = state.grad_pointwise + state.hess_pointwise * change
            duals = np.divide(-predicted, weight, out=np.zeros_like(weight), where=weight > 0)
        total = self._total(self._point, self._losses)
        gap, self._duals = total, np.zeros_like(weight)  # of dual variables that are all 0
        if not self._moved or share == 1:
            # l2 * w - X^T (weight * duals), and minus the sum of weight * duals
            left = gradient + np.add.reduce(system * step, axis=1)
            left[:-1] -= 0.0 if self._moved else problem.l2 * step[:-1]
            found, duals = _gap(problem, state, self._point, duals, left, np.diagonal(system))
            if found < gap:
                gap, self._duals = found, duals
        return {}, {0: Certificate(*self._point, total, gap)}

    def _total(self, point: Point, losses: float) -> float:
        return losses + self.problem.penalty(point[0])

    def _line_search(self, step: np.ndarray, promised: float) -> float:
        """Take a step, halved until the Armijo condition holds; return the share that was tried."""
        assert self._point is not None
        (w, bias), here, share = self._point, self._state, 2.0
        before = Certificate(w, bias, self._total((w, bias), self._losses), 0.0)
        self._moved = False
        while not self._moved and share / 2 * promised > MIN_DECREASE * before.objective:
            share /= 2
            to = w + share * step[:-1], bias + share * float(step[-1])
            self._state, value, _ = rows.tangents(self.problem, here, *to, share == 1)
            self._moved = armijo_holds(before, self._total(to, value), share * promised)
        if self._moved:
            self._point, self._losses = to, value
        else:
            self._state = here
        return share

    def step(self, going: Mapping[int, Certificate]) -> list[int]:
        assert self._point is not None
        if going and self.problem.phi.is_classification and not self.problem.is_penalized:
            w, bias = self._point
            refuse_separated(self._state.examples, self.problem.predictions(w) + bias)
        return [] if self._moved else [0]

    def certify(self, problems: Sequence[int]) -> dict[int, Certificate]:
        return {}  # each point is certified

    def end(self, k: int) -> None:
        self._point = None

    def keep_best(self, k: int) -> None:
        """Keep the dual variables of the last certificate."""
        self.best = self._duals


def _gap(
    problem: Problem,
    state: rows.RowState,
    point: Point,
    duals: np.ndarray,
    left: np.ndarray,
    diagonal: np.ndarray,
) -> tuple[float, np.ndarray]:
    """Return the gap of predicted dual variables, and these variables clipped to their range.

    The gap is infinite if they violate their constraints by more than rounding.
    """
    examples = state.examples
    clipped, (w, bias) = problem.phi.clip_duals(duals, examples["y"]), point
    if (clipped != duals).any():
        moved = state._replace(certified=clipped)
        clipped = rows.projected(problem, moved, rows.dual_residual(problem, moved)).certified
        left = np.zeros(left.size)
        visits.weights_of(*problem.rows, state.examples_with(clipped), left[:-1], 1.0)
        left[:-1] -= problem.l2 * w
        left[-1] = weighted_sum(examples["weight"], clipped) if problem.intercept else 0.0
    free = slice(-1 if problem.l2 > 0 else 0, None)  # without a penalty
    losses, gap = problem.gaps(examples, clipped, state.wx, bias)
    # of moving the dual variables so that the violation is 0
    cost = weighted_sum(np.square(left[free]), 1 / diagonal[free]) / 2
    if cost > ROUNDING * gap + LEAST * losses:
        return math.inf, clipped
    gap = (math.sqrt(gap) + math.sqrt(cost)) ** 2
    gap += float(np.abs(left[free]) @ np.abs(np.append(w, bias))[free])
    if problem.l2 > 0:
        gap += float(np.square(left[:-1]).sum()) / (2 * problem.l2)
    return gap, clipped
