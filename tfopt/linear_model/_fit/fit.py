"""A fit in memory: the problems of all classes, solved as planned, on several threads."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.utils.parallel import Parallel, delayed

from tfopt.linear_model._fit.coordinate_descent import CoordinateDescent
from tfopt.linear_model._fit.design import LaneDesign, MemoryDesign, Point
from tfopt.linear_model._fit.features import Features
from tfopt.linear_model._fit.interior_point import InteriorPoint
from tfopt.linear_model._fit.minimization import Epochs, Minimization
from tfopt.linear_model._fit.monitor import SolverResult
from tfopt.linear_model._fit.newton import Newton
from tfopt.linear_model._fit.parameters import Parameters
from tfopt.linear_model._fit.plan import Plan
from tfopt.linear_model._fit.problem import InitialPoint, Problem
from tfopt.linear_model._fit.row_visits import LANES, LaneVisits, RowVisits
from tfopt.linear_model._fit.sampling import sampled
from tfopt.linear_model._fit.solvers import DESCENT, INTERIOR
from tfopt.linear_model._fit.steps import Steps

__all__ = ["FitResult", "solve_all"]

#: The relative gap of a sample's minimum, which is about how far it is from that of all rows; and
#: the largest number of steps.
SAMPLE_TOL, SAMPLE_STEPS = 1e-4, 20


@dataclasses.dataclass(frozen=True)
class FitResult:
    """The result of a fit.

    Attributes
    ----------
    results : list of SolverResult
    duals : object
        The dual variables, or those of each block as `collect` returns them, or None.
    shift : ndarray or None
        What was subtracted from the features.
    lengths : tuple of int
        The numbers of rows of the blocks.
    names : tuple of str, or None
        The names of the features, if blocks have them.
    """

    results: list[SolverResult]
    duals: Any
    shift: np.ndarray | None
    lengths: tuple[int, ...]
    names: tuple[str, ...] | None = None


def solve_all(
    objective: Problem,
    initial_point: Callable[[int], InitialPoint],
    n_problems: int,
    options: Parameters,
    plan: Plan,
    workers: int,
    duals: np.ndarray,
) -> list[SolverResult]:
    """Minimize the objectives of problems that share their rows, on several threads.

    Parameters
    ----------
    objective : Problem
    initial_point : callable
        From the number of a problem to its initial point, which is made when the problem is due:
        those of many classes at once would take more memory than the rows.
    n_problems : int
        One, or one for each class against the rest.
    options : Parameters
    plan : Plan
    workers : int
    duals : ndarray, shape (n_problems, n_examples) or (0, n_examples)
        Is set to the dual variables, if it has rows for them.

    Returns
    -------
    list of SolverResult
        A relative gap exceeds `options.tol` only if `max_iter` was too small, or rounding limits
        the accuracy.
    """
    rounds = -(-n_problems // (LANES * workers))
    n_groups = min(rounds * workers, n_problems) if plan.together else n_problems

    features = Features(objective)

    def solve_group(group: Sequence[int]) -> list[SolverResult]:
        first = group[0]
        minimization, design = _minimization(
            objective,
            features,
            [initial_point(k) for k in group],
            options,
            plan,
            first,
        )
        minimization.run()
        for kept, state in zip(duals[first:], design.states, strict=False):
            kept[:] = state.best
        return [monitor.result() for monitor in minimization.monitors]

    if n_groups == 1:
        return solve_group(range(n_problems))
    groups = [group.tolist() for group in np.array_split(np.arange(n_problems), n_groups)]
    solved = Parallel(n_jobs=workers, require="sharedmem")(
        delayed(solve_group)(group) for group in groups
    )
    return [result for group in solved for result in group]


def _minimization(
    objective: Problem,
    features: Features,
    initial_points: list[InitialPoint],
    options: Parameters,
    plan: Plan,
    first: int,
) -> tuple[Minimization, MemoryDesign]:
    """Prepare to minimize one problem, or up to LANES: with equal results, but for rounding."""
    examples = [initial.examples() for initial in initial_points]

    begun: list[RowVisits | LaneVisits] = []

    def visits() -> RowVisits | LaneVisits:
        if not begun and plan.together:
            begun.append(LaneVisits(objective, initial_points, options))
        elif not begun:
            begun.append(RowVisits(objective, initial_points[0], options, plan.n_partitions))
        return begun[0]

    def duals(problem: int) -> np.ndarray:
        return visits().duals(problem)

    design = (LaneDesign if plan.together else MemoryDesign)(objective, examples, plan, duals)
    steps: Steps
    if plan.steps == DESCENT:
        steps = CoordinateDescent(objective, design, features, options.tol)
    else:
        steps = (InteriorPoint if plan.steps == INTERIOR else Newton)(objective, design)
    epochs, n = Epochs(objective, design, visits), len(examples)
    minimization = Minimization(plan, steps, epochs, design.keep_best, options, n, first)
    for k, initial in enumerate(initial_points):
        if initial.w is None:
            if plan.begins_with_steps:
                minimization.begin_steps(k, *_newton_start(objective, initial, options, plan))
        elif plan.begins_with_steps and plan.steps != INTERIOR:
            minimization.begin_steps(k, initial.w, initial.bias)
        elif math.isfinite(plan.step_cost) and plan.steps != DESCENT:
            minimization.begin_steps(k, initial.w, initial.bias, tentatively=True)
    return minimization, design


def _newton_start(
    objective: Problem, initial: InitialPoint, options: Parameters, plan: Plan
) -> Point:
    """Return where Newton's method begins: at the minimum for a sample of many rows, or at 0."""
    zero = np.zeros(objective.n_weights), initial.bias
    sample = sampled(objective, initial, plan.sample) if plan.sample else None
    if sample is None:
        return zero
    options = options._replace(tol=SAMPLE_TOL, max_iter=SAMPLE_STEPS, polish=False, report=None)
    plan = plan._replace(is_only=True)
    few, start = sample
    start = start._replace(w=zero[0])
    minimization, _ = _minimization(few, Features(few), [start], options, plan, 0)
    minimization.run()
    best = minimization.monitors[0].result().certificate
    return best.w, best.bias
