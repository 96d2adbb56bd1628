"""The solver: epochs of dual coordinate ascent, certificates, and Newton steps where they pay."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence, Set
from typing import Any, Protocol

import numpy as np

from tfopt.linear_model._solver.certificate import (
    Certificate,
    certify,
    certify_steps,
    certify_tangents,
    estimate_from_gradient,
    estimate_from_step,
)
from tfopt.linear_model._solver.design import Design, NewtonSystem, Point, Tangents
from tfopt.linear_model._solver.interior_point import LOOSE, InteriorPoint
from tfopt.linear_model._solver.monitor import ConvergenceMonitor, SolverOptions
from tfopt.linear_model._solver.newton import Move, Origin, newton_steps
from tfopt.linear_model._solver.objective import Objective
from tfopt.linear_model._solver.solvers import INTERIOR

__all__ = ["Minimization", "Visits"]


#: Up to this relative gap a Hessian serves a second step.
NEAR = 1e-2


class Visits(Protocol):
    """Dual coordinate ascent for several problems that share their rows."""

    def run(self, epoch: int, problems: Sequence[int]) -> Mapping[int, float]:
        """Visit the examples once, and return estimates of the problems' gaps."""

    def points(self, problems: Sequence[int]) -> dict[int, Point]:
        """Return the unshrunk weights and the intercepts of problems that are to be certified."""


class Minimization:
    """The minimization of the objectives of several problems that share their rows.

    Each iteration is an epoch of visits or, while there are problems for which Newton's method
    or, where a loss has corners, the interior-point method pays, a step of these.

    Parameters
    ----------
    objective : Objective
        Its rows are not used.
    design : Design
    visits : callable
        Returns the visits, when they begin.
    options : SolverOptions
    n_problems : int
    first_number : int, optional
        The number of the first problem, for the history.

    Attributes
    ----------
    monitors : list of ConvergenceMonitor
    descend : callable, optional
        Solves a problem by coordinate descent from a certificate, instead of Newton steps.
    n_iter, n_epochs : int
        How many iterations there were, and how many of them were epochs.
    """

    def __init__(
        self,
        objective: Objective,
        design: Design,
        visits: Callable[[], Visits],
        options: SolverOptions,
        n_problems: int,
        first_number: int = 0,
    ) -> None:
        self.objective, self.design, self.visits = objective, design, visits
        self.monitors = [
            ConvergenceMonitor(options, design.plan, first_number + k) for k in range(n_problems)
        ]
        self.n_iter, self.n_epochs = 0, 0
        self._interior = InteriorPoint(objective, design)
        self.descend: Callable[[int, Certificate], None] | None = None
        self._newton_points: dict[int, Point] = {}
        self._tentative: set[int] = set()
        self._origins: dict[int, Origin] = {}
        self._moves: dict[int, Move] = {}

    def begin_newton(
        self, problem: int, w: np.ndarray, bias: float, *, tentatively: bool = False
    ) -> None:
        """Make the next iteration of a problem a Newton step, from a point.

        Tentatively: unless its gap, or losses that overflow, say that epochs are the better choice.
        """
        self._newton_points[problem] = w, bias
        if tentatively:
            self._tentative.add(problem)

    @np.errstate(over="ignore", invalid="ignore")  # what overflows is far from the minimum
    def run(self, after: Callable[[int], None] | None = None) -> None:
        """Iterate until all problems are done.

        Parameters
        ----------
        after : callable, optional
            Called with the number of each iteration at its end, but for the last.
        """
        while self._active():
            self.n_iter += 1
            if self._interior.iterates or (
                self._newton_points and self.design.plan.steps == INTERIOR
            ):
                self._interior_iteration()
            elif self._newton_points:
                self._newton_iteration()
            else:
                self._epoch()
            if after is not None and self._active():
                after(self.n_iter)

    def _active(self) -> list[int]:
        return [k for k, monitor in enumerate(self.monitors) if not monitor.is_done]

    def _epoch(self) -> None:
        active = self._active()
        self.n_epochs += 1
        estimates = self.visits().run(self.n_epochs, active)
        due = [k for k in active if self.monitors[k].should_certify(self.n_epochs, estimates[k])]
        if not due:
            return
        points = self.visits().points(due)
        for k, point in certify(self.objective, self.design, points, estimates).items():
            self.monitors[k].update(point, self.n_epochs, estimates[k])
            self._keep_best(k, point)
            if self.monitors[k].wants_newton and self.descend is not None:
                self.descend(k, point)
            elif self.monitors[k].wants_newton:
                self.begin_newton(k, point.w, point.bias)

    def _newton_iteration(self) -> None:
        """Certify the points of Newton's method, and step on from those whose gap is too large.

        Where a step fails, visits go on from where they stopped.
        """
        points, tangents = self._newton_points, self._tangents()
        far = {  # a warm start may be
            k: (np.zeros_like(points[k][0]), 0.0)
            for k, each in tangents.items()
            if not math.isfinite(each.losses)
        }
        if far:
            points, tangents = points | far, tangents | self.design.tangents(far)
        tentative, self._tentative = self._tentative, set()
        estimates, certified, systems = self._certified(points, tangents, tentative)
        going = {}
        for k, point in (estimates | certified).items():
            monitor = self.monitors[k]
            if k not in certified:
                monitor.skip_newton(point)
            elif k not in tentative:
                monitor.update_newton(point)
            elif k not in far:
                monitor.begin(point)
            if k in certified:
                self._keep_best(k, point)
            if not monitor.is_done and (k not in tentative or monitor.wants_newton):
                going[k] = point
        near = {k for k in self._origins if k in going and going[k].relative_gap <= NEAR}
        systems |= self.design.newton_systems([k for k in going if k not in systems], near)
        moved = newton_steps(self.objective, self.design, going, systems)
        if left := {k: going[k] for k in near if k not in moved}:  # the last Hessian did not do
            self.design.tangents({k: points[k] for k in left})
            systems = self.design.newton_systems(left)
            moved |= newton_steps(self.objective, self.design, left, systems)
        self._newton_points = {k: move.point for k, move in moved.items()}
        self._origins = {k: move.origin for k, move in moved.items() if move.origin is not None}
        self._moves = moved
        self._end_newton([k for k in going if k not in moved], points, certified)

    def _tangents(self) -> dict[int, Tangents]:
        """Return the tangents at the points of Newton's method, and restore their steps."""
        points, origins = self._newton_points, self._origins
        new = {k: point for k, point in points.items() if k not in self._moves}
        starts = {k: (origins[k].w, origins[k].bias) for k in new if k in origins}
        if starts:
            self.design.tangents(starts)
            ends = self.design.tangents({k: new[k] for k in starts}, after_steps=True)
            self._moves |= {k: Move(new[k], ends[k], origins[k]) for k in starts}
        tangents = {k: move.tangents for k, move in self._moves.items()}
        return tangents | self.design.tangents({k: new[k] for k in new if k not in starts})

    def _certified(
        self, points: Mapping[int, Point], tangents: Mapping[int, Tangents], tentative: Set[int]
    ) -> tuple[dict[int, Certificate], dict[int, Certificate], dict[int, NewtonSystem]]:
        """Certify points that may be near enough, by the step that led there where there is one.

        Returns
        -------
        estimates : dict of Certificate
            Of the other points; only the gaps are estimates.
        certified : dict of Certificate
        systems : dict of NewtonSystem
            As far as they were needed.
        """
        objective, design = self.objective, self.design
        weights = {k: origin.weights for k, origin in self._origins.items()}
        estimates = {
            k: estimate_from_step(objective, points[k], tangents[k], v) for k, v in weights.items()
        }
        due = {
            k: points[k] for k in estimates if self.monitors[k].should_certify_step(estimates[k])
        }
        certified = certify_steps(objective, design, due, tangents, weights)
        rest = {k for k in points if k in due or k not in estimates} - set(certified)
        due = {k: points[k] for k in rest if k in tentative or self.monitors[k].is_last}
        systems = design.newton_systems([k for k in rest if k not in due])
        for k, (gradient, _) in systems.items():
            estimates[k] = estimate_from_gradient(objective, points[k], tangents[k], gradient)
            if self.monitors[k].should_certify_step(estimates[k]):
                due[k] = points[k]
        certified |= certify_tangents(objective, design, due, tangents)
        return estimates, certified, dict(systems)

    def _end_newton(
        self, problems: Sequence[int], points: Mapping[int, Point], certified: Container[int]
    ) -> None:
        """End Newton's method where no step lowers the objective.

        A point that is not certified yet is so now, which counts as an iteration.
        """
        last = {k: points[k] for k in problems if k not in certified}
        if last:
            found = certify_tangents(self.objective, self.design, last, self.design.tangents(last))
            for k, point in found.items():
                self.monitors[k].update_newton(point)
                self._keep_best(k, point)
        for k in problems:
            if not self.monitors[k].is_done:
                self.monitors[k].end_newton()

    def _interior_iteration(self) -> None:
        """Take a step of the interior-point method, and certify those that are near enough.

        Of a warm start, the dual variables of the visits are certified first.
        """
        method, points, warm = self._interior, self._newton_points, self._tentative
        self._newton_points, self._tentative = {}, set()
        begins = {k: point for k, point in points.items() if k not in warm}
        bests = {k: self.monitors[k].best for k in begins}
        method.begin(begins, {k: best for k, best in bests.items() if best is not None})
        self._certify_warm_starts(sorted(warm))
        stuck = method.step()
        estimates = method.estimates()
        due = [
            k
            for k, estimate in estimates.items()
            if k in stuck or self.monitors[k].should_certify_step(estimate, LOOSE)
        ]
        for k, estimate in estimates.items():
            if k not in due:
                self.monitors[k].skip_newton(estimate)
        for k, point in method.certify(due).items():
            monitor = self.monitors[k]
            monitor.update_newton(point)
            self._keep_best(k, point)
            if not monitor.is_done and (k in stuck or method.stalls(k, point)):
                if method.restarts(k):
                    continue
                monitor.end_newton()
                method.end(k)
            elif monitor.is_done:
                method.end(k)
        for k in [k for k in method.iterates if self.monitors[k].gives_up_steps]:
            self.monitors[k].give_up_steps()
            method.end(k)

    def _certify_warm_starts(self, problems: Sequence[int]) -> None:
        """Certify the dual variables of visits, from whose weights the method is to go on."""
        if not problems:
            return
        points, estimates = self.visits().points(problems), dict.fromkeys(problems, 0.0)
        for k, point in certify(self.objective, self.design, points, estimates).items():
            monitor = self.monitors[k]
            monitor.begin(point)
            self._keep_best(k, point)
            if not monitor.is_done and monitor.wants_newton:
                self._newton_points[k] = point.w, point.bias

    def _keep_best(self, problem: int, point: Certificate) -> None:
        if self.monitors[problem].best is point:
            self.design.keep_best(problem)

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {
            "n_iter": self.n_iter,
            "n_epochs": self.n_epochs,
            "newton_points": {
                str(k): {"w": w, "bias": bias} for k, (w, bias) in self._newton_points.items()
            },
            "newton_origins": {str(k): each._asdict() for k, each in self._origins.items()},
            "interior": self._interior.state(),
            "monitors": [monitor.state() for monitor in self.monitors],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        self.n_iter, self.n_epochs = int(state["n_iter"]), int(state["n_epochs"])
        self._newton_points = {
            int(k): (point["w"], point["bias"]) for k, point in state["newton_points"].items()
        }
        self._origins = {int(k): Origin(**each) for k, each in state["newton_origins"].items()}
        self._interior.restore(state.get("interior", {}))
        for monitor, saved in zip(self.monitors, state["monitors"], strict=True):
            monitor.restore(saved)
