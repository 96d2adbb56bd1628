"""Sparse steps with the result of dense ones, whose cost depends only on the rows they contain.

A row that is missing from a sparse gradient has a zero gradient, which moves it nevertheless. These
updates are deferred until the row next occurs in a gradient, or is read.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tfopt.core.workspace import Workspace
from tfopt.errors import IndexOutOfRangeError, InvalidArgumentError, InvalidTypeError
from tfopt.kernels import kernels
from tfopt.kernels.update.checks import step_arguments
from tfopt.kernels.update.commit import AssignRows, Attributes, Mark, Write, carry_out
from tfopt.kernels.update.dedup import distinct_indices
from tfopt.kernels.update.deferred_rows import catch_up
from tfopt.updates.rule_steps import RuleStep
from tfopt.variable import Variable, prepare_writes

__all__ = ["DecayBound", "DeferredRows", "check_deferred_rows", "quotient", "refuse_catching_up"]

_STATE = {
    "rule", "flags", "slots", "decays", "since", "scalars", "fading", "unsurpassed", "heights",
}  # fmt: skip
_MOST_STEPS = 1 << 16  # the most deferred steps; then all rows catch up


class DecayBound(NamedTuple):
    """A bound on how far steps with a zero gradient move a variable.

    The k-th consecutive step moves it by at most ``first * ratio**k`` times a constant.
    """

    first: float
    ratio: float


class DeferredRows:
    """The deferred updates of the rows of one variable.

    Parameters
    ----------
    rule : str
        The update rule of all steps.
    arrays : tuple of ndarray
        The variable and its slots.
    variable : Variable
        Wraps the first of the arrays.
    """

    def __init__(self, rule: str, arrays: tuple[np.ndarray, ...], variable: Variable) -> None:
        var = arrays[0]
        self.variable = variable
        self.rule = rule
        self._arrays = arrays
        self._room = Workspace()
        self._since = np.zeros(len(var), np.int64)  # how many steps each row has taken
        self._step: RuleStep | None = None  # the last step
        self._decays: tuple[float, ...] = ()
        self._n = 0
        self._scalars = np.empty((0, 0), var.dtype)
        self._fading = np.empty(0, np.int8)
        # steps whose bound no later step has exceeded so far, and the logarithms of the bounds
        self._unsurpassed: list[tuple[int, float]] = []

    @property
    def pending(self) -> bool:
        """Whether some row may have deferred updates."""
        return self._n > 0

    @property
    def slots(self) -> tuple[np.ndarray, ...]:
        """The slots, in the rule's order."""
        return self._arrays[1:]

    def rows_of(self, rows: Any) -> np.ndarray:
        """Return the distinct row numbers, after checking them.

        Raises
        ------
        InvalidArgumentError
            If they are not integers.
        IndexOutOfRangeError
            If a row is out of range.
        """
        ids = np.asarray(rows)
        if ids.dtype.kind not in "iu" and ids.size:
            raise InvalidArgumentError(f"rows must be integers, not {ids.dtype}")
        if ids.size and not (ids.min() >= 0 and ids.max() < len(self._since)):
            raise IndexOutOfRangeError(f"rows must be in [0, {len(self._since)})")
        distinct, _ = distinct_indices(np.ascontiguousarray(ids.ravel(), np.int64), self._room)
        return distinct

    def catch_up(self, rows: np.ndarray | None = None) -> None:
        """Apply the deferred updates of distinct rows, or of all rows."""
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
        deferred = self._scalars, self._n, self._fading, places, since, self._decays
        taken = Mark(self._since, rows, self._n)
        catch_up(step.kernel, step.flags, arrays, *deferred)
        if not in_place:
            updated = zip(self._arrays, arrays, strict=True)
            carry_out([*(AssignRows(array, rows, new) for array, new in updated), taken])
        if all_rows:
            carry_out([self.write_to_forget()])

    def write_to_forget(self) -> Write:
        """Return the write that discards all deferred updates."""
        cleared = {"_since": np.zeros_like(self._since), "_n": 0, "_unsurpassed": []}
        return Attributes(self, cleared)

    @property
    def changed(self) -> list[np.ndarray]:
        """The arrays, besides attributes, that change when updates are deferred or applied."""
        return [self._since]

    def prepare(self, step: RuleStep, rows: np.ndarray) -> None:
        """Let rows catch up before a step of these rows.

        All rows catch up if the flags or the slots' decays change, since all remembered steps must
        have the same.
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

    def writes_to_defer(self, step: RuleStep, rows: np.ndarray, bound: DecayBound) -> list[Write]:
        """Return the writes that record a step as deferred for all rows except these."""
        double = self._scalars.dtype == np.float64
        _, scalars = step_arguments(
            step.kernel, step.hypers, step.flags, 1.0, step.var_scale, double, True
        )
        n = self._n
        if n == len(self._fading):
            self._grow(len(scalars))
        self._scalars[n] = scalars
        self._fading[n] = True
        height = _log(bound.first) + n * _log(bound.ratio)
        unsurpassed = list(self._unsurpassed)
        while unsurpassed and unsurpassed[-1][1] < height:
            # clearing the flag only makes catching up slower
            self._fading[unsurpassed.pop()[0]] = False
        unsurpassed.append((n, height))
        attributes = {"_step": step, "_n": n + 1, "_unsurpassed": unsurpassed}
        return [Mark(self._since, rows, n + 1), Attributes(self, attributes)]

    def state(self) -> dict[str, Any]:
        """Return the deferred updates as a dict of arrays and numbers; empty if there are none."""
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
        """Restore the deferred updates from the result of `state` for the same rule."""
        self._step = RuleStep(kernels[self.rule], (), int(state["flags"]), "sum", True)
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


def check_deferred_rows(state: Any, variable: Variable) -> None:
    """Raise unless `state` is a valid state of the deferred updates of a variable.

    Raises
    ------
    InvalidArgumentError
        If an entry is missing or invalid.
    """
    rule = state.get("rule")
    if rule not in kernels or set(state) != _STATE:
        raise InvalidArgumentError(
            f"the deferred updates of {variable.name} have an unknown format"
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
    are_numbers = all(
        isinstance(decay, (int, float)) and math.isfinite(decay) for decay in state["decays"]
    )
    are_arrays = all(
        isinstance(state[key], np.ndarray)
        and (state[key].shape, state[key].dtype) == (shape, dtype)
        and (
            most is None or not state[key].size or 0 <= state[key].min() <= state[key].max() <= most
        )
        for key, (shape, dtype, most) in expected.items()
    )
    fits = are_numbers and are_arrays and len(state["slots"]) == slots == len(state["decays"])
    if not fits or n == 0:
        raise InvalidArgumentError(f"the deferred updates of {variable.name} do not fit its rows")


def refuse_catching_up(variable: Variable) -> None:
    """Raise if a variable does not support deferred updates.

    Raises
    ------
    InvalidTypeError
        If it is on a GPU, or of 16 bits, to which each step would round.
    InvalidArgumentError
        If it has no rows.
    """
    if variable.device == "gpu":
        raise InvalidTypeError('sparse="catch_up" does not support variables on a GPU')
    if variable.dtype not in (np.float32, np.float64):
        raise InvalidTypeError(
            f'sparse="catch_up" supports variables of float32 or float64, not {variable.dtype}'
        )
    if not variable.shape:
        raise InvalidArgumentError("var must be at least 1 dimensional")


def quotient(a: float, b: float) -> float:
    """Return a / b, or infinity if b is zero."""
    return a / b if b else math.inf


def _log(x: float) -> float:
    return math.log(min(max(x, 1e-300), 1e300))
