"""The deferred updates of all variables of an optimizer."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial
from typing import Any

from tfopt.errors import InvalidArgumentError
from tfopt.kernels.update.commit import Attributes, Write
from tfopt.optimizers.state.by_variable import ByVariable
from tfopt.optimizers.state.slots import SlotStore
from tfopt.optimizers.state.transaction import Work, Writes
from tfopt.optimizers.step.deferred_rows import DecayBound, DeferredRows, check_deferred_rows
from tfopt.optimizers.step.prepared_step import PreparedStep
from tfopt.updates.rule_steps import RuleStep, RuleUpdate, SparseUpdate
from tfopt.variable import Variable

__all__ = ["Deferral", "DeferredUpdates", "check_deferred"]


class DeferredUpdates:
    """The deferred updates of all variables.

    Attributes
    ----------
    tables : ByVariable
        The `DeferredRows` of the variables that have had steps of rows.
    """

    def __init__(self) -> None:
        self._version = object()  # another one after each change
        self.tables: ByVariable[DeferredRows] = ByVariable()

    def _replace(self, tables: Iterable[tuple[Variable, DeferredRows]]) -> None:
        self._version, self.tables = object(), ByVariable(tables)

    def check_move(self, moved: Iterable[Variable]) -> None:
        """Raise if variables with deferred updates are to be replaced."""
        for deferred in self.of(moved):
            if deferred.pending:
                raise InvalidArgumentError(
                    f"{deferred.variable.name} was replaced while some of its rows have deferred "
                    "updates: call flush() first"
                )

    def drop(self, variables: ByVariable[Any]) -> None:
        """Drop the deferred updates of variables."""
        self._replace(pair for pair in self.tables.items() if pair[0] not in variables)

    def visit(
        self,
        step: RuleStep,
        variable: Variable,
        arrays: tuple[Any, ...],
        indices: Any,
        bound: DecayBound,
        writes: Writes,
    ) -> None:
        """Apply the deferred updates of the rows of a step, and defer the step for other rows.

        `arrays` are the variable and its slots, in the order of the step's rule. The writes that
        must follow the step are appended to `writes`.
        """
        deferred = self._rows_of(step.kernel.rule.name, variable, arrays)
        rows = deferred.rows_of(indices)
        deferred.prepare(step, rows)
        if step.var_scale != 1:  # weight decay keeps moving weights without a gradient
            bound = DecayBound(bound.first, max(bound.ratio, 1.0))
        writes += deferred.writes_to_defer(step, rows, bound)

    def of(self, variables: Iterable[Variable]) -> list[DeferredRows]:
        """Return the existing deferred updates of variables."""
        existing = map(self.tables.get, variables)
        return [deferred for deferred in existing if deferred is not None]

    def _rows_of(self, rule: str, variable: Variable, arrays: tuple[Any, ...]) -> DeferredRows:
        existing: DeferredRows | None = self.tables.get(variable)
        if existing is None or existing.rule != rule:  # the rule changes if momentum is switched on
            if existing is not None:
                existing.catch_up()
            existing = DeferredRows(rule, arrays, variable)
            self._replace([*self.tables.items(), (variable, existing)])
        return existing

    def catch_up(self, variables: Iterable[Variable]) -> None:
        """Apply the deferred updates of variables."""
        for deferred in self.of(variables) if self.tables else ():
            deferred.catch_up()

    def catch_up_rows(self, variable: Variable, rows: Any) -> None:
        """Apply the deferred updates of some rows of a variable."""
        existing = self.tables.get(variable)
        if existing is not None:
            existing.catch_up(existing.rows_of(rows))

    def flush(self) -> None:
        """Apply all deferred updates."""
        for deferred in self.tables.values():
            deferred.catch_up()

    def writes_to_forget(self) -> list[Write]:
        """Return the writes that discard all deferred updates."""
        return [deferred.write_to_forget() for deferred in self.tables.values()]

    def state(self, names: dict[str, Variable], store: SlotStore) -> dict[str, Any]:
        """Return the deferred updates, by the names of their variables.

        Raises
        ------
        InvalidArgumentError
            If any other variable has deferred updates.
        """
        owed = {}
        for name, variable in names.items():
            deferred = self.tables.get(variable)
            if deferred is not None and (state := deferred.state()):
                labels = {id(slot.value()): label for label, slot in store.of(variable).items()}
                owed[name] = {**state, "slots": [labels[id(a)] for a in deferred.slots]}
        if len(owed) < sum(bool(deferred.state()) for deferred in self.tables.values()):
            raise InvalidArgumentError(
                "rows of a variable that is not in variables have deferred updates"
            )
        return owed

    def write_to_restore(
        self,
        owed: dict[str, Any],
        names: dict[str, Variable],
        slots: Mapping[tuple[str, str], Variable],
    ) -> Write:
        """Return the write that restores the deferred updates from the result of `state`.

        `slots` are by the names of their variables and their own.
        """
        tables: ByVariable[DeferredRows] = ByVariable()
        for name, state in owed.items():
            variable = names[name]
            slot_arrays = (slots[name, label].value() for label in state["slots"])
            deferred = DeferredRows(state["rule"], (variable.value(), *slot_arrays), variable)
            deferred.restore(state)
            tables[variable] = deferred
        return Attributes(self, {"tables": tables})


class Deferral:
    """The preparation of a step where rows may have deferred updates.

    Parameters
    ----------
    updates : DeferredUpdates
    update : RuleUpdate
        The update of the step.
    late : bool
        Whether the step is deferred for rows without a gradient.
    bound : callable
        Returns how far such a step moves a variable.
    """

    def __init__(
        self,
        updates: DeferredUpdates,
        update: RuleUpdate,
        late: bool,
        bound: Callable[[RuleUpdate], DecayBound],
    ) -> None:
        self._deferred, self._update, self.late, self._decay_bound = updates, update, late, bound

    def before_all(self, variables: list[Variable]) -> Work:
        """Return the work that precedes a step of whole variables."""
        return lambda writes: self._deferred.catch_up(variables)

    def before_rows(self, part: SparseUpdate, indices: Any, scale: float) -> Work:
        """Return the work that precedes a step of rows that is deferred for the others."""
        step, bound = part.step(self._update, "catch_up", scale), self._decay_bound(self._update)
        return partial(self._deferred.visit, step, part.variable, part.arrays, indices, bound)

    def protect(self, step: PreparedStep, variables: list[Variable]) -> None:
        """Register the deferred updates of variables for restoration if a step fails."""
        existing = self._deferred.of(variables)
        step.owners += [self._deferred, *existing]
        step.kept += [array for deferred in existing for array in deferred.changed]


def check_deferred(
    owed: dict[str, Any], names: dict[str, Variable], slots: Container[tuple[str, str]]
) -> None:
    """Raise unless `owed` is a valid state of deferred updates of variables with slots.

    Raises
    ------
    InvalidArgumentError
        If an entry is missing or invalid.
    """
    for name, state in owed.items():
        if name not in names or not all((name, slot) in slots for slot in state["slots"]):
            raise InvalidArgumentError(f"rows of {name} have deferred updates, but it has no slots")
        check_deferred_rows(state, names[name])
