"""Accumulation of the gradients of several batches into one step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, get_args

import numpy as np

from tfopt.core.backends import backend_of
from tfopt.errors import InvalidArgumentError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.update.commit import Attributes, Write
from tfopt.optimizers.base.optimizer_base import OptimizerBase
from tfopt.optimizers.options import Reduction
from tfopt.optimizers.settings import Setting, choice, whole
from tfopt.optimizers.state.by_variable import ByVariable
from tfopt.optimizers.state.restoration import (
    LoadedState,
    as_damage,
    check_array,
    check_keys,
    check_known,
)
from tfopt.optimizers.state.stateful import COUNTED
from tfopt.optimizers.state.variables import wide
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
    Supports real variables. Slot: ``gradient``, the sum, in float32 for variables of 16 bits. The
    last batch is added while the step reads the sum, or on a GPU before it; if the step clips by
    norm on the host, or needs complete gradients for another reason, it is added in separate
    memory. The mean is free, since a step multiplies its gradients by a number while it reads them.
    Sums outside the range of float16 are rescaled before they are rounded to it. Sparse gradients
    (`IndexedSlices`) are kept as they are, those of 16 bits in float32, and summed by the step; a
    variable with dense and sparse gradients has a dense sum. Clipping applies to the mean.

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
    reduction = Setting[Reduction](choice(*get_args(Reduction)))
    pending = Setting[Variable](once=True)
    _weight_bounds: ClassVar[dict[str, tuple[float, float]]] = {"pending": COUNTED}

    def __init__(
        self,
        optimizer: OptimizerBase,
        steps: int,
        reduction: Reduction = "mean",
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
        inside = self.optimizer.capabilities
        return inside._replace(fuses=False, fuses_on_device=False, takes_norm=False)

    def _bind(self, request: StepRequest) -> Step:
        return BatchStep(self, request)

    def _move_state(self, moved: ByVariable[Variable]) -> None:
        super()._move_state(moved)
        waiting = self._waiting
        waiting.rows, waiting.batch = waiting.rows.moved(moved), waiting.batch.moved(moved)

    def _holders(self) -> list[Any]:
        return [*super()._holders(), self._waiting]

    def _slot_dtype(self, variable: Variable, slot_name: str) -> np.dtype[Any]:
        return wide(super()._slot_dtype(variable, slot_name))

    def _slot_shapes(self, variable: Variable) -> dict[str, tuple[int, ...]]:
        return {"gradient": variable.shape}

    def _known(self) -> list[Variable]:
        return [*super()._known(), *self._waiting.batch]

    def _state_parts(self, names: dict[str, Variable]) -> dict[str, Any]:
        waiting = self._waiting
        keys = ByVariable((variable, name) for name, variable in names.items())
        if not all(variable in keys for variable in waiting.batch):
            raise InvalidArgumentError(
                "gradients are accumulated for a variable that is not in variables"
            )
        rows = {
            keys[variable]: {"values": _hosted(rows.values), "indices": _hosted(rows.indices)}
            for variable, rows in waiting.rows.items()
        }
        batch = [keys[variable] for variable in waiting.batch]
        extra = {"batch": batch, "rows": rows} if batch else {}
        return {**super()._state_parts(names), **extra}

    def _changes_to_adopt(self, loaded: LoadedState) -> list[Write | Callable[[], Any]]:
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
            "batch": ByVariable((names[name], None) for name in batch),
            "rows": ByVariable((names[name], rows) for name, rows in restored.items()),
        }
        return [*super()._changes_to_adopt(loaded), Attributes(self._waiting, waiting)]


class Waiting:
    """The variables of the batches so far, and their sparse gradients.

    Attributes
    ----------
    batch : ByVariable
        The variables, without values.
    rows : ByVariable
        The `IndexedSlices` of those that have sparse gradients.
    """

    def __init__(self) -> None:
        self.batch: ByVariable[None] = ByVariable()
        self.rows: ByVariable[IndexedSlices] = ByVariable()


def _checked_rows(name: str, state: Any, variable: Variable, dtype: np.dtype[Any]) -> IndexedSlices:
    """Return a copy of the rows in a state, after checking them against a variable."""
    check_keys(state, ("values", "indices"))
    rows = IndexedSlices(np.array(state["values"]), np.array(state["indices"]))
    check_array(f"{name}'s rows", rows.values, rows.values.shape, dtype)
    narrow = IndexedSlices(rows.values.astype(variable.dtype), rows.indices)
    if variable.device == "gpu":
        rows, narrow = _moved(rows, variable), _moved(narrow, variable)
    try:
        checked_gradient(narrow, variable)
    except InvalidArgumentError as error:
        raise type(error)(f"the accumulated rows of {name} are invalid: {error}") from error
    return rows


def _hosted(array: Any) -> np.ndarray:
    """Return an array; of one on a GPU, a copy in host memory."""
    host: np.ndarray = array if isinstance(array, np.ndarray) else backend_of(array).to_host(array)
    return host


def _moved(rows: IndexedSlices, variable: Variable) -> IndexedSlices:
    """Return rows on the GPU of a variable."""
    there = partial(backend_of(variable).filled_like, variable.value())
    return IndexedSlices(there(rows.values), there(rows.indices))
