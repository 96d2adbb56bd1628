"""The names of variables in a state dictionary."""

from __future__ import annotations

from typing import Any

from tfopt.errors import InvalidArgumentError
from tfopt.optimizers.state.tree import leaves
from tfopt.optimizers.state.variables import as_variable, memory_of
from tfopt.variable import Variable

__all__ = ["named"]


def named(variables: Any) -> dict[str, Variable]:
    """Return variables by name: the keys and indices that lead to each, joined by "/".

    A variable that occurs several times has the name of its first occurrence.

    Parameters
    ----------
    variables : Variable, array, or nested dict, list or tuple of them

    Raises
    ------
    InvalidArgumentError
        If two variables have the same name.
    """
    by_name: dict[str, Variable] = {}
    seen = set()
    for place, leaf in leaves(variables):
        name = place or "0"
        variable = as_variable(leaf, name)
        if name in by_name:
            raise InvalidArgumentError(f"two variables have the name {name!r}")
        if memory_of(variable) not in seen:
            seen.add(memory_of(variable))
            by_name[name] = variable
    return by_name
