"""Sparse steps that cost what the rows they name cost, with the result of dense ones.

A row that a step does not name has a gradient of zero there, which moves it all the same. It takes
such steps late: when it is next named, or read.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tfopt.core.workspace import Workspace
from tfopt.errors import IndexOutOfRangeError, InvalidArgumentError, InvalidTypeError
from tfopt.kernels import kernels
from tfopt.kernels.calls import step_arguments
from tfopt.kernels.catch_up import catch_up
from tfopt.kernels.commit import AssignRows, Attributes, Mark, Write, carry_out
from tfopt.kernels.merge import distinct_indices
from tfopt.optimizers.execution.rule_steps import Step
from tfopt.variable import Variable, prepare_writes

__all__ = ["Backlog", "Reach", "check_owed", "over", "refuse_catching_up"]

_STATE = {
    "rule", "flags", "slots", "decays", "since", "scalars", "fading", "unsurpassed", "heights",
}  # fmt: skip
_MOST_STEPS = 1 << 16  # that are remembered; then all rows take theirs


class Reach(NamedTuple):
    """A bound of how far steps without a gradient move the variable.

    The k-th in a row moves it by at most ``first * ratio**k`` times a constant.
    """

    first: float
    ratio: float


class Backlog:
    """The steps that rows of one variable have not taken yet.

    Parameters
    ----------
    rule : str
        Of all the steps.
    arrays : tuple of ndarray
        The variable and its slots.
    variable : Variable
        The one that wraps the first of the arrays.
    """

    def __init__(self, rule: str, arrays: tuple[np.ndarray, ...], variable: Variable) -> None:
        var = arrays[0]
        self.variable = variable
        self.rule = rule
        self._arrays = arrays
        self._room = Workspace()
        self._since = np.zeros(len(var), np.int64)  # how many of the steps each row has taken
        self._step: Step | None = None  # the last one
        self._decays: tuple[float, ...] = ()
        self._n = 0
        self._scalars = np.empty((0, 0), var.dtype)
        self._fading = np.empty(0, np.int8)
        # the steps that no later one has surpassed so far, by how far they reach (logarithms)
        self._unsurpassed: list[tuple[int, float]] = []

    @property
    def owes(self) -> bool:
        """Whether there are steps that some row may not have taken."""
        return self._n > 0

    @property
    def slots(self) -> tuple[np.ndarray, ...]:
        """The slots, in the rule's order."""
        return self._arrays[1:]

    def rows_of(self, rows: Any) -> np.ndarray:
        """Return the distinct ones of row numbers, if the variable has them.

        Raises
        ------
        InvalidArgumentError
            If they are no integers.
        IndexOutOfRangeError
            If the variable does not have one of them.
        """
        ids = np.asarray(rows)
        if ids.dtype.kind not in "iu" and ids.size:
            raise InvalidArgumentError(f"rows must be integers, not {ids.dtype}")
        if ids.size and not (ids.min() >= 0 and ids.max() < len(self._since)):
            raise IndexOutOfRangeError(f"rows must be in [0, {len(self._since)})")
        distinct, _ = distinct_indices(np.ascontiguousarray(ids.ravel(), np.int64), self._room)
        return distinct

    def catch_up(self, rows: np.ndarray | None = None) -> None:
        """Let rows, distinct ones or all, take the steps they have not taken."""
        if self._n == 0 or self._step is None:
            return
        prepare_writes([self.variable])
        step, arrays, since = self._step, self._arrays, self._since
        all_rows = rows is None
        if rows is None:
            rows = np.arange(len(since))
        in_place = all(array.flags.c_contiguous for array in arrays)
        if not in_place:
            copies = (np.ascontiguousarray(array[rows]) for array in arrays)
            arrays, since = tuple(copies), since[rows]
        places = rows if in_place else np.arange(len(rows))
        debt = self._scalars, self._n, self._fading, places, since, self._decays
        taken = Mark(self._since, rows, self._n)
        catch_up(step.kernel, step.flags, arrays, *debt)
        if not in_place:
            now = zip(self._arrays, arrays, strict=True)
            carry_out([*(AssignRows(array, rows, new) for array, new in now), taken])
        if all_rows:
            self.forget()

    def forget(self) -> None:
        """Count all rows as having taken all steps."""
        none = {"_since": np.zeros_like(self._since), "_n": 0, "_unsurpassed": []}
        carry_out([Attributes(self, none)])

    @property
    def changed(self) -> list[np.ndarray]:
        """The array that changes beside attributes, when rows catch up or owe another step."""
        return [self._since]

    def prepare(self, step: Step, rows: np.ndarray) -> None:
        """Before a step of some rows: let them catch up.

        And all rows if flags or the slots' decays change, so that the steps remembered have one.
        """
        rule = step.kernel.rule
        hypers = dict(zip(rule.hypers, step.hypers, strict=True))
        names = (rule.decays.get(slot) for slot in rule.slots)
        decays = tuple(1.0 if name is None else hypers[name] for name in names)
        flags = step.flags if self._step is None else self._step.flags
        if decays != self._decays or flags != step.flags or self._n == _MOST_STEPS:
            self.catch_up()
        self._decays = decays
        self.catch_up(rows)

    def remembering(self, step: Step, rows: np.ndarray, reach: Reach) -> list[Write]:
        """Return what is to be written after a step that all rows but these have not taken."""
        double = self._scalars.dtype == np.float64
        _, scalars = step_arguments(
            step.kernel, step.hypers, step.flags, 1.0, step.var_scale, double, True
        )
        n = self._n
        if n == len(self._fading):
            self._grow(len(scalars))
        self._scalars[n] = scalars
        self._fading[n] = True
        height = _log(reach.first) + n * _log(reach.ratio)
        unsurpassed = list(self._unsurpassed)
        while unsurpassed and unsurpassed[-1][1] < height:
            # even without the step rows may catch up like this, which takes longer
            self._fading[unsurpassed.pop()[0]] = False
        unsurpassed.append((n, height))
        now = {"_step": step, "_n": n + 1, "_unsurpassed": unsurpassed}
        return [Mark(self._since, rows, n + 1), Attributes(self, now)]

    def state(self) -> dict[str, Any]:
        """Return what rows owe, if any do, as nested dicts of arrays and numbers."""
        if self._n == 0 or self._step is None:
            return {}
        numbers, heights = zip(*self._unsurpassed, strict=True)
        return {
            "rule": self.rule,
            "flags": self._step.flags,
            "decays": list(self._decays),
            "since": self._since,
            "scalars": self._scalars[: self._n],
            "fading": self._fading[: self._n],
            "unsurpassed": np.array(numbers, np.int64),
            "heights": np.array(heights),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Make what rows owe what `state` has returned for the same rule."""
        self._step = Step(kernels[self.rule], (), int(state["flags"]), "sum", True)
        self._decays = tuple(state["decays"])
        self._since = np.array(state["since"], np.int64)
        self._n = len(state["scalars"])
        self._scalars = np.array(state["scalars"])
        self._fading = np.array(state["fading"])
        numbers, heights = state["unsurpassed"].tolist(), state["heights"].tolist()
        self._unsurpassed = list(zip(numbers, heights, strict=True))

    def _grow(self, columns: int) -> None:
        capacity = max(64, 2 * self._n)
        scalars, fading = self._scalars[: self._n], self._fading[: self._n]
        self._scalars = np.empty((capacity, columns), self._scalars.dtype)
        self._fading = np.empty(capacity, np.int8)
        if self._n:
            self._scalars[: self._n] = scalars
            self._fading[: self._n] = fading


def check_owed(state: Any, variable: Variable) -> None:
    """Refuse what is not the state of a backlog of a variable.

    Raises
    ------
    InvalidArgumentError
        If something is missing, or does not fit.
    """
    rule = state.get("rule")
    if rule not in kernels or set(state) != _STATE:
        raise InvalidArgumentError(
            f"the deferred updates of {variable.name} are of an unknown form"
        )
    refuse_catching_up(variable)
    kernel, n = kernels[rule], len(state["scalars"])
    hypers, double = (0.5,) * len(kernel.rule.hypers), variable.dtype == np.float64
    _, scalars = step_arguments(kernel, hypers, state["flags"], 1.0, 1.0, double, True)
    expected = {
        "since": ((len(variable),), np.int64, n),
        "scalars": ((n, len(scalars)), variable.dtype, None),
        "fading": ((n,), np.int8, 1),
        "unsurpassed": ((len(state["heights"]),), np.int64, n - 1),
        "heights": ((len(state["heights"]),), np.float64, None),
    }
    slots = len(kernel.rule.slots)
    fits = len(state["slots"]) == slots == len(state["decays"]) and all(
        isinstance(state[key], np.ndarray)
        and (state[key].shape, state[key].dtype) == (shape, dtype)
        and (
            most is None or not state[key].size or 0 <= state[key].min() <= state[key].max() <= most
        )
        for key, (shape, dtype, most) in expected.items()
    )
    if not fits or n == 0:
        raise InvalidArgumentError(f"the deferred updates of {variable.name} do not fit its rows")


def refuse_catching_up(variable: Variable) -> None:
    """Refuse a variable whose rows cannot catch up.

    Raises
    ------
    InvalidTypeError
        If it is of 16 bits, which each step would round to, or on a GPU.
    InvalidArgumentError
        If it has no rows.
    """
    if variable.device == "gpu":
        raise InvalidTypeError('sparse="catch_up" takes variables of the host')
    if variable.dtype not in (np.float32, np.float64):
        raise InvalidTypeError(
            f'sparse="catch_up" takes variables of float32 or float64, not {variable.dtype}'
        )
    if not variable.shape:
        raise InvalidArgumentError("var must be at least 1 dimensional")


def over(a: float, b: float) -> float:
    """Return a quotient, infinity if it is one by zero."""
    return a / b if b else math.inf


def _log(x: float) -> float:
    return math.log(min(max(x, 1e-300), 1e300))
