"""The loop of a fit: epochs of dual coordinate ascent, steps where they pay, and certificates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tfopt.linear_model._fit.certificate import Certificate, certify
from tfopt.linear_model._fit.design import Design, Point
from tfopt.linear_model._fit.monitor import ConvergenceMonitor
from tfopt.linear_model._fit.parameters import Parameters
from tfopt.linear_model._fit.plan import Plan
from tfopt.linear_model._fit.problem import Problem
from tfopt.linear_model._fit.solvers import INTERIOR
from tfopt.linear_model._fit.steps import Steps

__all__ = ["Epochs", "Minimization", "Visits"]


class Visits(Protocol):
    """Dual coordinate ascent for several problems that share their rows."""

    def run(self, epoch: int, problems: Sequence[int]) -> Mapping[int, float]:
        """Visit the examples once, and return estimates of the problems' gaps."""

    def points(self, problems: Sequence[int]) -> dict[int, Point]:
        """Return the unshrunk weights and the intercepts of problems that are to be certified."""


class Epochs:
    """Epochs of visits, and certificates of their dual variables.

    Parameters
    ----------
    objective : Problem
        Its rows are not used.
    design : Design
    visits : callable
        Returns the visits, when they begin.

    Attributes
    ----------
    number : int
        How many epochs there were.
    """

    def __init__(self, objective: Problem, design: Design, visits: Callable[[], Visits]) -> None:
        self.objective, self.design, self.visits, self.number = objective, design, visits, 0

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
        return certify(self.objective, self.design, points, estimates)


class Minimization:
    """The minimization of the objectives of several problems that share their rows.

    Each iteration is an epoch of visits or, while there are problems for which steps pay, a step of
    each of these.

    Parameters
    ----------
    plan : Plan
    steps : Steps
        The method that the plan has for steps.
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
        How many iterations there were.
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
        """The epochs, of a plan that has some."""
        assert self._epochs is not None
        return self._epochs

    def begin_steps(
        self, problem: int, w: np.ndarray, bias: float, *, tentatively: bool = False
    ) -> None:
        """Make the next iteration of a problem a step, from a point.

        Tentatively: unless its gap, or losses that overflow, say that epochs are the better choice.
        """
        monitor = self.monitors[problem]
        monitor.is_tentative, monitor.wants_steps = tentatively, not tentatively
        if not (tentatively and self.plan.steps == INTERIOR):  # that begins with the duals
            self.steps.start(problem, w, bias)

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")  # that is far from the minimum
    def run(self, after: Callable[[int], None] | None = None) -> None:
        """Iterate until all problems are done.

        Parameters
        ----------
        after : callable, optional
            Called with the number of each iteration at its end, but for the last.
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
        """Visit the examples, certify where that is due, and begin steps where they take over."""
        estimates = self.epochs.run(active)
        number = self.epochs.number
        due = [k for k in active if self.monitors[k].should_certify(number, estimates[k])]
        for k, point in self.epochs.certify(due, estimates).items():
            self.monitors[k].update(point, number, estimates[k])
            self._keep_best(k, point)
            if self.monitors[k].wants_steps:
                self.begin_steps(k, point.w, point.bias)

    def _step(self) -> None:
        """Look how near the points are, certify where that is due, step on, and end what fails."""
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
        """Certify the dual variables of visits, from whose weights steps are to go on."""
        for k, point in self.epochs.certify(problems, dict.fromkeys(problems, 0.0)).items():
            self._certified(k, point)
            if not self.monitors[k].is_done and self.monitors[k].wants_steps:
                self.steps.start(k, point.w, point.bias)

    def _certified(self, problem: int, point: Certificate) -> None:
        self.monitors[problem].update_step(point)
        self._keep_best(problem, point)

    def _keep_best(self, problem: int, point: Certificate) -> None:
        if self.monitors[problem].best is point:
            self.keep_best(problem)

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
