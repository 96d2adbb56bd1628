"""Gradients of several batches that make one step."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt_ref.errors import InvalidArgumentError
from tfopt_ref.indexed_slices import IndexedSlices
from tfopt_ref.optimizers.optimizer import Commit, Optimizer
from tfopt_ref.optimizers.pairs import as_variable, checked_gradient, memory_of, times
from tfopt_ref.optimizers.wrapper import Wrapper
from tfopt_ref.training_ops import apply_gradient_descent
from tfopt_ref.variable import Variable

__all__ = ["GradientAccumulation"]


class GradientAccumulation(Wrapper):
    """Adds up the gradients of some batches, then takes one step with their mean or sum."""

    def __init__(
        self,
        optimizer: Optimizer,
        steps: int,
        reduction: str = "mean",
        name: str = "GradientAccumulation",
    ) -> None:
        if isinstance(steps, bool) or not isinstance(steps, (int, np.integer)) or steps < 1:
            raise InvalidArgumentError(f"steps must be an integer of at least 1, not {steps!r}")
        if reduction not in ("mean", "sum"):
            raise InvalidArgumentError(f'reduction must be "mean" or "sum", not {reduction!r}')
        super().__init__(optimizer, name)
        self.steps = int(steps)
        self.reduction = reduction
        self.pending = Variable(np.zeros((), np.int64), f"{name}/pending", trainable=False)
        self._weights.append(self.pending)
        self._rows: dict[Any, IndexedSlices] = {}  # by variable, what has come of rows
        self._of_batches: list[Any] = []  # the variables of the batches before this one

    def _prepared(self, pairs: list[Any], scale: float, aggregates: bool) -> Commit:
        handles = [as_variable(var) for _, var in pairs]
        keys = [memory_of(handle) for handle in handles]
        if len(set(keys)) < len(keys):
            raise InvalidArgumentError("a variable comes twice")
        if int(self.pending) and self._of_batches and keys != self._of_batches:
            raise InvalidArgumentError("every batch of a step must bring the same variables")
        grads = [checked_gradient(grad, var) for (grad, _), var in zip(pairs, handles, strict=True)]

        def commit() -> None:
            for grad, handle in zip(grads, handles, strict=True):
                self._add(grad, handle, int(self.pending) == 0, scale)
            self._of_batches = keys
            if int(self.pending) < self.steps - 1:
                self.pending.assign_add(1)
                return
            mean = 1 / self.steps if self.reduction == "mean" else 1.0
            sums = [(self._sum(handle), handle) for handle in handles]
            self.optimizer._prepared(sums, mean, aggregates)()
            self._begin_anew()

        return commit

    def _begin_anew(self) -> None:
        self.pending.assign(0)
        self._rows.clear()

    def _add(self, grad: Any, handle: Variable, first: bool, scale: float) -> None:
        key = memory_of(handle)
        rows = self._rows.get(key)
        if isinstance(grad, IndexedSlices):
            if not first and rows is None:
                _add_rows(self._total(handle), grad, scale)
                return
            new = times(grad, scale)
            values = [new.values] if rows is None else [rows.values, new.values]
            indices = [new.indices] if rows is None else [rows.indices, new.indices]
            self._rows[key] = IndexedSlices(np.concatenate(values), np.concatenate(indices))
            return
        total = self._total(handle)
        if first or rows is not None:
            total[...] = 0
        apply_gradient_descent(total, grad, alpha=-1.0, grad_scale=scale)
        if rows is not None:
            _add_rows(total, self._rows.pop(key), 1.0)

    def _total(self, handle: Variable) -> np.ndarray:
        own = self._slots.get(memory_of(handle), {})
        if "gradient" not in own and handle.dtype.itemsize == 2:
            zeros = np.zeros(handle.shape, np.float32)
            slot = Variable(zeros, f"{self.name}/{handle.name}/gradient", trainable=False)
            return self._keep_slot(handle, "gradient", slot).numpy()
        return self.add_slot(handle, "gradient").numpy()

    def _sum(self, handle: Variable) -> Any:
        rows = self._rows.get(memory_of(handle))
        return self._total(handle).astype(handle.dtype, copy=False) if rows is None else rows

    def _move_state(self, old: Variable, new: Variable) -> None:
        super()._move_state(old, new)
        if memory_of(old) in self._rows:
            self._rows[memory_of(new)] = self._rows.pop(memory_of(old))
        self._of_batches = [
            memory_of(new) if key == memory_of(old) else key for key in self._of_batches
        ]

    def get_config(self) -> dict[str, Any]:
        own = {"steps": self.steps, "reduction": self.reduction}
        return {**super().get_config(), **own}


def _add_rows(total: np.ndarray, rows: IndexedSlices, scale: float) -> None:
    values = rows.values.astype(total.dtype, copy=False)
    apply_gradient_descent(total, values, alpha=-1.0, indices=rows.indices, grad_scale=scale)
