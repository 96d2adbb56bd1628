"""Variables that are said to be different from others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tfopt.errors import InvalidArgumentError
from tfopt.optimizers.base.gradients import memory_of
from tfopt.variable import Variable

__all__ = ["VariableSet"]


class VariableSet:
    """A set of variables, given themselves or by patterns of their names.

    Parameters
    ----------
    variables : iterable of Variable
    patterns : iterable of str
        Regular expressions; a variable belongs to the set if one has a match in its name.
    """

    def __init__(self, variables: Iterable[Variable] = (), patterns: Iterable[str] = ()) -> None:
        # with the variables, which keeps them, hence their addresses, alive
        self._given = {memory_of(variable): variable for variable in variables}
        self._patterns = [re.compile(pattern) for pattern in patterns]

    def __getstate__(self) -> tuple[list[Variable], list[str]]:
        return self.variables, self.patterns

    def __setstate__(self, state: tuple[list[Variable], list[str]]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    @property
    def variables(self) -> list[Variable]:
        """Those that have been given themselves."""
        return list(self._given.values())

    @property
    def patterns(self) -> list[str]:
        """The regular expressions."""
        return [pattern.pattern for pattern in self._patterns]

    def __or__(self, other: VariableSet) -> VariableSet:
        return VariableSet([*self.variables, *other.variables], [*self.patterns, *other.patterns])

    def moved(self, moved: dict[Any, Variable]) -> VariableSet:
        """Return the set with variables in the places of others, by the memory of those."""
        if moved.keys().isdisjoint(self._given):
            return self
        return VariableSet([moved.get(*each) for each in self._given.items()], self.patterns)

    def names_in(self, names: dict[str, Variable]) -> list[str]:
        """Return the names of the variables that have been given themselves.

        Raises
        ------
        InvalidArgumentError
            If one has none.
        """
        found = [name for name, variable in names.items() if memory_of(variable) in self._given]
        if len(found) < len(self._given):
            raise InvalidArgumentError(
                "a variable given to exclude_from_weight_decay or to a group is not among "
                "the variables"
            )
        return found

    def __contains__(self, variable: Variable) -> bool:
        if self._given and memory_of(variable) in self._given:
            return True
        return any(pattern.search(variable.name) for pattern in self._patterns)
