"""Steps that rows take late: those in which they had no gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt_ref import training_ops
from tfopt_ref.errors import IndexOutOfRangeError, InvalidArgumentError, InvalidTypeError
from tfopt_ref.training_op import TrainingOp
from tfopt_ref.variable import Variable

__all__ = ["Backlog", "check_owed", "refuse_catching_up"]


class Backlog:
    """The steps of one variable, and how many of them each row has taken."""

    def __init__(self, op: TrainingOp, arrays: list[np.ndarray], variable: Variable) -> None:
        self.op, self.arrays, self.variable = op, arrays, variable
        self.taken = np.zeros(len(arrays[0]), np.int64)
        self.steps: list[dict[str, Any]] = []  # their hyperparameters

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "op": self.op.__name__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, op=getattr(training_ops, state["op"]))

    def catch_up(self, rows: Any = None) -> None:
        """Let rows, or all, take the steps they have not taken: with a gradient of zero."""
        for row in range(len(self.taken)) if rows is None else self.checked(rows):
            arrays = [array[row : row + 1] for array in self.arrays]
            for hypers in self.steps[self.taken[row] :]:
                self.op(*arrays, np.zeros_like(arrays[0]), **hypers)
            self.taken[row] = len(self.steps)

    def remember(self, hypers: dict[str, Any], rows: Any) -> None:
        """Add a step that these rows have taken."""
        self.steps.append(hypers)
        self.taken[rows] = len(self.steps)

    def state(self) -> dict[str, Any]:
        """Return what rows owe, if any do, as nested dicts of arrays and numbers."""
        if not (self.taken < len(self.steps)).any():
            return {}
        steps = [{key: float(hyper) for key, hyper in step.items()} for step in self.steps]
        return {"rule": self.op.__name__, "since": self.taken, "steps": steps}

    def restore(self, state: dict[str, Any]) -> None:
        """Make what rows owe what `state` has returned for the same op."""
        self.taken, self.steps = state["since"].copy(), list(state["steps"])

    def forget(self) -> None:
        """Count all rows as having taken all steps."""
        self.taken[:] = len(self.steps)

    def checked(self, rows: Any) -> np.ndarray:
        """Return the numbers of rows that there are."""
        ids = np.asarray(rows)
        if ids.dtype.kind not in "iu" and ids.size:
            raise InvalidArgumentError(f"rows must be integers, not {ids.dtype}")
        if ids.size and not (ids.min() >= 0 and ids.max() < len(self.taken)):
            raise IndexOutOfRangeError(f"rows must be in [0, {len(self.taken)})")
        return ids.ravel().astype(np.int64)


def check_owed(state: Any, variable: Variable) -> None:
    """Refuse what is not the state of a backlog of a variable."""
    if set(state) != {"rule", "since", "steps", "slots"}:
        raise InvalidArgumentError(
            f"the deferred updates of {variable.name} are of an unknown form"
        )
    refuse_catching_up(variable)
    since, op = state["since"], getattr(training_ops, state["rule"], None)
    fits = (
        isinstance(op, TrainingOp)
        and isinstance(since, np.ndarray)
        and (since.shape, since.dtype) == ((len(variable),), np.int64)
        and 0 <= since.min() <= since.max() <= len(state["steps"])
    )
    if not fits:
        raise InvalidArgumentError(f"the deferred updates of {variable.name} do not fit its rows")


def refuse_catching_up(variable: Variable) -> None:
    """Refuse a variable whose rows cannot catch up."""
    if variable.dtype not in (np.float32, np.float64):
        raise InvalidTypeError(
            f'sparse="catch_up" takes variables of float32 or float64, not {variable.dtype}'
        )
    if not variable.shape:
        raise InvalidArgumentError("var must be at least 1 dimensional")
