"""Accumulation of the gradients of several batches into one step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from tfopt.errors import InvalidArgumentError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.update.commit import Attributes, Write
from tfopt.optimizers.base.optimizer_base import OptimizerBase
from tfopt.optimizers.settings import Setting, choice, whole
from tfopt.optimizers.state.restoration import (
    LoadedState,
    as_damage,
    check_array,
    check_keys,
    check_known,
)
from tfopt.optimizers.state.stateful import COUNTED
from tfopt.optimizers.state.variables import memory_of, now_at, wide
from tfopt.optimizers.step.gradients import checked_gradient
from tfopt.optimizers.step.request import Capabilities, StepRequest
from tfopt.optimizers.step.step import Step
from tfopt.optimizers.wrappers.batch_step import BatchStep
from tfopt.optimizers.wrappers.wrapper import Wrapper
from tfopt.variable import Variable

__all__ = ["GradientAccumulation"]


class GradientAccumulation(Wrapper):
    """Accumulates the gradients of several batches, then takes one step with their mean or sum.

    Parameters
    ----------
    optimizer : Optimizer
        Takes the steps. Its learning rate, its decays and `iterations` count steps, not batches.
    steps : int
        The number of batches per step, at least 1.
    reduction : {"mean", "sum"}
    name : str, default "GradientAccumulation"

    Attributes
    ----------
    pending : Variable
        The number of batches since the last step, int64; one of the weights.

    Raises
    ------
    InvalidArgumentError
        If an argument is invalid.

    Notes
    -----
    Supports real variables in host memory. Slot: ``gradient``, the sum, in float32 for variables of
    16 bits. The last batch is added while the step reads the sum; if the step clips by norm, or
    needs complete gradients for another reason, it is added in separate memory. The mean is free,
    since a step multiplies its gradients by a number while it reads them. Sums outside the range of
    float16 are rescaled before they are rounded to it. Sparse gradients (`IndexedSlices`) are kept
    as they are, those of 16 bits in float32, and summed by the step; a variable with dense and
    sparse gradients has a dense sum. Clipping applies to the mean.

    All batches of a step must have the same variables in the same order.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.optimizers import SGD, GradientAccumulation
    >>> w = np.zeros(2)
    >>> opt = GradientAccumulation(SGD(1.0), steps=2)
    >>> for gradient in ([1.0, 2.0], [3.0, 2.0]):
    ...     _ = opt.apply_gradients([(np.array(gradient), w)])
    >>> w, int(opt.iterations)
    (array([-2., -2.]), 1)
    """

    steps = Setting(whole(1))
    reduction = Setting(choice("mean", "sum"))
    pending = Setting(once=True)
    _weight_bounds: ClassVar[dict[str, tuple[float, float]]] = {"pending": COUNTED}

    def __init__(
        self,
        optimizer: OptimizerBase,
        steps: int,
        reduction: str = "mean",
        name: str = "GradientAccumulation",
    ) -> None:
        super().__init__(optimizer, name)
        self.steps = steps
        self.reduction = reduction
        self.pending = self.add_weight("pending", np.zeros((), np.int64))
        self._waiting = Waiting()

    @property
    def capabilities(self) -> Capabilities:
        """Those of the inner optimizer, but gradients are accumulated before the step."""
        return self.optimizer.capabilities._replace(fuses=False)

    def _bind(self, request: StepRequest) -> Step:
        return BatchStep(self, request)

    def _move_state(self, moved: dict[Any, Variable]) -> None:
        super()._move_state(moved)
        self._waiting.move(moved)

    def _holders(self) -> list[Any]:
        return [*super()._holders(), self._waiting]

    def _slot_dtype(self, variable: Variable, slot_name: str) -> np.dtype[Any]:
        return wide(super()._slot_dtype(variable, slot_name))

    def _slot_shapes(self, variable: Variable) -> dict[str, tuple[int, ...]]:
        return {"gradient": variable.shape}

    def _known(self) -> list[Variable]:
        return [*super()._known(), *self._waiting.batch.values()]

    def _state_parts(self, names: dict[str, Variable]) -> dict[str, Any]:
        waiting = self._waiting
        keys = {memory_of(variable): name for name, variable in names.items()}
        if not all(key in keys for key in waiting.batch):
            raise InvalidArgumentError(
                "gradients are accumulated for a variable that is not in variables"
            )
        rows = {
            keys[key]: {"values": rows.values, "indices": rows.indices}
            for key, rows in waiting.rows.items()
        }
        extra = {"batch": [keys[key] for key in waiting.batch], "rows": rows}
        return {**super()._state_parts(names), **(extra if waiting.batch else {})}

    def _adopting(self, loaded: LoadedState) -> list[Write | Callable[[], Any]]:
        names, parts = loaded.names, loaded.parts
        batch, rows = parts.pop("batch", []), parts.pop("rows", {})
        with as_damage():
            check_known(batch, names)
            if not all(name in rows or (name, "gradient") in loaded.slots for name in batch):
                raise InvalidArgumentError("gradients of a batch are missing from the state")
            if not all(name in batch for name in rows):
                raise InvalidArgumentError(
                    "the state has rows of a variable that no batch contains"
                )
            restored = {
                name: _checked_rows(
                    name, rows[name], variable, self._slot_dtype(variable, "gradient")
                )
                for name, variable in names.items()
                if name in rows
            }
        waiting = {
            "batch": {memory_of(names[name]): names[name] for name in batch},
            "rows": {memory_of(names[name]): rows for name, rows in restored.items()},
        }
        return [*super()._adopting(loaded), Attributes(self._waiting, waiting)]


class Waiting:
    """The variables of the batches so far, and their sparse gradients.

    Attributes
    ----------
    batch : dict of Variable
    rows : dict of IndexedSlices
        Both by the memory of the variables (`memory_of`).
    """

    def __init__(self) -> None:
        self.batch: dict[Any, Variable] = {}
        self.rows: dict[Any, IndexedSlices] = {}

    def move(self, moved: dict[Any, Variable]) -> None:
        """Move the gradients of variables, keyed by their memory, to others."""
        self.rows = {now_at(key, moved): rows for key, rows in self.rows.items()}
        self.batch = {now_at(key, moved): moved.get(key, var) for key, var in self.batch.items()}

    def __getstate__(self) -> dict[str, Any]:
        return {"batch": [(var, self.rows.get(key)) for key, var in self.batch.items()]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        batch = [(memory_of(variable), variable, rows) for variable, rows in state["batch"]]
        self.batch = {key: variable for key, variable, _ in batch}
        self.rows = {key: rows for key, _, rows in batch if rows is not None}


def _checked_rows(name: str, state: Any, variable: Variable, dtype: np.dtype[Any]) -> IndexedSlices:
    """Return a copy of the rows in a state, after checking them against a variable."""
    check_keys(state, ("values", "indices"))
    rows = IndexedSlices(np.array(state["values"]), np.array(state["indices"]))
    check_array(f"{name}'s rows", rows.values, rows.values.shape, dtype)
    try:
        gradient = IndexedSlices(rows.values.astype(variable.dtype), rows.indices)
        checked_gradient(gradient, variable)
    except InvalidArgumentError as error:
        raise type(error)(f"the accumulated rows of {name} are invalid: {error}") from error
    return rows
