"""The variables whose weights do not decay."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tfopt_ref.optimizers.pairs import memory_of
from tfopt_ref.variable import Variable

__all__ = ["Exclusion"]


class Exclusion:
    """A set of variables, given themselves or by patterns of their names."""

    def __init__(self) -> None:
        self._given: dict[Any, Variable] = {}  # which keeps them, hence their addresses, alive
        self._patterns: list[re.Pattern[str]] = []

    def add(self, variables: Iterable[Variable], patterns: Iterable[str]) -> None:
        """Add variables, and those in whose names a regular expression has a match."""
        made = [re.compile(pattern) for pattern in patterns]
        self._given.update((memory_of(variable), variable) for variable in variables)
        self._patterns += made

    def __contains__(self, variable: Variable) -> bool:
        if self._given and memory_of(variable) in self._given:
            return True
        return any(pattern.search(variable.name) for pattern in self._patterns)
