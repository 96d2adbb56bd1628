"""Newton's method without any penalty, for the losses of generalized linear models.

Without l2 the dual variables a have to satisfy X^T (weight * a) = 0, as their sum is 0 with an
intercept. Minus the derivatives that a Newton step predicts do so: that is what its system says.
What rounding leaves of it, and what a move into their range does, is counted to the gap.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from tfopt.errors import InvalidArgumentError
from tfopt.kernels.sdca import second_order, visits
from tfopt.linear_model._solver import rows, work
from tfopt.linear_model._solver.certificate import Certificate
from tfopt.linear_model._solver.design import Point
from tfopt.linear_model._solver.minimization import Minimization
from tfopt.linear_model._solver.monitor import ConvergenceMonitor, SolverResult
from tfopt.linear_model._solver.newton import armijo_holds, penalized
from tfopt.linear_model._solver.objective import InitialPoint, Objective
from tfopt.linear_model._solver.parameters import Parameters
from tfopt.linear_model._solver.plan import Plan
from tfopt.linear_model._solver.reductions import weighted_sum
from tfopt.linear_model._solver.solvers import CHOLESKY
from tfopt.linear_model._solver.steps import Steps

__all__ = ["solve_unpenalized"]

#: A predicted decrease below this share of the losses is rounding.
MIN_DECREASE = 1e-16
#: Dual variables are certified if making them feasible would cost at most this share of the gap, or
#: this one of the losses.
ROUNDING, LEAST = 1e-3, 2.0**-60


def solve_unpenalized(
    objective: Objective, initial: InitialPoint, options: Parameters, number: int
) -> tuple[SolverResult, np.ndarray]:
    """Minimize the losses alone; return the dual variables, too.

    Raises
    ------
    InvalidArgumentError
        If features depend on each other, or a line separates the classes: then no minimum is the
        only one, or there is none.
    """
    step_polishes = work.hessian_work(objective) <= work.CHEAP
    reason = f"{CHOLESKY}: without a penalty nothing else applies"
    plan = Plan(CHOLESKY, CHOLESKY, reason, is_only=True, step_polishes=step_polishes)
    steps = UnpenalizedSteps(objective, rows.RowState.initial(initial.examples()))
    minimization = Minimization(plan, steps, None, steps.keep_best, options, 1, number)
    w = np.zeros(objective.n_weights) if initial.w is None else initial.w
    minimization.begin_steps(0, w, initial.bias)
    minimization.run()
    return minimization.monitors[0].result(), steps.best


class UnpenalizedSteps(Steps):
    """The steps of one problem, whose number is 0; each is certified where it has led.

    Attributes
    ----------
    best : ndarray, shape (n_samples,)
        The dual variables of the best certificate.
    """

    def __init__(self, objective: Objective, state: rows.RowState) -> None:
        self.objective, self._state, self.best = objective, state, state.best
        self._point: Point | None = None
        self._losses, self._duals, self._moved = math.inf, state.best, False

    @property
    def active(self) -> Collection[int]:
        return () if self._point is None else (0,)

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def start(self, problem: int, w: np.ndarray, bias: float) -> None:
        for point in ((w, bias), (np.zeros_like(w), 0.0)):
            self._point = point
            self._state, self._losses, _ = rows.tangents(self.objective, self._state, *point, False)
            if math.isfinite(self._losses):
                break

    def look(
        self, monitors: Sequence[ConvergenceMonitor]
    ) -> tuple[dict[int, Certificate], dict[int, Certificate]]:
        objective, weight = self.objective, self._state.examples["weight"]
        gradient, hessian = rows.newton_system(objective, self._state)
        if not objective.intercept:
            gradient[-1] = 0.0
        system, step = penalized(objective, hessian), -gradient
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
        if not self._moved:  # at the minimum, but for rounding
            change = objective.predictions(step[:-1]) + float(step[-1])
            predicted = state.grad_pointwise + state.hess_pointwise * change
            duals = np.divide(-predicted, weight, out=np.zeros_like(weight), where=weight > 0)
        assert self._point is not None
        gap, self._duals = self._losses, np.zeros_like(weight)  # of dual variables that are all 0
        if not self._moved or share == 1:
            left = gradient + np.add.reduce(system * step, axis=1)  # minus X^T (weight * duals)
            found, duals = _gap(objective, state, self._point, duals, left, np.diagonal(system))
            if found < gap:
                gap, self._duals = found, duals
        return {}, {0: Certificate(*self._point, self._losses, gap)}

    def _line_search(self, step: np.ndarray, promised: float) -> float:
        """Take a step, halved until the losses fall; return the share of it that was taken."""
        assert self._point is not None
        (w, bias), here, share = self._point, self._state, 2.0
        before = Certificate(w, bias, self._losses, 0.0)
        self._moved = False
        while not self._moved and share / 2 * promised > MIN_DECREASE * before.objective:
            share /= 2
            to = w + share * step[:-1], bias + share * float(step[-1])
            self._state, value, _ = rows.tangents(self.objective, here, *to, share == 1)
            self._moved = armijo_holds(before, value, share * promised)
        if self._moved:
            self._point, self._losses = to, value
        else:
            self._state = here
        return share

    def step(self, going: Mapping[int, Certificate]) -> list[int]:
        assert self._point is not None
        if going and self.objective.phi.is_classification:
            _refuse_separated(self._state, self._point[1])
        return [] if self._moved else [0]

    def certify(self, problems: Sequence[int]) -> dict[int, Certificate]:
        return {}  # each point is certified

    def end(self, problem: int) -> None:
        self._point = None

    def keep_best(self, problem: int) -> None:
        """Keep the dual variables of the last certificate."""
        self.best = self._duals


def _gap(
    objective: Objective,
    state: rows.RowState,
    point: Point,
    duals: np.ndarray,
    left: np.ndarray,
    diagonal: np.ndarray,
) -> tuple[float, np.ndarray]:
    """Return the gap to predicted dual variables, and these in their range.

    It is infinite if more than rounding is left of what they have to satisfy.
    """
    examples = state.examples
    clipped = objective.phi.clip_duals(duals, examples["y"])
    if (clipped != duals).any():
        left = np.zeros(left.size)
        moved = state.examples_with(clipped)
        visits.weights_of(*objective.rows, moved, left[:-1], 1.0)
        left[-1] = weighted_sum(moved["weight"], clipped) if objective.intercept else 0.0
    w, bias = point
    losses, gap = objective.gaps(examples, clipped, state.wx, bias)
    cost = weighted_sum(np.square(left), 1 / diagonal) / 2  # of moving them so that nothing is
    if cost > ROUNDING * gap + LEAST * losses:
        return math.inf, clipped
    gap = (math.sqrt(gap) + math.sqrt(cost)) ** 2
    return gap + float(np.abs(left) @ np.abs(np.append(w, bias))), clipped


def _refuse_separated(state: rows.RowState, bias: float) -> None:
    """Raise InvalidArgumentError if all samples with weight are on the right side."""
    margins = state.examples["y"] * (state.wx + bias)
    if margins[state.examples["weight"] > 0].min() > 0:
        raise InvalidArgumentError(
            "without a penalty there is no minimum: these weights separate the classes, and larger "
            "ones always have smaller losses; set l2 above 0"
        )
