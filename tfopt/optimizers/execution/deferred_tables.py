"""What the rows of all variables of an optimizer owe."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

from tfopt.errors import InvalidArgumentError
from tfopt.optimizers.base.gradients import memory_of
from tfopt.optimizers.execution.commit import Writes
from tfopt.optimizers.execution.deferred_rows import Backlog, Reach, check_owed
from tfopt.optimizers.execution.rule_steps import Step
from tfopt.variable import Variable

__all__ = ["Backlogs", "check_all_owed"]

Slots = Mapping[Any, Mapping[str, Variable]]  # by variable and name


class Backlogs:
    """The steps that rows have not taken yet, by variable."""

    def __init__(self) -> None:
        self._of: dict[Any, Backlog] = {}

    def check_move(self, moved: Iterable[Any]) -> None:
        """Refuse that variables are replaced, by their memory, whose rows owe steps."""
        for key in moved:
            if key in self._of and self._of[key].owes:
                name = self._of[key].variable.name
                raise InvalidArgumentError(
                    f"{name} was replaced while rows of it have deferred updates: call "
                    "flush() first"
                )

    def drop(self, keys: Container[Any]) -> None:
        """Have no backlog of variables, by their memory."""
        self._of = {key: own for key, own in self._of.items() if key not in keys}

    def __getstate__(self) -> list[Backlog]:
        return list(self._of.values())

    def __setstate__(self, backlogs: list[Backlog]) -> None:
        self._of = {memory_of(backlog.variable): backlog for backlog in backlogs}

    @property
    def any(self) -> bool:
        """Whether there are any."""
        return bool(self._of)

    @property
    def variables(self) -> list[Variable]:
        """Those with rows that have been visited."""
        return [backlog.variable for backlog in self._of.values()]

    def visit(
        self,
        step: Step,
        variable: Variable,
        arrays: tuple[Any, ...],
        indices: Any,
        reach: Reach,
        writes: Writes,
    ) -> None:
        """Before a step of rows let them take the steps they owe; have the others owe it after.

        `arrays` are the variable and its slots, in the order of the step's rule. What follows the
        step is added to its writes.
        """
        backlog = self._backlog(step.kernel.rule.name, variable, arrays)
        rows = backlog.rows_of(indices)
        backlog.prepare(step, rows)
        if step.var_scale != 1:  # steps without a gradient go on moving weights that decay
            reach = Reach(reach.first, max(reach.ratio, 1.0))
        writes += backlog.remembering(step, rows, reach)

    def of(self, variables: Iterable[Variable]) -> list[Backlog]:
        """Return the backlogs that there are of variables."""
        found = (self._of.get(memory_of(variable)) for variable in variables)
        return [backlog for backlog in found if backlog is not None]

    def _backlog(self, rule: str, variable: Variable, arrays: tuple[Any, ...]) -> Backlog:
        key = memory_of(variable)
        found = self._of.get(key)
        if found is None or found.rule != rule:  # another one if momentum has been switched on
            if found is not None:
                found.catch_up()
            found = Backlog(rule, arrays, variable)
            self._of = {**self._of, key: found}
        return found

    def catch_up(self, variables: Iterable[Variable]) -> None:
        """Let all rows of variables take the steps they have not taken."""
        for backlog in self.of(variables) if self._of else ():
            backlog.catch_up()

    def catch_up_rows(self, variable: Variable, rows: Any) -> None:
        """Let some rows of a variable take the steps they have not taken."""
        found = self._of.get(memory_of(variable))
        if found is not None:
            found.catch_up(found.rows_of(rows))

    def flush(self) -> None:
        """Let all rows of all variables take the steps they have not taken."""
        for backlog in self._of.values():
            backlog.catch_up()

    def forget(self) -> None:
        """Count all rows as having taken all steps."""
        for backlog in self._of.values():
            backlog.forget()

    def state(self, names: dict[str, Variable], slots: Slots) -> dict[str, Any]:
        """Return what rows owe, by the names of their variables.

        Raises
        ------
        InvalidArgumentError
            If rows of another variable owe something.
        """
        owed = {}
        for name, variable in names.items():
            key = memory_of(variable)
            state = self._of[key].state() if key in self._of else {}
            if state:
                labels = {id(slot.value()): label for label, slot in slots.get(key, {}).items()}
                owed[name] = {**state, "slots": [labels[id(a)] for a in self._of[key].slots]}
        if len(owed) < sum(bool(backlog.state()) for backlog in self._of.values()):
            raise InvalidArgumentError(
                "rows of a variable that is not in variables have deferred updates"
            )
        return owed

    def restore(self, owed: dict[str, Any], names: dict[str, Variable], slots: Slots) -> None:
        """Make what rows owe what `state` has returned."""
        self._of.clear()
        for name, state in owed.items():
            variable = names[name]
            own = slots.get(memory_of(variable), {})
            arrays = (variable.value(), *(own[label].value() for label in state["slots"]))
            backlog = self._of[memory_of(variable)] = Backlog(state["rule"], arrays, variable)
            backlog.restore(state)


def check_all_owed(
    owed: dict[str, Any], names: dict[str, Variable], slots: Container[tuple[str, str]]
) -> None:
    """Refuse what is not the state of backlogs of variables with some slots.

    Raises
    ------
    InvalidArgumentError
        If something is missing, or does not fit.
    """
    for name, state in owed.items():
        if name not in names or not all((name, slot) in slots for slot in state["slots"]):
            raise InvalidArgumentError(f"rows of {name} have deferred updates, but it has no slots")
        check_owed(state, names[name])
