"""Sets of variables that are treated differently from the others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tfopt.errors import InvalidArgumentError
from tfopt.optimizers.state.by_variable import ByVariable
from tfopt.variable import Variable

__all__ = ["VariableSet"]


class VariableSet:
    """A set of variables, listed explicitly or selected by patterns of their names.

    Parameters
    ----------
    variables : iterable of Variable
    patterns : iterable of str
        Regular expressions; a variable belongs to the set if one matches anywhere in its name.
    """

    def __init__(self, variables: Iterable[Variable] = (), patterns: Iterable[str] = ()) -> None:
        self._listed = ByVariable((variable, None) for variable in variables)
        self._patterns = list(map(_compiled, patterns))

    @property
    def variables(self) -> list[Variable]:
        """The variables that are listed explicitly."""
        return [*self._listed]

    @property
    def patterns(self) -> list[str]:
        """The regular expressions."""
        return [pattern.pattern for pattern in self._patterns]

    def __or__(self, other: VariableSet) -> VariableSet:
        return VariableSet([*self.variables, *other.variables], [*self.patterns, *other.patterns])

    def moved(self, moved: ByVariable[Variable]) -> VariableSet:
        """Return the set with some variables replaced by others."""
        return VariableSet(self._listed.moved(moved), self.patterns)

    def names_in(self, names: dict[str, Variable]) -> list[str]:
        """Return the names of the explicitly listed variables.

        Raises
        ------
        InvalidArgumentError
            If one of them has no name.
        """
        listed = [name for name, variable in names.items() if variable in self._listed]
        if len(listed) < len(self._listed):
            raise InvalidArgumentError(
                "a variable given to exclude_from_weight_decay or to a group is not among "
                "the variables"
            )
        return listed

    def __contains__(self, variable: Variable) -> bool:
        if self._listed and variable in self._listed:
            return True
        return any(pattern.search(variable.name) for pattern in self._patterns)


def _compiled(pattern: Any) -> re.Pattern[str]:
    try:
        compiled: re.Pattern[str] = re.compile(pattern)
        compiled.search("")  # bytes find nothing in names
    except (TypeError, re.error) as error:
        raise InvalidArgumentError(
            f"{pattern!r} is not a regular expression of names: {error}"
        ) from None
    return compiled
