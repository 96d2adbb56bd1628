"""Estimates of what epochs and Newton steps cost, by which the solver chooses between them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from tfopt.linear_model._solver.interior_rows import Step
from tfopt.linear_model._solver.objective import Objective
from tfopt.linear_model._solver.work import (
    CHEAP,
    EPOCHS,
    EPOCHS_OF_CORNERS,
    FEW_PRODUCTS,
    INTERIOR_STEPS,
    MOST_WEIGHTS,
    PRODUCTS,
    WORTH,
    ascent_work,
    descent_work,
    epoch_rate,
    epoch_work,
    hessian_work,
    interior_work,
    n_rows,
    newton_work,
    product_work,
)

__all__ = [
    "CHEAP",
    "DESCENT_SOLVER",
    "EPOCH_SOLVER",
    "INTERIOR_SOLVER",
    "NEWTON_SOLVERS",
    "NEWTON_STEPS",
    "SOLVERS",
    "Costs",
    "applies_in_blocks",
    "begins_with_descent",
    "block_costs",
    "estimate_costs",
    "first_epochs_rate",
    "has_descent",
    "has_hessian",
]

#: The solver whose iterations are epochs, Newton's method by how it solves its linear system, and
#: coordinate descent.
EPOCH_SOLVER, NEWTON_SOLVERS = "sdca", ("newton-cholesky", "newton-cg")
DESCENT_SOLVER = "cd"
#: The interior-point method, for losses with corners.
INTERIOR_SOLVER = "interior-point"
#: All solvers, in the order of their codes in checkpoints.
SOLVERS = (EPOCH_SOLVER, *NEWTON_SOLVERS, DESCENT_SOLVER, INTERIOR_SOLVER)
#: About how many steps Newton's method takes after a few epochs.
NEWTON_STEPS = 3
#: With more weights the Hessian is not formed in blocks, where it is a long message, too.
MOST_WEIGHTS_IN_BLOCKS = 64
#: The approximate cost of a Newton step over blocks, in epochs.
EPOCHS_IN_BLOCKS = 5.0
#: With l1 and more weights the work of coordinate descent is uncertain: it depends on how many of
#: them are not 0. It begins at once if that of epochs is so many times as much, and otherwise takes
#: over from epochs that are slow.
MOST_CERTAIN_WEIGHTS = 512
UNCERTAINTY = 8.0
#: With at least as many rows as weights conjugate gradients are as fast as is counted on: they take
#: over at once if epochs are expected to take more than so many times as long.
DOUBT = 2.0
#: From so many rows on the interior-point method leaves out some, which lessens its work to about
#: this share of that of all rows.
MANY_ROWS, SHARE_OF_MANY = 4096, 0.6
#: Before it come so many epochs, with many rows and with few, if they are less than this share of
#: its work with all rows: they tell whether more of them will do, and it begins where they lead.
EPOCHS_BEFORE, EPOCHS_BEFORE_FEW, SHARE_BEFORE = 8, 2, 0.2


class Costs(NamedTuple):
    """What Newton steps cost, and whether there is time to polish a solution.

    Attributes
    ----------
    newton_step : float
        In epochs; infinity if Newton's method does not apply.
    forms_hessian : bool
        Whether Newton's system is solved by factorization.
    step_polishes : bool
        Whether Newton steps are cheap enough to polish a solution.
    polishing_epochs : int
        How many epochs may polish it where Newton's method does not apply.
    descends : bool
        Whether steps are those of coordinate descent instead.
    begins_with_newton : bool
        Whether to begin with Newton steps.
    reuses_hessian : bool
        Whether a Hessian that is factorized serves a second step near the minimum.
    doubt : float
        Epochs have to show how slow they are before steps may take over, unless they are expected
        to take more than so many times the work of the steps.
    is_interior : bool
        Whether steps are those of the interior-point method instead.
    leaves_out_rows : bool
        Whether these leave out rows far from the corners of their losses.
    step_for : callable, optional
        Returns `newton_step` for a number of weights that are not 0, if it depends on that.
    first_epochs : int
        How many epochs come before the first certificate.
    """

    newton_step: float
    forms_hessian: bool
    step_polishes: bool = False
    polishing_epochs: int = 0
    descends: bool = False
    begins_with_newton: bool = False
    reuses_hessian: bool = False
    doubt: float = 0.0
    is_interior: bool = False
    leaves_out_rows: bool = False
    step_for: Callable[[int], float] | None = None
    first_epochs: int = 2

    @property
    def step_solver(self) -> str:
        """The name of the solver whose steps these are."""
        if self.is_interior:
            return INTERIOR_SOLVER
        return DESCENT_SOLVER if self.descends else NEWTON_SOLVERS[not self.forms_hessian]


def has_interior(objective: Objective) -> bool:
    """Whether the interior-point method applies: a loss with a corner is linear beside it."""
    return not objective.phi.is_smooth and objective.l1 == 0


def has_hessian(objective: Objective) -> bool:
    """Whether the objective has second derivatives."""
    return objective.phi.is_smooth and objective.l1 == 0


def applies_in_blocks(objective: Objective) -> bool:
    """Whether Newton's method applies to blocks or, if the Hessian is formed, interior points."""
    is_small = objective.n_weights <= MOST_WEIGHTS_IN_BLOCKS
    return objective.phi.is_smooth or (is_small and has_interior(objective))


def has_descent(objective: Objective) -> bool:
    """Whether there is an l1, which coordinate descent is for, and no loss that it is not for."""
    return objective.phi.is_smooth and objective.l1 > 0


def begins_with_descent(
    objective: Objective, squared_norm: float, tol: float, *, is_warm: bool
) -> bool:
    """Whether coordinate descent is less work than epochs.

    Parameters
    ----------
    objective : Objective
    squared_norm : float
        The mean of those of the rows.
    tol : float
        The relative gap to be reached.
    is_warm : bool
        Whether weights near the solution are known.
    """
    if not has_descent(objective):
        return False
    if objective.l2 == 0:
        return True
    margin = 1.0 if is_warm or objective.n_weights <= MOST_CERTAIN_WEIGHTS else UNCERTAINTY
    work = descent_work(objective, is_warm=is_warm)
    return margin * work <= ascent_work(objective, squared_norm, tol)


def estimate_costs(
    objective: Objective, solver: str, visits_wanted: bool = False, *, polishes: bool = False
) -> Costs:
    """Return the costs for rows in memory.

    Parameters
    ----------
    objective : Objective
    solver : str
        "auto", or the only one to be used.
    visits_wanted : bool, optional
        Whether options of the visits were set, so that a fit is to begin with them.
    polishes : bool, optional
        Whether a solution is to be polished, if that is cheap.
    """
    epoch = epoch_work(objective)
    if solver == DESCENT_SOLVER:
        polishes = choose_linear_solver(objective)[1] * epoch <= CHEAP
        return Costs(math.inf, False, step_polishes=polishes, descends=True)
    if solver == "auto" and has_descent(objective):

        def step_for(n_nonzero: int) -> float:
            return descent_work(objective, n_nonzero=n_nonzero) / NEWTON_STEPS / epoch

        epochs = int(CHEAP / epoch)
        return Costs(
            step_for(0),
            False,
            polishing_epochs=epochs,
            descends=True,
            doubt=math.inf,
            step_for=step_for,
        )
    if solver != EPOCH_SOLVER and has_interior(objective):
        return interior_costs(objective, solver, visits_wanted, polishes)
    if solver == EPOCH_SOLVER or not has_hessian(objective):
        return Costs(math.inf, False, polishing_epochs=int(CHEAP / epoch))
    forms_hessian, step = choose_linear_solver(objective)
    is_certain = is_tall(objective) and not objective.phi.is_linear_far
    doubt = 0.0 if forms_hessian else DOUBT if is_certain else math.inf
    if solver in NEWTON_SOLVERS:
        forms_hessian, begins = solver == NEWTON_SOLVERS[0], True
    else:
        begins = not visits_wanted and begins_with_newton(objective)
    return Costs(
        step,
        forms_hessian,
        step * epoch <= CHEAP,
        begins_with_newton=begins,
        reuses_hessian=forms_hessian and reuses_hessian(objective),
        doubt=doubt,
    )


def is_tall(objective: Objective) -> bool:
    """Whether there are at least as many rows as weights."""
    return n_rows(objective) >= objective.n_weights


def reuses_hessian(objective: Objective) -> bool:
    """Whether it costs more to form the Hessian than another iteration."""
    return hessian_work(objective) > CHEAP


def interior_costs(objective: Objective, solver: str, visits_wanted: bool, polishes: bool) -> Costs:
    """Return the costs of the interior-point method, as if it took a few Newton steps."""
    epoch, whole = epoch_work(objective), interior_work(objective)
    polishing = int(CHEAP / epoch)
    leaves_out = len(objective.rows[2]) - 1 >= MANY_ROWS and not Step.applies(objective)
    n_first = EPOCHS_BEFORE if leaves_out else EPOCHS_BEFORE_FEW
    epochs_first = epoch * n_first <= SHARE_BEFORE * whole
    if leaves_out:
        whole *= SHARE_OF_MANY
    if solver == INTERIOR_SOLVER:
        step, begins = 0.0, True
    elif objective.n_weights > MOST_WEIGHTS:
        return Costs(math.inf, False, polishing_epochs=polishing)
    else:
        step, begins = whole / epoch / NEWTON_STEPS, whole <= EPOCHS_OF_CORNERS * epoch
        polishes = polishes and begins and whole <= INTERIOR_STEPS * CHEAP
        begins = begins and not visits_wanted and (polishes or not epochs_first)
    can_polish = whole <= (INTERIOR_STEPS * CHEAP if begins else CHEAP)
    return Costs(
        step,
        True,
        step_polishes=can_polish,
        polishing_epochs=0 if begins else polishing,
        begins_with_newton=begins,
        is_interior=True,
        leaves_out_rows=leaves_out,
        first_epochs=n_first if epochs_first else 2,
    )


def begins_with_newton(objective: Objective) -> bool:
    """Whether Newton steps from the weights 0 are less work than epochs.

    Not for losses whose second derivatives far from the minimum are mostly 0.
    """
    return (
        has_hessian(objective)
        and not objective.phi.is_linear_far
        and objective.n_weights <= MOST_WEIGHTS
        and newton_work(objective) <= EPOCHS * epoch_work(objective)
    )


def first_epochs_rate(objective: Objective, squared_norm: float, tol: float) -> float:
    """Return the rate of epochs if a strong l2 makes them less work than Newton steps, else 0.

    It is half that of `epoch_rate` with an intercept, which all rows move.

    Parameters
    ----------
    objective : Objective
    squared_norm : float
        The mean of those of the rows.
    tol : float
        The relative gap to be reached.
    """
    if not has_hessian(objective) or objective.n_weights > MOST_WEIGHTS:
        return 0.0
    if ascent_work(objective, squared_norm, tol) >= newton_work(objective, from_sample=True):
        return 0.0
    return epoch_rate(objective, squared_norm) / (2 if objective.intercept else 1)


def block_costs(objective: Objective) -> Costs:
    """Return the costs for blocks on an executor, where no time is spent on polishing."""
    newton_step = EPOCHS_IN_BLOCKS if applies_in_blocks(objective) else math.inf
    forms_hessian = objective.n_weights <= MOST_WEIGHTS_IN_BLOCKS
    return Costs(
        newton_step,
        forms_hessian,
        descends=objective.l1 > 0,
        is_interior=has_interior(objective),
    )


def choose_linear_solver(objective: Objective) -> tuple[bool, float]:
    """Return whether to factorize the Hessian, and the cost of a step in epochs."""
    epoch = epoch_work(objective)
    is_many = objective.n_weights > MOST_WEIGHTS
    n_products = FEW_PRODUCTS if is_many and is_tall(objective) else PRODUCTS
    by_products = n_products * product_work(objective) / epoch + 1
    if is_many:
        return False, by_products
    with_matrix = hessian_work(objective) / epoch + 1
    return (True, with_matrix) if with_matrix <= WORTH * by_products else (False, by_products)
