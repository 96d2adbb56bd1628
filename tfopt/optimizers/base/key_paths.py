"""The names that a state dictionary has for variables."""

from __future__ import annotations

from typing import Any

from tfopt.errors import InvalidArgumentError
from tfopt.optimizers.base.gradients import as_variable, memory_of
from tfopt.optimizers.base.tree import leaves
from tfopt.variable import Variable

__all__ = ["named"]


def named(variables: Any) -> dict[str, Variable]:
    """Return variables by their names: keys and places on the way to each, joined by "/".

    One that comes again, under another name, is left out there.

    Parameters
    ----------
    variables : Variable, array, or nested dict, list or tuple of them

    Raises
    ------
    InvalidArgumentError
        If two have one name.
    """
    found: dict[str, Variable] = {}
    known = set()
    for place, leaf in leaves(variables):
        name, variable = place or "0", as_variable(leaf)
        if name in found:
            raise InvalidArgumentError(f"two variables have the name {name!r}")
        if memory_of(variable) not in known:
            known.add(memory_of(variable))
            found[name] = variable
    return found
