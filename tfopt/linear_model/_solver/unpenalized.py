"""Newton's method without any penalty, for the losses of generalized linear models.

Without l2 the dual variables a have to satisfy X^T (weight * a) = 0, as their sum is 0 with an
intercept. Minus the derivatives that a Newton step predicts do so: that is what its system says.
What rounding leaves of it, and what a move into their range does, is counted to the gap.
"""

from __future__ import annotations

import math

import numpy as np

from tfopt.errors import InvalidArgumentError
from tfopt.kernels.sdca import second_order, visits
from tfopt.linear_model._solver import rows, work
from tfopt.linear_model._solver.certificate import Certificate
from tfopt.linear_model._solver.design import Point
from tfopt.linear_model._solver.monitor import ConvergenceMonitor, SolverResult
from tfopt.linear_model._solver.newton import armijo_holds, penalized
from tfopt.linear_model._solver.objective import InitialPoint, Objective
from tfopt.linear_model._solver.parameters import Parameters
from tfopt.linear_model._solver.plan import Plan
from tfopt.linear_model._solver.reductions import weighted_sum
from tfopt.linear_model._solver.solvers import CHOLESKY

__all__ = ["solve_unpenalized"]

#: A predicted decrease below this share of the losses is rounding.
MIN_DECREASE = 1e-16
#: Dual variables are certified if making them feasible would cost at most this share of the gap, or
#: this one of the losses.
ROUNDING, LEAST = 1e-3, 2.0**-60


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # that is far from the minimum
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
    monitor = ConvergenceMonitor(options, plan, number)
    w, bias = np.zeros(objective.n_weights) if initial.w is None else initial.w, initial.bias
    state = rows.RowState.initial(initial.examples())
    weight = state.examples["weight"]
    state, losses, _ = rows.tangents(objective, state, w, bias, False)
    if not math.isfinite(losses):
        w, bias = np.zeros_like(w), 0.0
        state, losses, _ = rows.tangents(objective, state, w, bias, False)
    while not monitor.is_done:
        gradient, hessian = rows.newton_system(objective, state)
        if not objective.intercept:
            gradient[-1] = 0.0
        system, step = penalized(objective, hessian), -gradient
        if not second_order.solve(system.copy(), step):
            if monitor.best is None:
                raise InvalidArgumentError(
                    "without a penalty the features, and a constant one for the intercept, must "
                    "not depend on each other, nor be more than the samples with weight: these "
                    "have no single minimum; set l2 above 0"
                )
            monitor.end_steps()
            break
        here, point, promised, share = state, Certificate(w, bias, losses, 0.0), math.inf, 1.0
        promised = -weighted_sum(gradient, step)
        moved = False
        while not moved and share * promised > MIN_DECREASE * losses:
            to = w + share * step[:-1], bias + share * float(step[-1])
            state, value, _ = rows.tangents(objective, here, *to, share == 1)
            moved = armijo_holds(point, value, share * promised)
            if moved:
                (w, bias), losses = to, value
            share /= 2
        duals = state.step_duals
        if not moved:  # at the minimum, but for rounding
            state = here
            change = objective.predictions(step[:-1]) + float(step[-1])
            predicted = state.grad_pointwise + state.hess_pointwise * change
            duals = np.divide(-predicted, weight, out=np.zeros_like(weight), where=weight > 0)
        gap, best = losses, np.zeros_like(weight)  # of dual variables that are all 0
        if not moved or share == 0.5:  # a whole step
            left = gradient + np.add.reduce(system * step, axis=1)  # minus X^T (weight * duals)
            found, duals = _gap(objective, state, (w, bias), duals, left, np.diagonal(system))
            if found < gap:
                gap, best = found, duals
        point = Certificate(w, bias, losses, gap)
        monitor.update_step(point)
        if monitor.best is point:
            state = state._replace(best=best)
        if objective.phi.is_classification and not monitor.is_done:
            _refuse_separated(state, bias)
        if not moved and not monitor.is_done:
            monitor.end_steps()
    return monitor.result(), state.best


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
