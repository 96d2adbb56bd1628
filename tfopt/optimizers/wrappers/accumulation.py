"""Accumulation of the gradients of several batches into one step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np

from tfopt.errors import InvalidArgumentError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels import kernels
from tfopt.kernels.update.checks import Call
from tfopt.kernels.update.commit import Attributes, Write, carry_out
from tfopt.kernels.update.sparse_checks import sparse_call
from tfopt.optimizers.base.optimizer_base import OptimizerBase
from tfopt.optimizers.settings import Setting, choice, whole
from tfopt.optimizers.state.restoration import LoadedState
from tfopt.optimizers.state.state_parts import as_damage, check_array, check_keys, check_known
from tfopt.optimizers.state.stateful import COUNTED
from tfopt.optimizers.state.transaction import Writes
from tfopt.optimizers.state.variables import memory_of, now_at, wide
from tfopt.optimizers.step.gradients import are_finite, checked_gradient
from tfopt.optimizers.step.prepared_step import PreparedStep
from tfopt.optimizers.step.request import Capabilities, NotFinite, StepRequest, scaled
from tfopt.optimizers.wrappers.bound_batch import Adding, BoundBatch, adding_call
from tfopt.optimizers.wrappers.gradient_sums import as_gradients, refuse_complex
from tfopt.optimizers.wrappers.wrapper import Wrapper
from tfopt.variable import Variable

__all__ = ["GradientAccumulation"]

_FUSED = (np.float32, np.float64)


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
        self._rows: dict[Any, IndexedSlices] = {}  # the sparse gradients so far, by variable
        self._batch: dict[Any, Variable] = {}  # the variables of the batches so far

    @property
    def _phase(self) -> Any:
        pending = int(self.pending._array)
        return pending == 0, pending + 1 >= self.steps, self.optimizer._phase

    @property
    def capabilities(self) -> Capabilities:
        """Those of the inner optimizer, but gradients are accumulated before the step."""
        return self.optimizer.capabilities._replace(fuses=False)

    def prepare(self, request: StepRequest) -> PreparedStep:
        """Check the addition of a batch and, for the last batch, the step."""
        handles = request.handles
        keys = [memory_of(handle) for handle in handles]
        first = int(self.pending) == 0
        if len(set(keys)) < len(keys):
            raise InvalidArgumentError("a variable occurs twice in a batch")
        if not first and self._batch and keys != list(self._batch):
            raise InvalidArgumentError(
                "all batches of a step must have the same variables in the same order"
            )
        request = request.checked()
        refuse_complex(handles)
        # if sums are aggregated over replicas, finiteness is checked there, so that all agree
        aggregates = request.aggregates and self.optimizer.capabilities.aggregates
        if request.finite and not aggregates and not are_finite(request.grads):
            raise NotFinite
        batches = int(self.pending) + 1
        if batches < self.steps:
            return self._gathering(request, handles, first)
        mean = 1 / batches if self.reduction == "mean" else 1.0
        request = request.replace(finite=request.finite and aggregates)
        try:
            return self._reset(self._last(request, handles, first, mean))
        except NotFinite as error:
            raise NotFinite(*error.instead, self._reset(PreparedStep([]))) from None

    def _last(
        self, request: StepRequest, handles: list[Variable], first: bool, mean: float
    ) -> PreparedStep:
        """Return the step with the last batch added."""
        inside = request.replace(scale=mean)
        grads, scale = request.grads, request.scale
        if self.optimizer.capabilities.fuses and self._all_dense(grads, handles):
            sums = [self.add_slot(handle, "gradient").numpy() for handle in handles]
            adding = Adding(sums, first)
            adding.take(grads, scale)
            step = self.optimizer.prepare(inside.replace(grads=tuple(sums), before=adding))
            make = step._bound_by(self.optimizer)
            if make and type(self) is GradientAccumulation:
                step._bind(self, partial(BoundBatch, self, request, adding, make))
            return step
        totals = []
        for grad, handle in zip(grads, handles, strict=True):
            total, writes = self._added(grad, handle, first, scale, copies=True)
            carry_out(writes)
            totals.append(total)
        gradients, unit = as_gradients(totals, handles)
        return self.optimizer.prepare(inside.replace(grads=gradients, scale=mean * unit))

    def _all_dense(self, grads: tuple[Any, ...], handles: list[Variable]) -> bool:
        """Whether all sums are dense, in the variables' dtypes, and no constraint needs copies."""
        return not any(
            isinstance(grad, IndexedSlices)
            or grad.dtype not in _FUSED
            or memory_of(handle) in self._rows
            or handle.constraint is not None
            for grad, handle in zip(grads, handles, strict=True)
        )

    def _reset(self, step: PreparedStep) -> PreparedStep:
        """Append the reset of the accumulated gradients to a step."""
        step.assign(self.pending, 0)
        step.writes.append(Attributes(self, {"_rows": {}, "_batch": {}}))
        return step

    def _gathering(
        self, request: StepRequest, handles: list[Variable], first: bool
    ) -> PreparedStep:
        """Return the addition of gradients to the sums, without a step of the inner optimizer."""
        step = PreparedStep([], counts=False)
        step.count(self.pending)
        rows = dict(self._rows)
        for grad, handle in zip(request.grads, handles, strict=True):
            total, writes = self._added(grad, handle, first, request.scale)
            step.writes += writes
            rows.pop(memory_of(handle), None)
            if isinstance(total, IndexedSlices):
                rows[memory_of(handle)] = total
        begun = {} if first else self._batch
        batch = begun or {memory_of(handle): handle for handle in handles}
        step.writes.append(Attributes(self, {"_rows": rows, "_batch": batch}))
        dense = not (self._rows or rows or any(isinstance(g, IndexedSlices) for g in request.grads))
        if type(self) is GradientAccumulation and dense:
            sums = [self.get_slot(handle, "gradient").numpy() for handle in handles]
            step._bind(self, partial(BoundBatch, self, request, Adding(sums, first), None))
        return step

    def _added(
        self, grad: Any, handle: Variable, first: bool, scale: float, copies: bool = False
    ) -> tuple[Any, Writes]:
        """Return a sum that includes another gradient, and the writes that add it.

        The sum is `IndexedSlices`, the slot's array or a copy of it.
        """
        rows = self._rows.get(memory_of(handle))
        begins = first or rows is not None
        if isinstance(grad, IndexedSlices) and begins:
            values = grad.values.astype(self._slot_dtype(handle, "gradient"), copy=False)
            (new,) = scaled((IndexedSlices(values, grad.indices),), scale)
            return _joined([new] if rows is None else [rows, new]), []
        total = self.add_slot(handle, "gradient").numpy()
        if copies:
            total = np.empty_like(total) if begins else total.copy()
        if isinstance(grad, IndexedSlices):
            return total, [_adding_rows(total, grad, scale)]
        writes: Writes = [adding_call([total], [grad], begins, scale)]
        if rows is not None:
            writes.append(_adding_rows(total, rows, 1.0))
        return total, writes

    def _move_state(self, moved: dict[Any, Variable]) -> None:
        super()._move_state(moved)
        self._rows = {now_at(key, moved): rows for key, rows in self._rows.items()}
        self._batch = {now_at(key, moved): moved.get(key, var) for key, var in self._batch.items()}

    def __getstate__(self) -> dict[str, Any]:
        batch = [(variable, self._rows.get(key)) for key, variable in self._batch.items()]
        return {**super().__getstate__(), "_batch": batch}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        batch = [(memory_of(variable), variable, rows) for variable, rows in state["_batch"]]
        self._batch = {key: variable for key, variable, _ in batch}
        self._rows = {key: rows for key, _, rows in batch if rows is not None}

    def _slot_dtype(self, variable: Variable, slot_name: str) -> np.dtype[Any]:
        return wide(super()._slot_dtype(variable, slot_name))

    def _slot_shapes(self, variable: Variable) -> dict[str, tuple[int, ...]]:
        return {"gradient": variable.shape}

    def _known(self) -> list[Variable]:
        return [*super()._known(), *self._batch.values()]

    def _state_parts(self, names: dict[str, Variable]) -> dict[str, Any]:
        keys = {memory_of(variable): name for name, variable in names.items()}
        if not all(key in keys for key in self._batch):
            raise InvalidArgumentError(
                "gradients are accumulated for a variable that is not in variables"
            )
        rows = {
            keys[key]: {"values": rows.values, "indices": rows.indices}
            for key, rows in self._rows.items()
        }
        extra = {"batch": [keys[key] for key in self._batch], "rows": rows} if self._batch else {}
        return {**super()._state_parts(names), **extra}

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
            waiting = {
                name: _checked_rows(
                    name, rows[name], variable, self._slot_dtype(variable, "gradient")
                )
                for name, variable in names.items()
                if name in rows
            }

        gathered = {
            "_batch": {memory_of(names[name]): names[name] for name in batch},
            "_rows": {memory_of(names[name]): restored for name, restored in waiting.items()},
        }
        return [*super()._adopting(loaded), Attributes(self, gathered)]


def _adding_rows(total: np.ndarray, rows: IndexedSlices, scale: float) -> Call:
    """Return the call that adds rows to a sum."""
    values, rule = rows.values.astype(total.dtype, copy=False), kernels["gradient_descent"]
    return sparse_call(rule, (total, values), rows.indices, (-1.0,), 0, scale)


def _joined(rows: list[IndexedSlices]) -> IndexedSlices:
    """Return the concatenation of slices, as copies."""
    values, indices = ([slices.values for slices in rows], [slices.indices for slices in rows])
    return IndexedSlices(np.concatenate(values), np.concatenate(indices))


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
