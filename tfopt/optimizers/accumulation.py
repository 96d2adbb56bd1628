"""Gradients of several batches that make one step."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tfopt.errors import InvalidArgumentError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels import kernels
from tfopt.kernels.calls import Call
from tfopt.kernels.clip import scale_call
from tfopt.kernels.groups import many_call
from tfopt.kernels.row_calls import sparse_call
from tfopt.kernels.training import run
from tfopt.optimizers.optimizer import Optimizer
from tfopt.optimizers.pairs import as_variable, checked_gradient, memory_of
from tfopt.optimizers.route import Commit, Route, scaled
from tfopt.optimizers.wrapper import Wrapper
from tfopt.variable import Variable

__all__ = ["GradientAccumulation"]

_FUSED = (np.float32, np.float64)


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
    for variables of 16 bits. The last batch is added on the
    way into the step. The mean costs nothing, for a step multiplies its gradients by a number as
    it reads them. Rows (`IndexedSlices`) are kept as they come and summed by the step; a variable
    with dense and sparse gradients has a dense sum. Clipping is that of the mean.

    Every batch has to bring the same variables.

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

    def _prepared(self, grads: tuple[Any, ...], variables: tuple[Any, ...], route: Route) -> Commit:
        handles = [as_variable(var) for var in variables]
        keys = [memory_of(handle) for handle in handles]
        first = int(self.pending) == 0
        if len(set(keys)) < len(keys):
            raise InvalidArgumentError("a variable comes twice")
        if not first and self._of_batches and keys != self._of_batches:
            raise InvalidArgumentError("every batch of a step must bring the same variables")
        grads = tuple(map(checked_gradient, grads, handles))
        if int(self.pending) < self.steps - 1:
            return partial(self._add_all, grads, handles, route.scale)
        mean = route._replace(scale=1 / self.steps if self.reduction == "mean" else 1.0)
        if self.optimizer._fuses and self._all_dense(grads, keys):
            return self._on_the_way(grads, handles, first, route.scale, mean)

        def commit() -> None:
            self._add_all(grads, handles, route.scale)
            sums = tuple(map(self._sum, handles))
            self.optimizer._prepared(sums, variables, mean)()
            self._begin_anew()

        return commit

    def _on_the_way(
        self,
        grads: tuple[Any, ...],
        handles: list[Variable],
        first: bool,
        scale: float,
        mean: Route,
    ) -> Commit:
        """Add the last batch piece by piece, as the step reads the sum."""
        sums = [self.add_slot(handle, "gradient").numpy() for handle in handles]

        def lead(places: list[int]) -> Call:
            return _adding([sums[k] for k in places], [grads[k] for k in places], first, scale)

        step = self.optimizer._prepared(tuple(sums), tuple(handles), mean._replace(lead=lead))

        def commit() -> None:
            step()
            self._begin_anew()

        return commit

    def _all_dense(self, grads: tuple[Any, ...], keys: list[Any]) -> bool:
        """Whether the sums are dense, and of the variables' own dtypes."""
        return not any(
            isinstance(grad, IndexedSlices) or grad.dtype not in _FUSED or key in self._rows
            for grad, key in zip(grads, keys, strict=True)
        )

    def _begin_anew(self) -> None:
        self.pending.assign(0)
        self._rows.clear()

    def _add_all(self, grads: tuple[Any, ...], handles: list[Variable], scale: float) -> None:
        first = int(self.pending) == 0
        for grad, handle in zip(grads, handles, strict=True):
            self._add(grad, handle, first, scale)
        self._of_batches = [memory_of(handle) for handle in handles]
        self.pending.assign_add(1)

    def _add(self, grad: Any, handle: Variable, first: bool, scale: float) -> None:
        key = memory_of(handle)
        rows = self._rows.get(key)
        if isinstance(grad, IndexedSlices):
            if not first and rows is None:
                _add_rows(self._total(handle), grad, scale)
                return
            new = scaled((grad,), scale)[0]
            values = [new.values] if rows is None else [rows.values, new.values]
            indices = [new.indices] if rows is None else [rows.indices, new.indices]
            self._rows[key] = IndexedSlices(np.concatenate(values), np.concatenate(indices))
            return
        total = self._total(handle)
        run(_adding([total], [grad], first or rows is not None, scale))
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


def _adding(sums: list[np.ndarray], grads: list[np.ndarray], first: bool, scale: float) -> Call:
    """Return the call that adds gradients to sums, or that begins these."""
    if first:
        return scale_call(sums, grads, scale, 1.0, sums[0].dtype == np.float32)
    return many_call(kernels["gradient_descent"], (sums, grads), (-1.0,), 0, scale)


def _add_rows(total: np.ndarray, rows: IndexedSlices, scale: float) -> None:
    values = rows.values.astype(total.dtype, copy=False)
    run(sparse_call(kernels["gradient_descent"], (total, values), rows.indices, (-1.0,), 0, scale))
