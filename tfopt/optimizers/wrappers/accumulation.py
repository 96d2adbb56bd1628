"""Gradients of several batches that make one step."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

import numpy as np

from tfopt.errors import InvalidArgumentError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels import kernels
from tfopt.kernels.calls import Call
from tfopt.kernels.clip import scale_call
from tfopt.kernels.commit import Assign, Attributes, Count, carry_out
from tfopt.kernels.groups import many_call
from tfopt.kernels.row_calls import sparse_call
from tfopt.optimizers.base.gradients import (
    are_finite,
    as_variable,
    checked_gradient,
    memory_of,
    now_at,
)
from tfopt.optimizers.base.optimizer import Optimizer
from tfopt.optimizers.base.state_parts import as_damage, check_array, check_keys, check_known
from tfopt.optimizers.base.weights import wide
from tfopt.optimizers.execution.commit import Commit, Writes
from tfopt.optimizers.execution.route import NotFinite, Route, scaled
from tfopt.optimizers.wrappers.gradient_sums import as_gradients, refuse_complex
from tfopt.optimizers.wrappers.wrapper import Own, Wrapper
from tfopt.variable import Variable

__all__ = ["GradientAccumulation"]

_FUSED = (np.float32, np.float64)


def _checked_steps(steps: Any) -> int:
    if isinstance(steps, bool) or not isinstance(steps, (int, np.integer)) or steps < 1:
        raise InvalidArgumentError(f"steps must be an integer of at least 1, not {steps!r}")
    return int(steps)


def _checked_reduction(reduction: Any) -> str:
    if reduction not in ("mean", "sum"):
        raise InvalidArgumentError(f'reduction must be "mean" or "sum", not {reduction!r}')
    return str(reduction)


class GradientAccumulation(Wrapper):
    """Adds up the gradients of some batches, then takes one step with their mean or sum.

    Parameters
    ----------
    optimizer : Optimizer
        Takes the steps. Only they count: for its learning rate, its decays and `iterations`.
    steps : int
        How many batches make a step, at least 1.
    reduction : {"mean", "sum"}
    name : str, default "GradientAccumulation"

    Attributes
    ----------
    pending : Variable
        How many batches have been added since the last step, int64; one of the weights.

    Raises
    ------
    InvalidArgumentError
        If an argument does not fit.

    Notes
    -----
    For variables in the host's memory, of real numbers. Slot: ``gradient``, the sum, in float32
    for variables of 16 bits. The last batch is added on the way into the step; into memory of its
    own if the step clips by a norm, or takes whole gradients otherwise. The mean costs nothing, for
    a step multiplies its gradients by a number as it reads them. Sums that float16 cannot hold are
    rounded to it in another unit. Rows (`IndexedSlices`) are kept as they come, 16 bits in float32,
    and summed by the step; a variable with dense and sparse gradients has a dense sum. Clipping is
    that of the mean.

    Every batch has to bring the same variables, in the same order.

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

    @property
    def _fuses(self) -> bool:
        return False  # gradients are added before there is a step

    def _prepared(self, grads: tuple[Any, ...], variables: tuple[Any, ...], route: Route) -> Commit:
        handles = [as_variable(var) for var in variables]
        keys = [memory_of(handle) for handle in handles]
        first = int(self.pending) == 0
        if len(set(keys)) < len(keys):
            raise InvalidArgumentError("a variable comes twice")
        if not first and self._batch and keys != list(self._batch):
            raise InvalidArgumentError("every batch of a step must bring the same variables")
        grads = tuple(map(checked_gradient, grads, handles))
        refuse_complex(handles)
        # sums that are aggregated over replicas are looked at there, so that all agree
        later = route.finite and self.optimizer._aggregates(route)
        if route.finite and not later and not are_finite(grads):
            raise NotFinite
        batches = int(self.pending) + 1
        if batches < self.steps:
            return self._adding(grads, handles, first, route.scale)
        mean = 1 / batches if self.reduction == "mean" else 1.0
        try:
            return self._last(grads, handles, first, route._replace(finite=later), mean)
        except NotFinite as found:
            raise NotFinite(*found.instead, self._begun_anew(Commit([]))) from None

    def _last(
        self,
        grads: tuple[Any, ...],
        handles: list[Variable],
        first: bool,
        route: Route,
        mean: float,
    ) -> Commit:
        """Add the last batch, and have the step taken."""
        asked = route._replace(scale=mean)
        if self.optimizer._fuses and self._all_dense(grads, handles):
            return self._on_the_way(grads, handles, first, route.scale, asked)
        totals = []
        for grad, handle in zip(grads, handles, strict=True):
            total, writes = self._with(grad, handle, first, route.scale, copies=True)
            carry_out(writes)
            totals.append(total)
        sums, unit = as_gradients(totals, handles)
        asked = asked._replace(scale=mean * unit)
        return self._begun_anew(self.optimizer._prepared(sums, tuple(handles), asked))

    def _on_the_way(
        self,
        grads: tuple[Any, ...],
        handles: list[Variable],
        first: bool,
        scale: float,
        asked: Route,
    ) -> Commit:
        """Add the last batch piece by piece, as the step reads the sum."""
        sums = [self.add_slot(handle, "gradient").numpy() for handle in handles]

        def lead(places: list[int]) -> Call:
            return _adding([sums[k] for k in places], [grads[k] for k in places], first, scale)

        asked = asked._replace(lead=lead)
        return self._begun_anew(self.optimizer._prepared(tuple(sums), tuple(handles), asked))

    def _all_dense(self, grads: tuple[Any, ...], handles: list[Variable]) -> bool:
        """Whether the sums are dense, of the variables' own dtypes, and no step is put back."""
        return not any(
            isinstance(grad, IndexedSlices)
            or grad.dtype not in _FUSED
            or memory_of(handle) in self._rows
            or handle.constraint is not None
            for grad, handle in zip(grads, handles, strict=True)
        )

    def _begun_anew(self, commit: Commit) -> Commit:
        """Return a step after which there are no gradients."""
        commit.variables.append(self.pending)
        commit.writes.append(Assign(self.pending.numpy(), np.zeros((), np.int64)))
        commit.writes.append(Attributes(self, {"_rows": {}, "_batch": {}}))
        return commit

    def _adding(
        self, grads: tuple[Any, ...], handles: list[Variable], first: bool, scale: float
    ) -> Commit:
        """Return what adds gradients to the sums, and takes no step."""
        commit = Commit([Count(self.pending.numpy())], [self.pending], steps=False)
        rows = dict(self._rows)
        for grad, handle in zip(grads, handles, strict=True):
            total, writes = self._with(grad, handle, first, scale)
            commit.writes += writes
            rows.pop(memory_of(handle), None)
            if isinstance(total, IndexedSlices):
                rows[memory_of(handle)] = total
        batch = {memory_of(handle): handle for handle in handles}
        commit.writes.append(Attributes(self, {"_rows": rows, "_batch": batch}))
        return commit

    def _with(
        self, grad: Any, handle: Variable, first: bool, scale: float, copies: bool = False
    ) -> tuple[Any, Writes]:
        """Return a sum with one more gradient, and the writes that add it.

        The sum is rows, or the slot's array, or a copy of it.
        """
        rows = self._rows.get(memory_of(handle))
        begins = first or rows is not None
        if isinstance(grad, IndexedSlices) and begins:
            values = grad.values.astype(self._slot_dtype(handle), copy=False)
            (new,) = scaled((IndexedSlices(values, grad.indices),), scale)
            return _joined([new] if rows is None else [rows, new]), []
        total = self.add_slot(handle, "gradient").numpy()
        if copies:
            total = np.empty_like(total) if begins else total.copy()
        if isinstance(grad, IndexedSlices):
            return total, [_adding_rows(total, grad, scale)]
        writes: Writes = [_adding([total], [grad], begins, scale)]
        if rows is not None:
            writes.append(_adding_rows(total, rows, 1.0))
        return total, writes

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


def _adding(sums: list[np.ndarray], grads: list[np.ndarray], first: bool, scale: float) -> Call:
    """Return the call that adds gradients to sums, or that begins these."""
    if first:
        return scale_call(sums, grads, scale, 1.0, sums[0].dtype == np.float32)
    return many_call(kernels["gradient_descent"], (sums, grads), (-1.0,), 0, scale)


def _adding_rows(total: np.ndarray, rows: IndexedSlices, scale: float) -> Call:
    """Return the call that adds rows to a sum."""
    values, rule = rows.values.astype(total.dtype, copy=False), kernels["gradient_descent"]
    return sparse_call(rule, (total, values), rows.indices, (-1.0,), 0, scale)


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
