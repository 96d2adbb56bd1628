"""The plan of a fit: which solver begins, which takes over from epochs, and why.

Among the solvers that apply, it chooses the one with the least work, as counted by `work`. So
neither the choice nor the result depends on the machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from tfopt.linear_model._fit import work
from tfopt.linear_model._fit.interior_rows import Step
from tfopt.linear_model._fit.problem import Problem
from tfopt.linear_model._fit.work import count_of, reason_of, time_of
from tfopt.linear_model.parameters import (
    CG,
    CHOLESKY,
    DESCENT,
    INTERIOR,
    SDCA,
    Parameters,
    applies,
    has_descent,
    has_hessian,
)

__all__ = ["Plan", "applies_in_blocks", "make_block_plan", "make_plan"]


#: With more weights, the Hessian is not formed in blocks, because it would be a long message.
MOST_WEIGHTS_IN_BLOCKS = 64
#: The approximate cost of a Newton step over blocks, in epochs.
EPOCHS_IN_BLOCKS = 5.0
#: With l1 and more weights, the work of coordinate descent is uncertain, since it depends on the
#: number of nonzero weights. It begins at once if epochs are UNCERTAINTY times as much work;
#: otherwise it takes over from epochs that are slow.
MOST_CERTAIN_WEIGHTS, UNCERTAINTY = 512, 8.0
#: With at least as many rows as weights, the work of conjugate gradients is well estimated: they
#: take over at once if the epochs left are more than this many times as much work.
DOUBT = 2.0
#: With at least this many rows, the interior-point method for classifiers leaves some of them out,
#: which reduces its work to about this share. In regression the rows are near corners of the loss.
MANY_ROWS, SHARE_OF_MANY = 4096, 0.6
#: The number of epochs before the interior-point method, with many rows and with few, if they are
#: at most this share of its work with all rows. They show whether epochs suffice, and it starts
#: from their result.
EPOCHS_BEFORE, EPOCHS_BEFORE_FEW, SHARE_BEFORE = 8, 2, 0.2
#: With at least VALUES_OF_TWO stored values and WEIGHTS_OF_TWO weights, epochs visit two partitions
#: at a time; with VALUES_OF_FOUR values, four. With fewer weights, the changes of partitions
#: overlap so much that the additional epochs cost more than parallel visits save.
VALUES_OF_TWO, WEIGHTS_OF_TWO, VALUES_OF_FOUR = 2**20, 2000, 2**24


class Plan(NamedTuple):
    """Which solver begins, which takes over from epochs, and why.

    Attributes
    ----------
    solver : str
        The solver of the first iteration.
    steps : str
        The solver whose steps begin or may take over from epochs; "sdca" if there is none.
    reason : str
        Why `solver` begins.
    is_only : bool
        Whether no other solver may continue if it fails.
    n_partitions : int
    together : bool
        Whether classes are solved together.
    epoch : float
        The work of an epoch; 0 if it is not known.
    rate : float
        The logarithm of the factor by which an epoch is expected to lower the gap, if a fit begins
        with epochs because few are expected to suffice; otherwise 0.
    step_cost : float
        The work of one of NEWTON_STEPS steps, in epochs; infinity if no steps take over.
    step_cost_of : callable, optional
        Returns the `step_cost` for a number of nonzero weights, if it depends on that.
    forms_hessian : bool
        Whether steps form the Hessian.
    products_before_hessian : float
        The number of products after which conjugate gradients get a Hessian as preconditioner;
        infinity means never.
    reuses_hessian : bool
        Whether a Hessian is used for a second step near the minimum.
    sample : int
        The number of rows in the sample whose minimum is the start; 0 for a start at the weights 0.
    doubt : float
        Steps take over at once if the epochs left are expected to be more than this many times the
        work of the steps; otherwise one more epoch has to show its rate before.
    leaves_out_rows : bool
        Whether interior points leave out rows far from the corners of their losses.
    first_epochs : int
        The number of epochs before the first certificate.
    step_polishes : bool
        Whether steps are cheap enough to polish a solution.
    polishing_epochs : int
        The largest number of epochs that polish a solution, if no steps do.
    """

    solver: str
    steps: str
    reason: str = ""
    is_only: bool = False
    n_partitions: int = 1
    together: bool = False
    epoch: float = 0.0
    rate: float = 0.0
    step_cost: float = math.inf
    step_cost_of: Callable[[int], float] | None = None
    forms_hessian: bool = False
    products_before_hessian: float = math.inf
    reuses_hessian: bool = False
    sample: int = 0
    doubt: float = 0.0
    leaves_out_rows: bool = False
    first_epochs: int = 2
    step_polishes: bool = False
    polishing_epochs: int = 0

    @property
    def begins_with_steps(self) -> bool:
        """Whether the first iteration is a step, not an epoch."""
        return self.solver != SDCA

    def comparison(self, steps: float, epochs: float) -> str:
        """Return why steps take over, given their work and that of the epochs left, in epochs."""
        if not self.epoch:
            return f"the work of {steps:.0f} epochs expected, instead of {epochs:.0f}"
        return f"{time_of(steps * self.epoch)} expected, instead of {time_of(epochs * self.epoch)}"


def make_plan(
    problem: Problem,
    asked: Parameters,
    n_problems: int = 1,
    mean_square: Callable[[], float] | None = None,
) -> Plan:
    """Return the plan for rows in memory.

    Parameters
    ----------
    problem : Problem
    asked : Parameters
    n_problems : int, optional
        The number of problems that share the rows.
    mean_square : callable, optional
        Returns the mean of the rows' squared norms. Without it, the plan never assumes a strong l2.
    """
    n_partitions = _n_partitions(problem, asked, n_problems)
    visits = asked.adaptive or n_partitions > 1
    plan = _chosen(problem, asked, visits, mean_square)
    together = n_problems > 1 and not (visits or plan.begins_with_steps)
    return plan._replace(
        n_partitions=n_partitions,
        together=together and problem.phi.is_classification,
        epoch=work.epoch_work(problem),
    )


def _n_partitions(problem: Problem, asked: Parameters, n_problems: int) -> int:
    """Return the number of partitions that are visited in parallel.

    It must not depend on the machine, because the result depends on it.
    """
    if asked.n_partitions is not None:
        return asked.n_partitions
    if asked.adaptive or n_problems > 1:  # classes are solved in parallel instead
        return 1
    n_values = problem.n_features
    if n_values < VALUES_OF_TWO or problem.n_weights < WEIGHTS_OF_TWO:
        return 1
    return 2 if n_values < VALUES_OF_FOUR else 4


def _chosen(
    problem: Problem, asked: Parameters, visits: bool, mean_square: Callable[[], float] | None
) -> Plan:
    """Return the plan of the solvers; with `visits`, the options require epochs first."""
    is_auto = asked.solver == "auto"
    if asked.solver == DESCENT or (is_auto and has_descent(problem)):
        expected = work.descent_work(problem, is_warm=asked.is_warm)
        if not is_auto or _begins_with_descent(problem, asked, expected, mean_square):
            return _descent_alone(problem, asked, expected)
        return _descent_after_epochs(problem)
    if asked.solver != SDCA and applies(INTERIOR, problem):
        return _interior(problem, asked, visits)
    if asked.solver == SDCA or not has_hessian(problem):
        needed = f"{INTERIOR} needs fewer features"
        return _epochs_alone(problem, needed if is_auto else "asked for")
    return _newton(problem, asked, visits, mean_square)


def _epochs_alone(problem: Problem, why: str) -> Plan:
    polishing = int(work.CHEAP / work.epoch_work(problem))
    return Plan(SDCA, SDCA, reason_of(SDCA, problem, why), polishing_epochs=polishing)


def _descent_alone(problem: Problem, asked: Parameters, expected: float) -> Plan:
    a_step = work.choose_linear_solver(problem)[1] * work.epoch_work(problem)
    return Plan(
        DESCENT,
        DESCENT,
        reason_of(DESCENT, problem, _expected(expected, asked)),
        is_only=True,
        forms_hessian=True,
        step_polishes=a_step <= work.CHEAP,
    )


def _descent_after_epochs(problem: Problem) -> Plan:
    epoch = work.epoch_work(problem)

    def step_cost_of(n_nonzero: int) -> float:
        return work.descent_work(problem, n_nonzero=n_nonzero) / work.NEWTON_STEPS / epoch

    return Plan(
        SDCA,
        DESCENT,
        reason_of(SDCA, problem, f"epochs tell whether {DESCENT} is less work"),
        step_cost=step_cost_of(0),
        step_cost_of=step_cost_of,
        forms_hessian=True,
        doubt=math.inf,
        polishing_epochs=int(work.CHEAP / epoch),
    )


def _interior(problem: Problem, asked: Parameters, visits: bool) -> Plan:
    """Return the plan with the interior-point method; its cost is that of NEWTON_STEPS steps."""
    epoch, whole = work.epoch_work(problem), work.interior_work(problem)
    polishing = int(work.CHEAP / epoch)
    leaves_out = work.n_rows(problem) >= MANY_ROWS and not Step.applies(problem)
    leaves_out = leaves_out and problem.phi.is_classification and not problem.l1
    leaves_out = leaves_out and problem.is_plain
    is_only = asked.solver == INTERIOR or not applies(SDCA, problem)
    n_first = EPOCHS_BEFORE if leaves_out else EPOCHS_BEFORE_FEW
    epochs_first = epoch * n_first <= SHARE_BEFORE * whole
    if leaves_out:
        whole *= SHARE_OF_MANY
    if is_only:
        step, begins = 0.0, True
    elif problem.n_weights > work.MOST_WEIGHTS:
        return _epochs_alone(problem, f"{INTERIOR} is for at most {work.MOST_WEIGHTS} features")
    else:
        step, begins = whole / epoch / work.NEWTON_STEPS, whole <= work.EPOCHS_OF_CORNERS * epoch
        polishes = asked.polish and begins and whole <= work.INTERIOR_STEPS * work.CHEAP
        begins = begins and not visits and (polishes or not epochs_first)
    can_polish = whole <= (work.INTERIOR_STEPS * work.CHEAP if begins else work.CHEAP)
    solver = INTERIOR if begins else SDCA
    why = _expected(whole, asked) if begins else f"epochs tell whether {INTERIOR} is less work"
    return Plan(
        solver,
        INTERIOR,
        reason_of(solver, problem, why),
        is_only=is_only,
        step_cost=step,
        forms_hessian=True,
        leaves_out_rows=leaves_out,
        first_epochs=n_first if epochs_first else 2,
        step_polishes=can_polish,
        polishing_epochs=0 if begins else polishing,
    )


def _newton(
    problem: Problem, asked: Parameters, visits: bool, mean_square: Callable[[], float] | None
) -> Plan:
    epoch, (forms_hessian, step) = work.epoch_work(problem), work.choose_linear_solver(problem)
    is_certain = work.is_tall(problem) and not problem.phi.is_linear_far
    doubt = 0.0 if forms_hessian else DOUBT if is_certain else math.inf
    rate = 0.0
    if asked.solver == "auto":
        rate = _first_epochs_rate(problem, asked, mean_square)
        begins = not visits and rate == 0 and begins_with_newton(problem)
        steps = CHOLESKY if forms_hessian else CG
    else:
        forms_hessian, begins, steps = asked.solver == CHOLESKY, True, asked.solver
    if begins:
        expected = (
            work.newton_work(problem, from_sample=True)
            if forms_hessian
            else work.NEWTON_STEPS * step * epoch
        )
        why = _expected(expected, asked)
    elif rate:
        expected = -math.log(max(asked.tol, 1e-16)) / rate * epoch
        why = f"l2 is strong: {_expected(expected, asked)}"
    else:
        why = f"epochs tell whether {steps} is less work"
    solver = steps if begins else SDCA
    return Plan(
        solver,
        steps,
        reason_of(solver, problem, why),
        is_only=asked.solver != "auto",
        rate=rate,
        step_cost=step,
        forms_hessian=forms_hessian,
        products_before_hessian=work.products_before_hessian(problem),
        reuses_hessian=forms_hessian and work.reuses_hessian(problem),
        sample=work.sample_size(problem) if begins and forms_hessian else 0,
        doubt=doubt,
        step_polishes=step * epoch <= work.CHEAP,
    )


def make_block_plan(problem: Problem, *, is_dense: bool = False) -> Plan:
    """Return the plan for blocks on an executor, without polishing.

    A visit of a dense row takes as long as several passes of Newton's method. So steps begin with
    dense blocks, except for losses whose second derivatives are mostly 0 far from the minimum. For
    other blocks the gain would be small.
    """
    has_steps = applies_in_blocks(problem)
    is_small = problem.n_weights <= MOST_WEIGHTS_IN_BLOCKS
    steps = (CHOLESKY if is_small else CG) if has_hessian(problem) else DESCENT
    if not has_steps:
        steps = SDCA
    elif not problem.phi.is_smooth:
        steps = INTERIOR
    begins = has_steps and is_dense and not problem.phi.is_linear_far
    solver = steps if begins else SDCA
    why = "dense blocks" if begins else f"epochs tell whether {steps} is less work"
    if not has_steps:
        why = "no other solver applies in blocks"
    return Plan(
        solver,
        steps,
        f"{solver}: {count_of(problem.n_weights)} features in blocks; {why}",
        step_cost=EPOCHS_IN_BLOCKS if has_steps else math.inf,
        forms_hessian=is_small,
    )


def applies_in_blocks(problem: Problem) -> bool:
    """Whether steps apply in blocks: to smooth losses, or as interior points with few weights."""
    is_small = problem.n_weights <= MOST_WEIGHTS_IN_BLOCKS
    is_interior = is_small and problem.l1 == 0 and applies(INTERIOR, problem)
    return problem.phi.is_smooth or is_interior


def _begins_with_descent(
    problem: Problem,
    asked: Parameters,
    expected: float,
    mean_square: Callable[[], float] | None,
) -> bool:
    """Whether coordinate descent, of the expected work, is less work than epochs."""
    if asked.asks_for_visits:
        return False
    if not applies(SDCA, problem):
        return True
    if mean_square is None:
        return False
    is_certain = asked.is_warm or problem.n_weights <= MOST_CERTAIN_WEIGHTS
    return expected * (1.0 if is_certain else UNCERTAINTY) <= work.ascent_work(
        problem, mean_square(), asked.tol
    )


def begins_with_newton(problem: Problem) -> bool:
    """Whether Newton steps from the weights 0 are less work than epochs.

    False for losses whose second derivatives are mostly 0 far from the minimum.
    """
    most = work.EPOCHS * work.epoch_work(problem)
    return not problem.phi.is_linear_far and work.newton_work(problem) <= most


def _first_epochs_rate(
    problem: Problem, asked: Parameters, mean_square: Callable[[], float] | None
) -> float:
    """Return the rate of epochs if a strong l2 makes them less work than Newton steps, else 0.

    With an intercept, which all rows change, it is half the `epoch_rate`.
    """
    if asked.is_warm or mean_square is None:
        return 0.0
    square, newton = mean_square(), work.newton_work(problem, from_sample=True)
    if work.ascent_work(problem, square, asked.tol) >= newton:
        return 0.0
    return work.epoch_rate(problem, square) / (2 if problem.intercept else 1)


def _expected(amount: float, asked: Parameters) -> str:
    return f"{time_of(amount)} expected" + (", asked for" if asked.solver != "auto" else "")
