"""What a step does, sorted into as few calls as there can be."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tfopt.core.workspace import Workspace
from tfopt.indexed_slices import IndexedSlices
from tfopt.optimizers.base.gradients import any_overlap
from tfopt.optimizers.base.variable_set import VariableSet
from tfopt.variable import Variable

__all__ = ["Dense", "Plan", "Rows", "parts_of"]


class Dense(NamedTuple):
    """Variables that one call updates together, and the places of their gradients in a step."""

    operands: tuple[list[Any], ...]  # the variables, the first slots, the second ones, ...
    places: list[int]
    variables: list[Variable]
    dtype: np.dtype[Any] | None  # for gradients that are no arrays; None if all are
    decays: bool  # whether these are variables whose weights decay
    constrained: bool  # whether these are variables with a constraint

    @property
    def device(self) -> str:
        """Where they are, "cpu" or "gpu"."""
        return self.variables[0].device

    @property
    def written(self) -> list[Any]:
        """All arrays that an update changes."""
        return [array for column in self.operands for array in column]


class Rows(NamedTuple):
    """A variable with its slots, some rows of which are updated, and its gradient's place."""

    arrays: tuple[Any, ...]
    place: int
    variable: Variable
    workspace: Workspace
    decays: bool
    constrained: bool = False  # a constraint is one of the whole variable

    @property
    def device(self) -> str:
        """Where it is, "cpu" or "gpu"."""
        return self.variable.device

    @property
    def written(self) -> list[Any]:
        """All arrays that an update changes."""
        return list(self.arrays)

    @property
    def variables(self) -> list[Variable]:
        """The variable, as one of those that a call updates."""
        return [self.variable]


class Plan(NamedTuple):
    """What a step did, which the next one repeats if it has the same variables.

    A training loop passes the same variables each time; then only the gradients are looked at.
    """

    rule: str
    types: tuple[type, ...]  # of the gradients
    variables: tuple[Any, ...]
    exclusion: VariableSet  # the variables that do not decay
    parts: list[Dense | Rows]  # of variables of the host
    there: list[Dense | Rows]  # of those on a GPU
    overlapping: bool  # whether variables share memory, so that parts must keep their order

    def pauses(self, sparse: str, observed: bool) -> bool:
        """Whether anything is done in Python between the calls of one part and another's."""
        rows = any(isinstance(part, Rows) for part in self.parts)
        return (rows and (sparse == "catch_up" or observed)) or any(
            p.constrained for p in self.parts
        )

    def fits(
        self,
        rule: str,
        types: tuple[type, ...],
        variables: tuple[Any, ...],
        exclusion: VariableSet,
    ) -> bool:
        """Whether a step is the same again."""
        return (
            self.rule == rule
            and self.types == types
            and self.exclusion is exclusion
            and all(map(operator.is_, self.variables, variables))
        )


def parts_of(
    types: Sequence[type],
    variables: Sequence[Variable],
    operands: Sequence[tuple[Any, ...]],
    decays: Sequence[bool],
) -> tuple[list[Dense | Rows], bool]:
    """Return the parts of a step, one for all dense variables of a kind, and whether any overlap.

    Those of a dtype and a device are of a kind if all decay, or none, and likewise are constrained.

    Parameters
    ----------
    types : sequence of type
        Of the gradients.
    variables : sequence of Variable
    operands : sequence of tuple
        Of each variable, its array and its slots'.
    decays : sequence of bool
        Of each variable, whether its weights decay.
    """
    dense: dict[Any, list[int]] = {}
    parts: list[Dense | Rows] = []
    for place, (kind, variable) in enumerate(zip(types, variables, strict=True)):
        if issubclass(kind, IndexedSlices):
            parts.append(Rows(operands[place], place, variable, Workspace(), decays[place]))
        else:
            bound = variable.constraint is not None
            key = variable.device, variable.dtype, decays[place], bound
            dense.setdefault(key, []).append(place)

    def together(places: list[int]) -> Dense:
        columns = zip(*(operands[place] for place in places), strict=True)
        owners = [variables[place] for place in places]
        converted = owners[0].device == "cpu" and any(types[k] is not np.ndarray for k in places)
        dtype = owners[0].dtype if converted else None
        bound = owners[0].constraint is not None
        return Dense(tuple(map(list, columns)), places, owners, dtype, decays[places[0]], bound)

    if not any_overlap(variables):
        return [*map(together, dense.values()), *parts], False
    # A variable that comes twice, or shares memory with another: one call each, in turn.
    parts += [together([place]) for places in dense.values() for place in places]
    parts.sort(key=lambda part: part[1] if isinstance(part, Rows) else part[1][0])
    return parts, True
