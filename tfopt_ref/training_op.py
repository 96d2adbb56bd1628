"""The parts of an update rule: its formula, and different formulas for rows if necessary."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import copy

import numpy as np

Formula = Callable[..., tuple[np.ndarray, ...]]


class TrainingOp:
    """A rule, made from a function of old values that returns new ones.

    The function takes the variable, its slots and the gradient, then the hyperparameters by name,
    flags last, and returns the new variable and slots. :func:`tfopt_ref.update.updated` applies it.

    Parameters
    ----------
    formula : callable
    row_slots : tuple of str
        The slots that have one number for each row, if a step depends on all elements of a row;
        they are the last slots.
    absent : bool
        Whether rows without a gradient take a step, too, with None as gradient.

    Attributes
    ----------
    dense : callable
        The formula for whole variables.
    rows, width1 : callable
        The formulas for rows of a sparse gradient, and for such rows with one element.
    operands, hypers : list of str
        The names of the arguments: arrays, then numbers.
    flags : dict
        The names of the flags, with their defaults.
    """

    def __init__(
        self, formula: Formula, row_slots: tuple[str, ...] = (), absent: bool = False
    ) -> None:
        self.dense = self.rows = self.width1 = formula
        self.row_slots, self.absent = row_slots, absent
        self.__name__, self.__doc__ = formula.__name__, formula.__doc__
        self.__module__ = formula.__module__
        parameters = inspect.signature(formula).parameters.values()
        by_name = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
        self.operands = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
        self.hypers = [p.name for p in by_name if p.default is p.empty]
        self.flags = {p.name: p.default for p in by_name if p.default is not p.empty}

    def for_rows(self, formula: Formula) -> TrainingOp:
        """Set a formula for sparse rows, with other results than the dense formula."""
        self.rows = self.width1 = formula
        return self

    def for_width1(self, formula: Formula) -> TrainingOp:
        """Set a formula for sparse rows of one element."""
        self.width1 = formula
        return self

    def lazy(self) -> TrainingOp:
        """Return the rule in a form that does not change rows without a gradient."""
        other = copy(self)
        other.absent = False
        return other
