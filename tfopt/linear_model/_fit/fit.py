"""The loop of a fit over epochs, steps and certificates, for all classes on several threads."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from sklearn.utils.parallel import Parallel, delayed

from tfopt.linear_model._fit.certificate import Certificate, certify
from tfopt.linear_model._fit.coordinate_descent import CoordinateDescent
from tfopt.linear_model._fit.design import Design, LaneDesign, MemoryDesign, Point
from tfopt.linear_model._fit.features import Features
from tfopt.linear_model._fit.interior_point import InteriorPoint
from tfopt.linear_model._fit.monitor import ConvergenceMonitor, SolverResult
from tfopt.linear_model._fit.newton import Newton
from tfopt.linear_model._fit.plan import Plan
from tfopt.linear_model._fit.problem import InitialPoint, Problem, sampled
from tfopt.linear_model._fit.row_visits import LANES, LaneVisits, RowVisits
from tfopt.linear_model._fit.steps import Steps
from tfopt.linear_model.parameters import DESCENT, INTERIOR, SDCA, Parameters, applies

__all__ = ["Epochs", "FitResult", "Minimization", "Visits", "solve_all"]

#: The relative gap at which a fit to a sample stops, which is about the relative distance of its
#: minimum from that of all rows; and the largest number of its steps.
SAMPLE_TOL, SAMPLE_STEPS = 1e-4, 20


@dataclasses.dataclass(frozen=True)
class FitResult:
    """The result of a fit.

    Attributes
    ----------
    results : list of SolverResult
    duals : object
        The dual variables as an array, or of each block as `collect` returns them, or None.
    shift : ndarray or None
        The numbers subtracted from the features.
    lengths : tuple of int
        The numbers of rows of the blocks.
    names : tuple of str, or None
        The names of the features, if blocks have them.
    scale : ndarray or None
        The factors by which the features were then multiplied.
    """

    results: list[SolverResult]
    duals: Any
    shift: np.ndarray | None
    lengths: tuple[int, ...]
    names: tuple[str, ...] | None = None
    scale: np.ndarray | None = None


def solve_all(
    problem: Problem,
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
    problem : Problem
    initial_point : callable
        Returns the initial point of a problem, given its number. Points are made when they are
        needed: those of many classes would take more memory than the rows.
    n_problems : int
        1, or the number of classes, each against the rest.
    options : Parameters
    plan : Plan
    workers : int
    duals : ndarray, shape (n_problems, n_examples) or (0, n_examples)
        Receives the dual variables, if it has rows for them.

    Returns
    -------
    list of SolverResult
        A relative gap exceeds `options.tol` only if `max_iter` was too small, or rounding limits
        the accuracy.
    """
    rounds = -(-n_problems // (LANES * workers))
    n_groups = min(rounds * workers, n_problems) if plan.together else n_problems

    steps = _steps_of(problem, options, plan)

    def solve_group(group: Sequence[int]) -> list[SolverResult]:
        first = group[0]
        points = [initial_point(k) for k in group]
        minimization, design = _minimization(problem, steps, points, options, plan, first)
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


def _steps_of(problem: Problem, options: Parameters, plan: Plan) -> Callable[[MemoryDesign], Steps]:
    """Return a function from a design to the method of a plan's steps; all share the rows."""
    if plan.steps == DESCENT:
        features = Features(problem)
        return lambda design: CoordinateDescent(problem, design, features, options.tol)
    method = InteriorPoint if plan.steps == INTERIOR else Newton
    return lambda design: method(problem, design)


def _minimization(
    problem: Problem,
    steps_of: Callable[[MemoryDesign], Steps],
    initial_points: list[InitialPoint],
    options: Parameters,
    plan: Plan,
    first: int,
) -> tuple[Minimization, MemoryDesign]:
    """Prepare to minimize one problem or up to LANES of them; results differ by rounding only."""
    examples = [initial.examples() for initial in initial_points]

    begun: list[RowVisits | LaneVisits] = []

    def visits() -> RowVisits | LaneVisits:
        if not begun and plan.together:
            begun.append(LaneVisits(problem, initial_points, options))
        elif not begun:
            begun.append(RowVisits(problem, initial_points[0], options, plan.n_partitions))
        return begun[0]

    def duals(k: int) -> np.ndarray:
        return visits().duals(k)

    design = (LaneDesign if plan.together else MemoryDesign)(problem, examples, plan, duals)
    design.states = [
        state._replace(offset=initial.offset)
        for state, initial in zip(design.states, initial_points, strict=True)
    ]
    steps, epochs, n = steps_of(design), Epochs(problem, design, visits), len(examples)
    minimization = Minimization(plan, steps, epochs, design.keep_best, options, n, first)
    for k, initial in enumerate(initial_points):
        if initial.w is None:
            if plan.begins_with_steps:
                minimization.begin_steps(k, *_newton_start(problem, initial, options, plan))
        elif plan.begins_with_steps and (plan.steps != INTERIOR or not applies(SDCA, problem)):
            minimization.begin_steps(k, initial.w, initial.bias)
        elif math.isfinite(plan.step_cost) and plan.steps != DESCENT:
            minimization.begin_steps(k, initial.w, initial.bias, tentatively=True)
    return minimization, design


def _newton_start(
    problem: Problem, initial: InitialPoint, options: Parameters, plan: Plan
) -> Point:
    """Return the start of Newton's method: the minimum for a sample of many rows, or weights 0."""
    zero = np.zeros(problem.n_weights), initial.bias
    sample = sampled(problem, initial, plan.sample) if plan.sample else None
    if sample is None:
        return zero
    options = options._replace(tol=SAMPLE_TOL, max_iter=SAMPLE_STEPS, polish=False, report=None)
    plan = plan._replace(is_only=True)
    few, start = sample
    start = start._replace(w=zero[0])
    steps = _steps_of(few, options, plan)
    minimization, _ = _minimization(few, steps, [start], options, plan, 0)
    minimization.run()
    best = minimization.monitors[0].result().certificate
    return best.w, best.bias


class Visits(Protocol):
    """Dual coordinate ascent for several problems that share their rows."""

    def run(self, epoch: int, problems: Sequence[int]) -> Mapping[int, float]:
        """Visit the examples once, and return estimates of the problems' gaps."""

    def points(self, problems: Sequence[int]) -> dict[int, Point]:
        """Return the unshrunk weights and the intercepts of problems, to certify them."""


class Epochs:
    """Epochs of visits, and certificates of their dual variables.

    Parameters
    ----------
    problem : Problem
        Its rows are not used.
    design : Design
    visits : callable
        Returns the visits; it is called when they begin.

    Attributes
    ----------
    number : int
        The number of epochs so far.
    """

    def __init__(self, problem: Problem, design: Design, visits: Callable[[], Visits]) -> None:
        self.problem, self.design, self.visits, self.number = problem, design, visits, 0

    def run(self, problems: Sequence[int]) -> Mapping[int, float]:
        """Visit the examples once, and return estimates of the problems' gaps."""
        self.number += 1
        return self.visits().run(self.number, problems)

    def certify(
        self, problems: Sequence[int], estimates: Mapping[int, float]
    ) -> dict[int, Certificate]:
        """Compute the duality gaps, given estimates of them."""
        if not problems:
            return {}
        points = self.visits().points(problems)
        return certify(self.problem, self.design, points, estimates)


class Minimization:
    """The minimization of the objectives of several problems that share their rows.

    Each iteration is an epoch of visits. While problems have active steps, it is a step of each of
    those problems instead.

    Parameters
    ----------
    plan : Plan
    steps : Steps
        The method of the plan's steps.
    epochs : Epochs or None
        None if there are only steps.
    keep_best : callable
        Keeps the dual variables of a problem's last certificate, which is the best so far.
    options : Parameters
    n_problems : int
    first_number : int, optional
        The number of the first problem, for the history.

    Attributes
    ----------
    monitors : list of ConvergenceMonitor
    n_iter : int
        The number of iterations so far.
    """

    def __init__(
        self,
        plan: Plan,
        steps: Steps,
        epochs: Epochs | None,
        keep_best: Callable[[int], None],
        options: Parameters,
        n_problems: int,
        first_number: int = 0,
    ) -> None:
        self.plan, self.steps, self.keep_best, self.n_iter = plan, steps, keep_best, 0
        self._epochs = epochs
        self.monitors = [
            ConvergenceMonitor(options, plan, first_number + k) for k in range(n_problems)
        ]

    @property
    def epochs(self) -> Epochs:
        """The epochs; the plan must have some."""
        assert self._epochs is not None
        return self._epochs

    def begin_steps(self, k: int, w: np.ndarray, bias: float, *, tentatively: bool = False) -> None:
        """Make the next iteration of a problem a step from a point.

        If tentatively, epochs follow if the gap of the point shows that they are less work, or if
        losses overflow there.
        """
        monitor = self.monitors[k]
        monitor.is_tentative, monitor.wants_steps = tentatively, not tentatively
        if not (tentatively and self.plan.steps == INTERIOR):  # that begins with the duals
            self.steps.start(k, w, bias)

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")  # that is far from the minimum
    def run(self, after: Callable[[int], None] | None = None) -> None:
        """Iterate until all problems are done.

        Parameters
        ----------
        after : callable, optional
            Called with the number of each iteration at its end, except the last one.
        """
        while active := self._active():
            self.n_iter += 1
            if self.steps.active:
                self._step()
            elif warm := [k for k in active if self.monitors[k].is_tentative]:
                self._certify_warm_starts(warm)
            else:
                self._epoch(active)
            if after is not None and self._active():
                after(self.n_iter)

    def _active(self) -> list[int]:
        return [k for k, monitor in enumerate(self.monitors) if not monitor.is_done]

    def _epoch(self, active: Sequence[int]) -> None:
        """Visit the examples, certify the problems that are due, and begin steps that take over."""
        estimates = self.epochs.run(active)
        number = self.epochs.number
        due = [k for k in active if self.monitors[k].should_certify(number, estimates[k])]
        for k, point in self.epochs.certify(due, estimates).items():
            self.monitors[k].update(point, number, estimates[k])
            self._keep_best(k, point)
            if self.monitors[k].wants_steps:
                self.begin_steps(k, point.w, point.bias)

    def _step(self) -> None:
        """Estimate the gaps, certify the problems that are due, take steps, and end failed ones."""
        steps, monitors = self.steps, self.monitors
        estimates, certified = steps.look(monitors)
        for k, point in (estimates | certified).items():
            if k in certified:
                self._certified(k, point)
            else:
                monitors[k].skip_step(point)
        going = {
            k: point
            for k, point in (estimates | certified).items()
            if monitors[k].wants_steps and not monitors[k].is_done
        }
        stuck = steps.step(going)
        for k, point in steps.certify([k for k in stuck if k not in certified]).items():
            self._certified(k, point)
        for k in stuck:
            if not monitors[k].is_done:
                monitors[k].end_steps()
        for k in [k for k in steps.active if monitors[k].gives_up_steps]:
            monitors[k].give_up_steps()
        for k in [k for k in steps.active if monitors[k].is_done or not monitors[k].wants_steps]:
            steps.end(k)

    def _certify_warm_starts(self, problems: Sequence[int]) -> None:
        """Certify the dual variables of the visits from whose weights steps will start."""
        for k, point in self.epochs.certify(problems, dict.fromkeys(problems, 0.0)).items():
            self._certified(k, point)
            if not self.monitors[k].is_done and self.monitors[k].wants_steps:
                self.steps.start(k, point.w, point.bias)

    def _certified(self, k: int, point: Certificate) -> None:
        self.monitors[k].update_step(point)
        self._keep_best(k, point)

    def _keep_best(self, k: int, point: Certificate) -> None:
        if self.monitors[k].best is point:
            self.keep_best(k)

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {
            "n_iter": self.n_iter,
            "n_epochs": self.epochs.number,
            **self.steps.state(),
            "monitors": [monitor.state() for monitor in self.monitors],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        self.n_iter, self.epochs.number = int(state["n_iter"]), int(state["n_epochs"])
        self.steps.restore(state)
        for monitor, saved in zip(self.monitors, state["monitors"], strict=True):
            monitor.restore(saved)
        for k, monitor in enumerate(self.monitors):
            monitor.is_tentative, monitor.wants_steps = False, k in self.steps.active
