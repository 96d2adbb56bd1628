"""The convergence of a solver: when to certify, stop or switch; and the history of a fit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tfopt.errors import NotFiniteError
from tfopt.linear_model._fit.certificate import Certificate
from tfopt.linear_model._fit.plan import Plan
from tfopt.linear_model._fit.work import INTERIOR_STEPS, NEWTON_STEPS
from tfopt.linear_model.parameters import INTERIOR, SDCA, SOLVERS, Parameters

__all__ = ["ConvergenceMonitor", "History", "SolverResult"]

#: The largest number of epochs between certificates.
CERTIFY_EVERY = 10
#: Polishing a solution to the last digits takes about this many times the previous epochs.
POLISHING = 20
#: Below this relative gap, the rounding error of the objective, steps do not polish any more.
POLISHED = 2.0**-53
#: The approximate number of steps of Newton's method after a warm start.
WARM_NEWTON_STEPS = 2
#: The logarithm of the factor by which an epoch is assumed to lower the gap, until a second
#: certificate shows it.
ASSUMED_RATE = 0.3
#: With a loss with corners, later epochs are slower than the first ones by about this factor.
SLOWER = 4.0
#: A step is not certified if its estimated relative gap is above this and above the tolerance:
#: estimates are exact up to rounding, or too small.
CERTAIN = 1e-15
#: The interior-point method ends when it has taken this many times its expected work, and more work
#: than epochs were expected to take.
PATIENCE = 1.5
#: The interior-point method is tried once more when epochs reach this relative gap: it then starts
#: with their dual variables and so takes fewer iterations.
NEAR = 1e-3


class SolverResult(NamedTuple):
    """The best certificate of a solver, and its history.

    Attributes
    ----------
    certificate : Certificate
    n_iter : int
    history : list of dict
        For each iteration: the number of the problem and of the iteration, the solver, the seconds
        since the start, the objective (NaN unless certified), the relative gap (an estimate unless
        certified), whether it is certified, and the reason why this solver takes the iteration.
    stalled : bool
        Whether the solver ended because it could not lower the objective further.
    timed_out : bool
        Whether the deadline ended the solver.
    """

    certificate: Certificate
    n_iter: int
    history: list[dict[str, Any]]
    stalled: bool = False
    timed_out: bool = False


class ConvergenceMonitor:
    """Records the convergence of one problem, and decides what its solver does next.

    Certificates cost a pass over the data, so they are computed only when the estimate of the gap,
    a by-product of each epoch, suggests that it is small enough. The ratio of estimate and gap is
    about the same from one certificate to the next.

    Parameters
    ----------
    options : Parameters
    plan : Plan
    number : int
        The number of the problem among the problems of the fit.

    Attributes
    ----------
    best : Certificate or None
    wants_steps : bool
        Whether steps should take over or continue.
    is_tentative : bool
        Whether the gap of a warm start will decide if steps continue from there.
    is_done : bool
        Whether the problem is solved or given up.
    stalled : bool
        Whether it was given up because no step lowered the objective further.
    """

    def __init__(self, options: Parameters, plan: Plan, number: int):
        self.options, self.plan, self._step_cost = options, plan, plan.step_cost
        self._polishing_epochs = plan.polishing_epochs if options.polish else 0
        self._steps_polish = plan.step_polishes and options.polish
        self._polish_until: int | None = None
        self._is_next_due, self._is_interior = False, plan.steps == INTERIOR
        self._interior_cost = NEWTON_STEPS * plan.step_cost / INTERIOR_STEPS
        self._steps_left, self._has_given_up = math.inf, False
        self.wants_steps, self.is_done, self.stalled = False, False, False
        self.is_tentative = False
        self._history = History(number, options.report)
        self._history.reasons[plan.solver] = plan.reason
        self.best: Certificate | None = None
        self._last_gap, self._last_epoch, self._estimate_per_gap = math.inf, 0, 1.0
        self._last_step_gap = math.inf

    def should_certify(self, number: int, estimate: float) -> bool:
        """Whether to compute a certificate after an epoch with this estimate of the gap."""
        best = self.best
        if self._polish_until is not None:
            should_certify = self.is_last or number == self._polish_until
        else:
            should_certify = self._is_certificate_due(number, estimate)
        if not should_certify:
            scale = best.objective * self._estimate_per_gap if best is not None else math.nan
            self._history.estimated(SDCA, estimate / scale if scale else math.nan)
        return should_certify

    def _is_certificate_due(self, number: int, estimate: float) -> bool:
        best = self.best
        should_certify = self.is_last or number == self.plan.first_epochs
        should_certify |= number - self._last_epoch >= CERTIFY_EVERY
        should_certify |= self._is_next_due
        if best is not None:
            should_certify |= (
                estimate <= 1.2 * self.options.tol * best.objective * self._estimate_per_gap
            )
        return should_certify

    def update(self, point: Certificate, number: int, estimate: float) -> None:
        """Record a certificate of an epoch."""
        is_last = self.is_last or self._polish_until is not None
        self._keep_best(point)
        self._history.certified(point, SDCA)
        if is_last or self._is_stopped:
            self.is_done = True
            return
        if self.is_converged:
            self.wants_steps = self._steps_polish
            self._history.explain(self.plan.steps, "polishes the solution")
            more = min(POLISHING * number, self._polishing_epochs) if point.gap > 0 else 0
            self._polish_until = number + more
            self.is_done = not self.wants_steps and more == 0
            return
        if math.isinf(point.gap):  # losses overflow
            self._last_epoch = number
            return
        self._estimate_per_gap = estimate / point.gap
        rate = math.log(self._last_gap / point.gap) / (number - self._last_epoch)
        is_first = math.isinf(self._last_gap)
        if is_first:
            rate = self.plan.rate or ASSUMED_RATE
            if self._is_interior:  # with the weights 0 the relative gap was 1
                rate = -math.log(point.relative_gap) / (SLOWER * number)
        wanted = max(self.options.tol, 1e-16)  # the limit of rounding
        left = math.log(point.relative_gap / wanted) / rate if rate > 0 else math.inf
        self._last_gap, self._last_epoch = point.gap, number
        if self.plan.step_cost_of is not None and math.isfinite(self._step_cost):
            self._step_cost = self.plan.step_cost_of(int(np.count_nonzero(point.w)))
        expected = NEWTON_STEPS * self._step_cost
        self.wants_steps = left > expected
        # compare the assumed rate with that of the next epoch
        self._is_next_due = is_first and self.wants_steps and left <= self.plan.doubt * expected
        self.wants_steps &= not self._is_next_due
        self.wants_steps &= not self._has_given_up or point.relative_gap <= NEAR
        if self.wants_steps:
            self._history.explain(self.plan.steps, self.plan.comparison(expected, left))
        if self.wants_steps and self._is_interior:
            self._steps_left = max(PATIENCE * INTERIOR_STEPS, left / self._interior_cost)

    def begin(self, point: Certificate) -> None:
        """Record the certificate of a warm start, and decide whether steps continue from there."""
        self.is_tentative = False
        self._keep_best(point)
        if not self.plan.begins_with_steps:
            self._history.explain(self.plan.steps, "goes on from the last fit")
        self._history.certified(point, self.plan.steps)
        self.is_done = self._is_exhausted or (self.is_converged and not self._steps_polish)
        if point.gap > 0:
            left = math.log(point.relative_gap / max(self.options.tol, 1e-16)) / ASSUMED_RATE
            self.wants_steps = left > WARM_NEWTON_STEPS * self._step_cost
        self.wants_steps |= self._steps_polish

    def update_step(self, point: Certificate) -> None:
        """Record a certificate of a step.

        Steps that polish the solution end when the gap is negligible, or when one does not halve
        it, since the gap is then rounding.
        """
        if self.is_tentative:
            self.begin(point)
            return
        goes_on = self._steps_polish and 2 * point.gap < self._last_step_gap
        goes_on = goes_on and point.relative_gap > POLISHED
        self._last_step_gap = point.gap
        best = self._keep_best(point)
        self._history.certified(best, self.plan.steps)
        self.is_done = (self.is_converged and not goes_on) or self._is_exhausted

    def should_certify_step(self, estimate: Certificate, loose: float = 1.0) -> bool:
        """Whether to certify a step, given an estimate of its certificate.

        False if the estimated gap is more than `loose` times the largest allowed gap.
        """
        enough = max(loose * self.options.tol, CERTAIN)
        is_far = enough < estimate.relative_gap < math.inf
        return self.is_last or not is_far

    def skip_step(self, estimate: Certificate) -> None:
        """Record a step without a certificate."""
        self._history.estimated(self.plan.steps, estimate.relative_gap)
        self._steps_left -= 1

    @property
    def must_certify(self) -> bool:
        """Whether the next step is certified for any gap."""
        return self.is_last or self.is_tentative

    @property
    def gives_up_steps(self) -> bool:
        """Whether steps have taken so much more work than expected that epochs should continue."""
        return self._steps_left < 0 and not self.is_done

    def give_up_steps(self) -> None:
        """Continue with epochs; from the second time on, steps do not take over again."""
        if self._has_given_up:
            self.end_steps()
        self._history.explain(SDCA, f"{self.plan.steps} took longer than was expected")
        self.wants_steps, self._has_given_up, self._steps_left = False, True, math.inf

    def end_steps(self) -> None:
        """Record that no step lowers the objective; epochs continue unless that was rounding."""
        self._step_cost, self.wants_steps = math.inf, False
        self.stalled = self.plan.is_only
        self._history.explain(SDCA, f"no step of {self.plan.steps} lowers the objective further")
        self.is_done = self.is_converged or self.stalled

    @property
    def is_converged(self) -> bool:
        """Whether the best certificate is within the tolerance."""
        return self.best is not None and self.best.relative_gap <= self.options.tol

    def _keep_best(self, point: Certificate) -> Certificate:
        """Keep the better one of the best certificate and this one, and return it."""
        are_finite = math.isfinite(point.objective) or np.isfinite(point.w).all()
        if not (are_finite and point.objective >= 0 and point.gap >= 0):
            raise NotFiniteError(
                "the weights are no longer finite: the features, the targets or the samples' "
                "weights are too large; scale them"
            )
        if self.best is None or point.gap < self.best.gap:
            self.best = point
        return self.best

    @property
    def is_last(self) -> bool:
        """Whether the next iteration is the last one and must be certified."""
        return len(self._history.records) + 1 >= self.options.max_iter or self._is_stopped

    @property
    def _is_exhausted(self) -> bool:
        return len(self._history.records) >= self.options.max_iter or self._is_stopped

    @property
    def _is_stopped(self) -> bool:
        told = self.options.stopped is not None and self.options.stopped()
        return told or self._is_late

    @property
    def _is_late(self) -> bool:
        return time.perf_counter() >= self.options.deadline

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        best = self.best
        point = best and {"w": best.w, "bias": best.bias} | {
            "objective": best.objective,
            "gap": best.gap,
        }
        return {
            "best": point,
            "is_done": self.is_done,
            "steps_left": self._steps_left,
            "has_given_up": self._has_given_up,
            "last": np.array(
                [self._last_gap, self._last_epoch, self._estimate_per_gap, self._step_cost]
            ),
            **self._history.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        if state["best"] is not None:
            self.best = Certificate(**state["best"])
        self.is_done = bool(state["is_done"])
        self._steps_left = float(state.get("steps_left", math.inf))
        self._has_given_up = bool(state.get("has_given_up", False))
        self._last_gap, number, self._estimate_per_gap, self._step_cost = state["last"].tolist()
        self._last_epoch = int(number)
        self._history.restore(state)

    def result(self) -> SolverResult:
        """Return the best certificate and the history."""
        assert self.best is not None
        if not math.isfinite(self.best.objective):
            raise NotFiniteError(
                "the objective is infinite at every iterate: scale the features and the "
                "targets, or raise max_iter"
            )
        history = self._history.records
        late = self._is_late and not self.is_converged
        return SolverResult(self.best, len(history), history, self.stalled and not late, late)


#: The solvers in the order of their codes in checkpoints.
CODES = list(SOLVERS)
#: The entries of a record, besides the number of the problem and the reason.
ENTRIES = ("iteration", "solver", "seconds", "objective", "gap", "certified")


class History:
    """The records of one problem.

    Parameters
    ----------
    number : int
        The number of the problem.
    report : callable, optional
        Called with each record.

    Attributes
    ----------
    records : list of dict
    reasons : dict of str
        The reason why each solver takes iterations, by its name.
    """

    def __init__(self, number: int, report: Callable[[dict[str, Any]], object] | None) -> None:
        self.number, self.report, self.started = number, report, time.perf_counter()
        self.records: list[dict[str, Any]] = []
        self.reasons: dict[str, str] = {}

    def explain(self, solver: str, why: str) -> None:
        """Set the reason why a solver takes the next iterations."""
        self.reasons[solver] = f"{solver}: {why}"

    def certified(self, point: Certificate, solver: str) -> None:
        """Add the record of a certificate."""
        stated = point._replace(gap=point.stated_gap)
        self._add(solver, point.objective, stated.relative_gap, True)

    def estimated(self, solver: str, relative_gap: float) -> None:
        """Add the record of an iteration without a certificate."""
        self._add(solver, math.nan, relative_gap, False)

    def _add(self, solver: str, objective: float, gap: float, certified: bool) -> None:
        seconds = time.perf_counter() - self.started
        values = (len(self.records) + 1, solver, seconds, objective, gap, certified)
        record = self._record(values)
        self.records.append(record)
        if self.report:
            self.report(record)

    def _record(self, values: Iterable[Any]) -> dict[str, Any]:
        """Return a record with these entries and the reason of its solver."""
        entries = dict(zip(ENTRIES, values, strict=True))
        reason = self.reasons.get(entries["solver"], "")
        return {"problem": self.number, **entries, "reason": reason}

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint: a column for each entry, with solvers as their codes.

        Each reason has the number of the first iteration for which it holds; the last reasons have
        the names of their solvers.
        """
        columns = {name: [record[name] for record in self.records] for name in ENTRIES}
        columns["solver"] = [CODES.index(name) for name in columns["solver"]]
        changes, last = {}, None
        for record in self.records:
            if record["reason"] != last:
                changes[str(record["iteration"])] = last = record["reason"]
        history = {name: np.array(column) for name, column in columns.items()}
        return {"history": history, "reasons": changes | self.reasons}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue a history, as if no time had passed since its last record."""
        columns = {name: state["history"][name].tolist() for name in ENTRIES}
        columns["solver"] = [CODES[code] for code in columns["solver"]]
        reasons, self.records = state.get("reasons", {}), []
        for row in zip(*columns.values(), strict=True):
            solver, number = self._record(row)["solver"], str(len(self.records) + 1)
            self.reasons[solver] = reasons.get(number, self.reasons.get(solver, ""))
            self.records.append(self._record(row))
        self.reasons |= {name: text for name, text in reasons.items() if name in SOLVERS}
        seconds = self.records[-1]["seconds"] if self.records else 0.0
        self.started = time.perf_counter() - seconds
