"""Gradients of several batches that make one step."""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial
from typing import Any

import numpy as np

from tfopt_ref.errors import InvalidArgumentError
from tfopt_ref.indexed_slices import IndexedSlices
from tfopt_ref.optimizers.optimizer import Commit, NotFinite, Optimizer
from tfopt_ref.optimizers.pairs import (
    are_finite,
    as_variable,
    checked_gradient,
    memory_of,
    now_at,
    times,
)
from tfopt_ref.optimizers.state_parts import as_damage, check_array, check_keys, check_known
from tfopt_ref.optimizers.sums import as_gradients, refuse_complex
from tfopt_ref.optimizers.weights import wide
from tfopt_ref.optimizers.wrapper import Own, Wrapper
from tfopt_ref.training_ops import apply_gradient_descent
from tfopt_ref.variable import Variable

__all__ = ["GradientAccumulation"]


def _checked_steps(steps: Any) -> int:
    if isinstance(steps, bool) or not isinstance(steps, (int, np.integer)) or steps < 1:
        raise InvalidArgumentError(f"steps must be an integer of at least 1, not {steps!r}")
    return int(steps)


def _checked_reduction(reduction: Any) -> str:
    if reduction not in ("mean", "sum"):
        raise InvalidArgumentError(f'reduction must be "mean" or "sum", not {reduction!r}')
    return str(reduction)


class GradientAccumulation(Wrapper):
    """Adds up the gradients of some batches, then takes one step with their mean or sum."""

    steps: int = Own(_checked_steps)  # type: ignore[assignment]
    reduction: str = Own(_checked_reduction)  # type: ignore[assignment]
    pending: Variable = Own(once=True)  # type: ignore[assignment]

    def __init__(
        self,
        optimizer: Optimizer,
        steps: int,
        reduction: str = "mean",
        name: str = "GradientAccumulation",
    ) -> None:
        super().__init__(optimizer, name)
        self.steps = steps
        self.reduction = reduction
        self.pending = Variable(np.zeros((), np.int64), f"{name}/pending", trainable=False)
        self._weights.append(self.pending)
        self._rows: dict[Any, IndexedSlices] = {}  # by variable, what has come of rows
        self._batch: dict[Any, Variable] = {}  # the variables of the batches before this one

    def _prepared(self, pairs: list[Any], scale: float, aggregates: bool, finite: bool) -> Commit:
        handles = [as_variable(var) for _, var in pairs]
        keys = [memory_of(handle) for handle in handles]
        if len(set(keys)) < len(keys):
            raise InvalidArgumentError("a variable comes twice")
        if int(self.pending) and self._batch and keys != list(self._batch):
            raise InvalidArgumentError("every batch of a step must bring the same variables")
        grads = [checked_gradient(grad, var) for (grad, _), var in zip(pairs, handles, strict=True)]

        refuse_complex(handles)
        # sums that are aggregated over replicas are looked at there, so that all agree
        later = finite and aggregates and self.optimizer._aggregates()
        if finite and not later and not are_finite(pairs):
            raise NotFinite
        sums = [
            self._with(grad, handle, scale) for grad, handle in zip(grads, handles, strict=True)
        ]
        batches = int(self.pending) + 1
        if batches < self.steps:
            return partial(self._keep, sums, handles)
        mean = 1 / batches if self.reduction == "mean" else 1.0
        given, unit = as_gradients(sums, handles)
        pairs = list(zip(given, handles, strict=True))
        try:
            step = self.optimizer._prepared(pairs, mean * unit, aggregates, later)
        except NotFinite as found:
            raise NotFinite(*found.instead, self._begin_anew) from None

        def commit() -> None:
            step()
            self._begin_anew()

        return commit

    def _begin_anew(self) -> None:
        self.pending.assign(0)
        self._rows.clear()
        self._batch.clear()

    def _keep(self, sums: list[Any], handles: list[Variable]) -> None:
        for total, handle in zip(sums, handles, strict=True):
            self._rows.pop(memory_of(handle), None)
            if isinstance(total, IndexedSlices):
                self._rows[memory_of(handle)] = total
            else:
                self.add_slot(handle, "gradient").assign(total)
        self._batch = {memory_of(handle): handle for handle in handles}
        self.pending.assign_add(1)

    def _with(self, grad: Any, handle: Variable, scale: float) -> Any:
        """Return a sum with one more gradient: rows or an array, new in any case."""
        rows = self._rows.get(memory_of(handle))
        begins = int(self.pending) == 0 or rows is not None
        if isinstance(grad, IndexedSlices) and begins:
            values = grad.values.astype(self._slot_dtype(handle), copy=False)
            new = times(IndexedSlices(values, grad.indices), scale)
            return _joined([new] if rows is None else [rows, new])
        total = self.add_slot(handle, "gradient").numpy()
        total = np.zeros_like(total) if begins else total.copy()
        if isinstance(grad, IndexedSlices):
            _add_rows(total, grad, scale)
            return total
        apply_gradient_descent(total, grad, alpha=-1.0, grad_scale=scale)
        if rows is not None:
            _add_rows(total, rows, 1.0)
        return total

    def _move_state(self, moved: dict[Any, Variable]) -> None:
        super()._move_state(moved)
        self._rows = {now_at(key, moved): rows for key, rows in self._rows.items()}
        self._batch = {now_at(key, moved): moved.get(key, own) for key, own in self._batch.items()}

    def __getstate__(self) -> dict[str, Any]:
        batch = [(variable, self._rows.get(key)) for key, variable in self._batch.items()]
        return {**super().__getstate__(), "_batch": batch}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        batch = [(memory_of(variable), variable, rows) for variable, rows in state["_batch"]]
        self._batch = {key: variable for key, variable, _ in batch}
        self._rows = {key: rows for key, _, rows in batch if rows is not None}

    def _slot_dtype(self, variable: Variable) -> np.dtype[Any]:
        return wide(super()._slot_dtype(variable))

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
        own = {"batch": [keys[key] for key in self._batch], "rows": rows} if self._batch else {}
        return {**super()._state_parts(names), **own}

    def _restoring(
        self, parts: dict[str, Any], names: dict[str, Variable], slots: Container[tuple[str, str]]
    ) -> list[Callable[[], None]]:
        batch, rows = parts.pop("batch", []), parts.pop("rows", {})
        with as_damage():
            check_known(batch, names)
            if not all(name in rows or (name, "gradient") in slots for name in batch):
                raise InvalidArgumentError("gradients of a batch are missing from the state")
            if not all(name in batch for name in rows):
                raise InvalidArgumentError(
                    "the state has rows of a variable that no batch contains"
                )
            waiting = {
                name: _checked_rows(name, rows[name], names[name], self._slot_dtype(names[name]))
                for name in rows
            }

        def restore() -> None:
            self._batch = {memory_of(names[name]): names[name] for name in batch}
            self._rows = {memory_of(names[name]): own for name, own in waiting.items()}

        return [*super()._restoring(parts, names, slots), restore]

    def _own_config(self) -> dict[str, Any]:
        return {"steps": self.steps, "reduction": self.reduction}


def _add_rows(total: np.ndarray, rows: IndexedSlices, scale: float) -> None:
    values = rows.values.astype(total.dtype, copy=False)
    apply_gradient_descent(total, values, alpha=-1.0, indices=rows.indices, grad_scale=scale)


def _joined(rows: list[IndexedSlices]) -> IndexedSlices:
    """Return copies of rows, one after another."""
    values, indices = ([one.values for one in rows], [one.indices for one in rows])
    return IndexedSlices(np.concatenate(values), np.concatenate(indices))


def _checked_rows(name: str, state: Any, variable: Variable, dtype: np.dtype[Any]) -> IndexedSlices:
    """Return a copy of the rows in a state, if they are sums of a variable's gradients."""
    check_keys(state, ("values", "indices"))
    rows = IndexedSlices(np.array(state["values"]), np.array(state["indices"]))
    check_array(f"{name}'s rows", rows.values, rows.values.shape, dtype)
    try:
        given = IndexedSlices(rows.values.astype(variable.dtype), rows.indices)
        checked_gradient(given, variable)
    except InvalidArgumentError as error:
        raise type(error)(f"gradients of rows of {name} do not fit it: {error}") from error
    return rows
