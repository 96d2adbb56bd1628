"""The solvers by their names, and what each needs of a problem."""

from __future__ import annotations

import math
from typing import NamedTuple

from tfopt.linear_model._fit.problem import Problem
from tfopt.linear_model.loss_record import PointwiseLoss

__all__ = [
    "CG",
    "CHOLESKY",
    "DESCENT",
    "INTERIOR",
    "SDCA",
    "SOLVERS",
    "Needs",
    "applies",
    "has_descent",
    "has_hessian",
]


class Needs(NamedTuple):
    """What a solver needs of a problem.

    Attributes
    ----------
    smooth : bool or None
        Whether the loss must be smooth, or must have a corner; None: any will do.
    takes_l1 : bool
        Whether there may be an l1 penalty.
    l2 : bool
        Whether l2 must be above 0; otherwise l1 or l2 must be.
    most_features : float
        How many there may be: a solver may form matrices of their square.
    visits : bool
        Whether it visits samples, so that options of the visits apply.
    is_joint : bool
        Whether it solves for several classes as one problem, too.
    without_penalty : bool
        Whether l1 and l2 may both be 0, of a loss that is a likelihood.
    """

    smooth: bool | None = True
    takes_l1: bool = False
    l2: bool = True
    most_features: float = math.inf
    visits: bool = False
    is_joint: bool = False
    without_penalty: bool = False

    def unmet(self, loss: PointwiseLoss, l1: float, l2: float) -> str | None:
        """Return which need a problem does not meet, or None."""
        if l1 == l2 == 0 and self.without_penalty and loss.is_likelihood:
            return None
        if l1 > 0 and not self.takes_l1:
            return f"l1=0, not l1={l1!r}"
        if self.smooth is not None and self.smooth != loss.is_smooth:
            kind = "smooth loss" if self.smooth else "loss with a corner"
            return f"a {kind}, not loss={loss.name!r}"
        if l2 == 0 and (self.l2 or l1 == 0):
            return "l2 above 0" if self.l2 else "l1 or l2 above 0"
        return None


#: Epochs of dual coordinate ascent, Newton's method by how it solves its linear system, coordinate
#: descent, and the interior-point method; in the order of their codes in checkpoints.
SDCA, CHOLESKY, CG, DESCENT, INTERIOR = (
    "sdca",
    "newton-cholesky",
    "newton-cg",
    "cd",
    "interior-point",
)
SOLVERS = {
    SDCA: Needs(smooth=None, takes_l1=True, visits=True),
    CHOLESKY: Needs(most_features=5000, without_penalty=True),
    CG: Needs(is_joint=True),
    DESCENT: Needs(takes_l1=True, l2=False),
    INTERIOR: Needs(smooth=False, most_features=5000),
}


def applies(solver: str, objective: Problem) -> bool:
    """Whether a solver meets with what it needs."""
    needs = SOLVERS[solver]
    few = objective.n_weights <= needs.most_features
    return few and needs.unmet(objective.phi, objective.l1, objective.l2) is None


def has_hessian(objective: Problem) -> bool:
    """Whether Newton's method applies."""
    return applies(CG, objective)


def has_descent(objective: Problem) -> bool:
    """Whether there is an l1 that coordinate descent is for."""
    return objective.l1 > 0 and applies(DESCENT, objective)
