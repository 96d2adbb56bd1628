"""The changes that loading a state makes: checked first, then applied all or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tfopt.core.engine import prepare_writes
from tfopt.kernels.arrays.aliasing import certainly_apart, in_place
from tfopt.kernels.update.commit import Assign, Write, carry_out
from tfopt.optimizers.state.state_parts import in_memory
from tfopt.optimizers.state.transaction import Writes, transact
from tfopt.variable import Variable

__all__ = ["LoadedState", "Restoration"]


class LoadedState(NamedTuple):
    """A state whose weights and slots have been checked.

    Attributes
    ----------
    like : object
        An optimizer with the settings in the state.
    parts : dict
        What else is in the state: nested dicts of arrays and numbers.
    names : dict of str to Variable
        The variables by their names in the state.
    slots : mapping of (str, str) to Variable
        The slots that the optimizer will have, by the names of the variable and the slot.
    """

    like: Any
    parts: dict[str, Any]
    names: dict[str, Variable]
    slots: Mapping[tuple[str, str], Variable]


class Restoration:
    """Assignments to weights and attributes that are made completely or not at all.

    Parameters
    ----------
    owners : iterable of object
        Those whose attributes functions set.

    Attributes
    ----------
    writes : list of Write
        Carried out after the assignments.
    functions : list of callable
        Called after the writes. If one raises, or is interrupted, everything is put back but what
        is on a GPU; there Ctrl-C waits for the end.
    """

    def __init__(self, owners: Iterable[Any] = ()) -> None:
        self.writes: Writes = []
        self.functions: list[Callable[[], Any]] = []
        self._owners = [*owners]
        self._assigned: list[tuple[Variable, np.ndarray]] = []
        self._launches = False

    def assign(self, variable: Variable, array: Any) -> None:
        """Add the assignment of an array of the same shape and dtype; a file is read now."""
        value: np.ndarray = in_memory(array)
        if variable.device == "cpu":
            self._assigned.append((variable, value))
        else:
            self.functions.append(partial(variable.assign, value))
            self._launches = True

    def add(self, changes: Iterable[Write | Callable[[], Any]]) -> None:
        """Add writes and functions."""
        for change in changes:
            if isinstance(change, Write):
                self.writes.append(change)
            else:
                self.functions.append(change)

    def carry_out(self) -> None:
        """Change everything, or raise and change nothing."""
        variables = [variable for variable, _ in self._assigned]
        targets = [variable.numpy() for variable in variables]
        values = [value for _, value in self._assigned]
        if not certainly_apart(targets, values):  # the new state of one may be the old of another
            values = [value.copy() for value in values]
        pairs = zip(targets, values, strict=True)
        assignments = [Assign(to, value) for to, value in pairs if not in_place(to, value)]
        writes: Writes = [*assignments, *self.writes]
        prepare_writes(variables)
        if self.functions:
            transact([self._work], writes, targets, self._owners, self._launches)
        else:
            carry_out(writes)

    def _work(self, writes: Writes) -> None:
        carry_out(writes)
        writes.clear()
        for function in self.functions:
            function()
