"""The step of accumulated gradients: a batch is added to the sums, and the last one taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfopt.errors import InvalidArgumentError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels import kernels
from tfopt.kernels.update.checks import Call
from tfopt.kernels.update.clip import scale_call
from tfopt.kernels.update.commit import Assign, Attributes, Count, carry_out
from tfopt.kernels.update.multi_tensor import many_call
from tfopt.kernels.update.repetition import Repetition
from tfopt.optimizers.state.by_variable import ByVariable
from tfopt.optimizers.state.transaction import Writes
from tfopt.optimizers.step.gradients import are_finite
from tfopt.optimizers.step.prepared_step import PreparedStep
from tfopt.optimizers.step.request import NotFinite, StepRequest
from tfopt.optimizers.step.step import Step
from tfopt.optimizers.wrappers.gradient_sums import (
    adding_rows,
    as_gradients,
    joined,
    refuse_complex,
)
from tfopt.variable import Variable

if TYPE_CHECKING:
    from tfopt.optimizers.wrappers.accumulation import GradientAccumulation

__all__ = ["BatchStep"]

_ADD = kernels["gradient_descent"]
_NONE = np.zeros((), np.int64)
_EMPTY: ByVariable[Any] = ByVariable()
_FUSED = (np.float32, np.float64)


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
        # if sums are aggregated over replicas, finiteness is checked there, so that all agree
        self._aggregates = request.aggregates and self._capabilities.aggregates
        self._count = Count(wrapper.pending.numpy())
        self._reset_count = Assign(wrapper.pending.numpy(), _NONE)
        self._sums: list[np.ndarray] = []  # if all are dense
        self._ordinary: _Ordinary | None = None
        self._adding = _Adding()
        self._fused: Step | None = None  # the inner steps, bound when they are first needed
        self._inner: Step | None = None

    # ---- one batch

    def prepare(self, grads: list[Any], scale: float) -> PreparedStep:
        """Check the addition of a batch and, for the last batch, the step."""
        wrapper, batches = self._wrapper, self._count.next()
        waiting, first = wrapper._waiting, batches == 1
        batch = waiting.batch
        known, own = batch.by_memory, self._variables.by_memory
        if not first and known and known is not own and list(known) != list(own):
            raise InvalidArgumentError(
                "all batches of a step must have the same variables in the same order"
            )
        if not (self._ordinary is not None and self._ordinary.accepts(grads)):
            grads = list(self._request._replace(grads=tuple(grads)).checked().grads)
            self._ordinary = _ordinary(self._handles, grads)
            refuse_complex(self._handles)
        if self._request.finite and not self._aggregates and not are_finite(grads):
            raise NotFinite
        if batches < wrapper.steps:
            return self._gathered(grads, scale, first)
        mean = 1 / batches if wrapper.reduction == "mean" else 1.0
        try:
            return self._reset(self._last(grads, scale, first, mean))
        except NotFinite as error:
            raise NotFinite(*error.instead, self._reset(PreparedStep([]))) from None

    def fits(self) -> bool:
        """Whether what has no version is still the same for the inner steps."""
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
                total, writes = self._added(grad, handle, first, scale)
                step.writes += writes
                if isinstance(total, IndexedSlices):
                    rows[handle] = total
        batch = waiting.batch if not first and waiting.batch.by_memory else self._variables
        step.writes.append(Attributes(waiting, {"rows": rows, "batch": batch}))
        return step

    def _dense_sums(self) -> list[np.ndarray]:
        if not self._sums:
            self._sums = [self._sum_of(handle) for handle in self._handles]
        return self._sums

    def _sum_of(self, handle: Variable) -> np.ndarray:
        return self._wrapper.add_slot(handle, "gradient").numpy()

    def _added(
        self, grad: Any, handle: Variable, first: bool, scale: float, copies: bool = False
    ) -> tuple[Any, Writes]:
        """Return a sum that includes another gradient, and the writes that add it.

        The sum is `IndexedSlices`, the slot's array or a copy of it.
        """
        rows = self._wrapper._waiting.rows.get(handle)
        begins = first or rows is not None
        if isinstance(grad, IndexedSlices) and begins:
            dtype = self._wrapper._slot_dtype(handle, "gradient")
            return joined(rows, grad, dtype, scale), []
        total = self._sum_of(handle)
        if copies:
            total = np.empty_like(total) if begins else total.copy()
        if isinstance(grad, IndexedSlices):
            return total, [adding_rows(total, grad, scale)]
        writes: Writes = [_adding_call([total], [grad], begins, scale)]
        if rows is not None:
            writes.append(adding_rows(total, rows, 1.0))
        return total, writes

    # ---- the last batch

    def _last(self, grads: list[Any], scale: float, first: bool, mean: float) -> PreparedStep:
        """Return the step with the last batch added."""
        ordinary, rows = self._ordinary, self._wrapper._waiting.rows
        if (
            ordinary is not None
            and ordinary.fuses
            and not rows.by_memory
            and self._capabilities.fuses
        ):
            sums = self._dense_sums()
            self._adding.take(sums, grads, scale, first)
            if self._fused is None:
                self._fused = self._inside(before=self._adding)
            return self._fused.prepare(sums, mean)
        totals = []
        for grad, handle in zip(grads, self._handles, strict=True):
            total, writes = self._added(grad, handle, first, scale, copies=True)
            carry_out(writes)
            totals.append(total)
        gradients, unit = as_gradients(totals, self._handles)
        if self._inner is None:
            self._inner = self._inside()
        return self._inner.prepare(list(gradients), mean * unit)

    def _inside(self, **asked: Any) -> Step:
        """Return a step of the inner optimizer."""
        finite = self._request.finite and self._aggregates
        return self._wrapper.optimizer.bind(self._request.replace(finite=finite, **asked))


class _Adding:
    """Makes the calls that add a batch to dense sums, as `StepRequest.before`.

    Calls that are asked for again check only what can have changed.
    """

    def __init__(self) -> None:
        self._sums: Sequence[np.ndarray] = ()
        self._grads: Sequence[Any] = ()
        self._scale, self._first = 1.0, False
        self._known: dict[int, Repetition] = {}  # by their first positions

    def take(
        self, sums: Sequence[np.ndarray], grads: Sequence[Any], scale: float, first: bool
    ) -> None:
        """Use the gradients of a batch."""
        self._sums, self._grads, self._scale, self._first = sums, grads, scale, first

    def __call__(self, places: list[int]) -> Call:
        """Return the call for the gradients of one dtype at some positions."""
        grads = [self._grads[k] for k in places]
        known = self._known.get(places[0])
        if known is not None and not self._first and known.takes(grads):
            return known.call_with({"alpha": -1.0}, {}, self._scale, 1.0)
        call = _adding_call([self._sums[k] for k in places], grads, self._first, self._scale)
        if not self._first:
            self._known[places[0]] = Repetition(_ADD, call)
        return call

    def release(self) -> None:
        """Release the gradients."""
        self._grads = ()
        for known in self._known.values():
            known.release()


def _adding_call(sums: list[np.ndarray], grads: list[Any], first: bool, scale: float) -> Call:
    """Return the call that adds gradients to sums, or assigns the first ones."""
    if first:
        return scale_call(sums, grads, scale, 1.0, sums[0].dtype == np.float32)
    return many_call(_ADD, (sums, grads), (-1.0,), 0, scale)


class _Ordinary:
    """Looks whether gradients are ordinary arrays like those that have been checked.

    Attributes
    ----------
    places : list of list of int
        The positions of gradients that one call adds: of one dtype, for variables of one dtype.
    fuses : bool
        Whether a step can add them while it reads the sums.
    """

    def __init__(self, handles: list[Variable], grads: list[np.ndarray]) -> None:
        by_dtype: dict[Any, list[int]] = {}
        for place, (handle, grad) in enumerate(zip(handles, grads, strict=True)):
            by_dtype.setdefault((handle.dtype, grad.dtype), []).append(place)
        self.places = list(by_dtype.values())
        self.fuses = all(
            grad.dtype in _FUSED and handle.constraint is None
            for grad, handle in zip(grads, handles, strict=True)
        )
        self._checks = [
            Repetition(_ADD, many_call(_ADD, _columns(handles, grads, own), (0.0,), 0, 1.0))
            for own in self.places
        ]

    def accepts(self, grads: list[Any]) -> bool:
        """Whether no variable or gradient needs other checks."""
        if len(self.places) == 1:  # of all
            return self._checks[0].takes(grads)
        return all(
            check.takes([grads[k] for k in own])
            for check, own in zip(self._checks, self.places, strict=True)
        )

    def release(self) -> None:
        """Release the gradients."""
        for check in self._checks:
            check.release()


def _columns(
    handles: list[Variable], grads: list[np.ndarray], places: list[int]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    return [handles[k].numpy() for k in places], [grads[k] for k in places]


def _ordinary(handles: list[Variable], grads: list[Any]) -> _Ordinary | None:
    """Return the look at gradients like these; None if any is sparse."""
    sparse = any(isinstance(grad, IndexedSlices) for grad in grads)
    return None if sparse else _Ordinary(handles, grads)
