"""Why a solver begins, in words: the sizes of a problem, and how long its counted work takes."""

from __future__ import annotations

import math

from tfopt.linear_model._fit.problem import Problem
from tfopt.linear_model._fit.work import n_rows

__all__ = ["count_of", "reason_of", "time_of"]

#: The work of a millisecond, about.
MILLISECOND = 1e7


def reason_of(solver: str, objective: Problem, why: str) -> str:
    """Return the reason why a solver begins with the rows of an objective."""
    sizes = f"{count_of(objective.n_weights)} features, {count_of(n_rows(objective))} rows"
    return f"{solver}: {sizes}; {why}"


def time_of(amount: float) -> str:
    """Return how long so much work takes, about."""
    ms = amount / MILLISECOND
    if math.isinf(ms):
        return "endless epochs"
    if ms >= 1000:
        return f"{ms / 1000:.3g} s"
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.1g} ms"


def count_of(n: int) -> str:
    """Return a number with its thousands apart."""
    return f"{n:,}".replace(",", " ")
