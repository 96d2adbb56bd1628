"""The parts of an update rule: its formula, and other formulas for rows if they differ."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import copy

import numpy as np

Formula = Callable[..., tuple[np.ndarray, ...]]


class TrainingOp:
    """A rule, made of a function from old values to new ones.

    The function takes the variable, its slots and the gradient, then the hyperparameters by name,
    flags last, and returns the new variable and slots. :func:`tfopt_ref.update.updated` applies it.

    Parameters
    ----------
    formula : callable
    row_slots : tuple of str
        The slots that have one number for each row, where a step depends on all elements of a row;
        those are the last.
    absent : bool
        Whether the rows that a gradient does not name take a step, too: one with None for it.

    Attributes
    ----------
    dense : callable
        The formula of whole variables.
    rows, width1 : callable
        Those of rows that a gradient names, and of such rows of one element.
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
        """Take a formula for sparse rows whose answers are not the dense one's."""
        self.rows = self.width1 = formula
        return self

    def for_width1(self, formula: Formula) -> TrainingOp:
        """Take a formula for sparse rows of one element."""
        self.width1 = formula
        return self

    def lazy(self) -> TrainingOp:
        """Return the rule that does not change rows without a gradient."""
        other = copy(self)
        other.absent = False
        return other
