"""The step of accumulated gradients: batches are added to sums; the last one takes the step."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.update.commit import Assign, Attributes, Count, carry_out
from tfopt.optimizers.state.by_variable import ByVariable
from tfopt.optimizers.state.transaction import Writes
from tfopt.optimizers.step.gradients import are_finite
from tfopt.optimizers.step.known_norms import KnownNorms
from tfopt.optimizers.step.prepared_step import PreparedStep
from tfopt.optimizers.step.request import NotFinite, StepRequest
from tfopt.optimizers.step.step import Step
from tfopt.optimizers.wrappers.dense_sums import Adding, Ordinary, added, ordinary
from tfopt.optimizers.wrappers.gradient_sums import (
    adding_rows,
    as_gradients,
    joined,
    new_sums,
)
from tfopt.variable import Variable

if TYPE_CHECKING:
    from tfopt.optimizers.wrappers.accumulation import GradientAccumulation

__all__ = ["BatchStep"]

_NONE = np.zeros((), np.int64)
_EMPTY: ByVariable[Any] = ByVariable()


class BatchStep(Step):
    """The addition of a batch of gradients and, if it is the last one, the step.

    Parameters
    ----------
    wrapper : GradientAccumulation
    request : StepRequest
        Its gradients do not matter.
    """

    def __init__(self, wrapper: GradientAccumulation, request: StepRequest) -> None:
        self._wrapper, self._request = wrapper, request.without_gradients()
        self._handles = request.handles
        self._variables = ByVariable((handle, None) for handle in self._handles)
        if len(self._variables) < len(self._handles):
            raise InvalidArgumentError("a variable occurs twice in a batch")
        self._capabilities = wrapper.optimizer.capabilities
        self._on_device = all(handle.device == "gpu" for handle in self._handles)
        # if sums are aggregated over replicas, finiteness is checked there, so that all agree
        self._aggregates = request.aggregates and self._capabilities.aggregates
        self._count = Count(wrapper.pending.numpy())
        self._reset_count = Assign(wrapper.pending.numpy(), _NONE)
        self._sums: list[Any] = []  # if all are dense
        self._ordinary: Ordinary | None = None
        self._adding = Adding()
        self._fused: Step | None = None  # the inner steps, bound when they are first needed
        self._inner: Step | None = None

    # ---- one batch

    def prepare(
        self, grads: list[Any], scale: float, known: KnownNorms | None = None
    ) -> PreparedStep:
        """Check the addition of a batch and, for the last batch, the step."""
        wrapper, batches = self._wrapper, self._count.next()
        waiting, first = wrapper._waiting, batches == 1
        batch = waiting.batch
        others, own = batch.by_memory, self._variables.by_memory
        if not first and others and others is not own and list(others) != list(own):
            raise InvalidArgumentError(
                "all batches of a step must have the same variables in the same order"
            )
        if not (self._ordinary is not None and self._ordinary.accepts(grads)):
            grads = list(self._request._replace(grads=tuple(grads)).checked().grads)
            self._ordinary = ordinary(self._handles, grads)
            self._adding.forget()
            _refuse_complex(self._handles)
        if self._request.finite and not self._aggregates:
            ours = self._ordinary
            if not (are_finite(grads, known) if ours is None else ours.are_finite(grads, known)):
                raise NotFinite
        if batches < wrapper.steps:
            return self._gathered(grads, scale, first)
        mean = 1 / batches if wrapper.reduction == "mean" else 1.0
        try:
            return self._reset(self._last(grads, scale, first, mean))
        except NotFinite as error:
            raise NotFinite(*error.instead, self._reset(PreparedStep([]))) from None

    def fits(self) -> bool:
        """Whether dependencies without a version are unchanged for the inner steps."""
        fused, inner = self._fused, self._inner
        if fused is not None and fused.fits is not None and not fused.fits():
            return False
        return inner is None or inner.fits is None or inner.fits()

    def release(self) -> None:
        """Release the gradients."""
        self._adding.release()
        if self._ordinary is not None:
            self._ordinary.release()
        if self._fused is not None:
            self._fused.release()
        if self._inner is not None:
            self._inner.release()

    def _reset(self, step: PreparedStep) -> PreparedStep:
        """Append the reset of the accumulated gradients to a step."""
        step.writes.append(self._reset_count)
        step.variables.append(self._wrapper.pending)
        step.writes.append(Attributes(self._wrapper._waiting, {"rows": _EMPTY, "batch": _EMPTY}))
        return step

    # ---- batches before the last one

    def _gathered(self, grads: list[Any], scale: float, first: bool) -> PreparedStep:
        """Return the addition of gradients to the sums, without a step of the inner optimizer."""
        waiting = self._wrapper._waiting
        step = PreparedStep([], counts=False)
        step.writes.append(self._count)
        step.variables.append(self._wrapper.pending)
        rows = waiting.rows
        if self._ordinary is not None and not rows.by_memory:
            self._adding.take(self._dense_sums(), grads, scale, first)
            step.writes += map(self._adding, self._ordinary.places)
        else:
            rows = ByVariable()
            for grad, handle in zip(grads, self._handles, strict=True):
                total, additions = self._added(grad, handle, first, scale)
                _append(step, additions)
                if isinstance(total, IndexedSlices):
                    rows[handle] = total
        batch = waiting.batch if not first and waiting.batch.by_memory else self._variables
        step.writes.append(Attributes(waiting, {"rows": rows, "batch": batch}))
        return step

    def _dense_sums(self) -> list[Any]:
        if not self._sums:
            self._sums = [self._sum_of(handle) for handle in self._handles]
        return self._sums

    def _sum_of(self, handle: Variable) -> Any:
        return self._wrapper.add_slot(handle, "gradient")._array

    def _added(
        self, grad: Any, handle: Variable, first: bool, scale: float, copies: bool = False
    ) -> tuple[Any, list[Any]]:
        """Return a sum that includes another gradient, and what adds it: writes and functions.

        The sum is `IndexedSlices`, the slot's array or a copy of it.
        """
        rows = self._wrapper._waiting.rows.get(handle)
        begins = first or rows is not None
        if isinstance(grad, IndexedSlices) and begins:
            dtype = self._wrapper._slot_dtype(handle, "gradient")
            return joined(rows, grad, dtype, scale), []
        total = self._sum_of(handle)
        if copies:
            [total] = new_sums([total], begins)
        if isinstance(grad, IndexedSlices):
            return total, [adding_rows(total, grad, scale)]
        additions: list[Any] = [added([total], [grad], begins, scale)]
        if rows is not None:
            additions.append(adding_rows(total, rows, 1.0))
        return total, additions

    # ---- the last batch

    def _last(self, grads: list[Any], scale: float, first: bool, mean: float) -> PreparedStep:
        """Return the step with the last batch added."""
        ordinary, rows = self._ordinary, self._wrapper._waiting.rows
        fuses = self._capabilities.fuses or (self._on_device and self._capabilities.fuses_on_device)
        if fuses and ordinary is not None and ordinary.fuses and not rows.by_memory:
            sums = self._dense_sums()
            self._adding.take(sums, grads, scale, first)
            if self._fused is None:
                self._fused = self._inside(before=self._adding)
            return self._fused.prepare(sums, mean)
        totals = self._totals(grads, scale, first)
        gradients, unit = as_gradients(totals, self._handles)
        if self._inner is None:
            self._inner = self._inside()
        return self._inner.prepare(list(gradients), mean * unit)

    def _totals(self, grads: list[Any], scale: float, first: bool) -> list[Any]:
        """Return sums that include the last batch, in separate memory."""
        totals: list[Any] = [None] * len(grads)
        together = []  # what one launch adds
        for k, (grad, handle) in enumerate(zip(grads, self._handles, strict=True)):
            rows = isinstance(grad, IndexedSlices) or handle in self._wrapper._waiting.rows
            if handle.device == "gpu" and not rows:
                together.append(k)
                continue
            totals[k], additions = self._added(grad, handle, first, scale, copies=True)
            _make(additions, [])
        if together:
            made = new_sums([self._sum_of(self._handles[k]) for k in together], first)
            carry_out([added(made, [grads[k] for k in together], first, scale)])
            for k, total in zip(together, made, strict=True):
                totals[k] = total
        return totals

    def _inside(self, **asked: Any) -> Step:
        """Return a step of the inner optimizer."""
        finite = self._request.finite and self._aggregates
        return self._wrapper.optimizer.bind(self._request.replace(finite=finite, **asked))


def _refuse_complex(variables: Iterable[Variable]) -> None:
    """Raise if a variable is complex; such gradients are not accumulated."""
    for variable in variables:
        if variable.dtype.kind == "c":
            raise InvalidTypeError(f"gradients of {variable.dtype} cannot be accumulated")


def _append(step: PreparedStep, additions: list[Any]) -> None:
    """Append what adds a gradient to a step, as work if part of it is a function."""
    if any(map(callable, additions)):
        step.launches = True
        step.work.append(partial(_make, additions))
    else:
        step.writes += additions


def _make(additions: list[Any], writes: Writes) -> None:
    """Make additions, in order."""
    for addition in additions:
        if callable(addition):
            addition()
        else:
            carry_out([addition])
