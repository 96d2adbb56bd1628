"""The calls that accumulate dense gradients, and batches that are repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfopt.kernels import kernels
from tfopt.kernels.reduce.clip import scale_call
from tfopt.kernels.update.checks import Call
from tfopt.kernels.update.commit import Assign, Attributes, Count
from tfopt.kernels.update.multi_tensor import many_call
from tfopt.kernels.update.repetition import Repetition
from tfopt.optimizers.state.transaction import Writes
from tfopt.optimizers.state.variables import memory_of
from tfopt.optimizers.step.bound_step import BoundStep
from tfopt.optimizers.step.request import StepRequest

if TYPE_CHECKING:
    from tfopt.optimizers.wrappers.accumulation import GradientAccumulation

__all__ = ["Adding", "BoundBatch", "adding_call"]

_ADD = kernels["gradient_descent"]
_NONE = np.zeros((), np.int64)


def adding_call(sums: list[np.ndarray], grads: list[Any], first: bool, scale: float) -> Call:
    """Return the call that adds gradients to sums, or assigns the first ones."""
    if first:
        return scale_call(sums, grads, scale, 1.0, sums[0].dtype == np.float32)
    return many_call(_ADD, (sums, grads), (-1.0,), 0, scale)


class Adding:
    """Makes the calls that add a batch to dense sums, as `StepRequest.before`.

    A bound step asks for the same calls again: these check only what can have changed.

    Parameters
    ----------
    sums : list of ndarray
    first : bool
        Whether the batch is the first one, which is assigned.
    """

    def __init__(self, sums: list[np.ndarray], first: bool) -> None:
        self.sums, self.first = sums, first
        self._grads: Sequence[Any] = ()
        self._scale = 1.0
        self._known: dict[int, Repetition] = {}  # by their first positions

    def take(self, grads: Sequence[Any], scale: float) -> None:
        """Use the gradients of a batch."""
        self._grads, self._scale = grads, scale

    def __call__(self, places: list[int]) -> Call:
        """Return the call for the gradients of one dtype at some positions."""
        grads = [self._grads[k] for k in places]
        known = self._known.get(places[0])
        if known is not None and known.takes(grads):
            return known.call_with({"alpha": -1.0}, {}, self._scale, 1.0)
        call = adding_call([self.sums[k] for k in places], grads, self.first, self._scale)
        if not self.first:
            self._known[places[0]] = Repetition(_ADD, call)
        return call

    def release(self) -> None:
        """Let go of the gradients."""
        self._grads = ()
        for known in self._known.values():
            known.release()


class BoundBatch(BoundStep):
    """The addition of a batch of dense gradients and, if it is the last one, the step.

    Parameters
    ----------
    wrapper : GradientAccumulation
    request : StepRequest
        For the same variables.
    adding : Adding
    make : callable or None
        Makes the bound step of the optimizer inside; None if there are more batches.
    """

    def __init__(
        self,
        wrapper: GradientAccumulation,
        request: StepRequest,
        adding: Adding,
        make: Callable[[], BoundStep] | None,
    ) -> None:
        self._wrapper, self._adding = wrapper, adding
        self._inner = None if make is None else make()
        self._slots = wrapper._store.by_memory
        self._batch = wrapper._batch or {memory_of(each): each for each in request.handles}
        self._pending = wrapper.pending._array
        self._count = Count(self._pending)
        self._left = Attributes(wrapper, {"_batch": self._batch})
        arrays = [handle.numpy() for handle in request.handles]
        by_dtype: dict[Any, list[int]] = {}
        for place, (array, grad) in enumerate(zip(arrays, request.grads, strict=True)):
            by_dtype.setdefault((array.dtype, grad.dtype), []).append(place)
        self._places = list(by_dtype.values())
        self._is_alone = len(self._places) == 1  # so that all gradients are of one dtype
        self._checks = [
            Repetition(
                _ADD,
                many_call(
                    _ADD,
                    ([arrays[k] for k in places], [request.grads[k] for k in places]),
                    (0.0,), 0, 1.0,
                ),
            )
            for places in self._places
        ]  # fmt: skip

    def writes(self, grads: list[Any], scale: float) -> Writes | None:
        """Check the batch, without changing anything."""
        wrapper, inner, first = self._wrapper, self._inner, self._adding.first
        batches = self._count.next()
        if (
            wrapper.pending._array is not self._pending
            or (batches == 1) is not first
            or (batches >= wrapper.steps) is not (inner is not None)
            or wrapper._rows
            or wrapper._store.by_memory is not self._slots
            or not (first or self._has_same_batch())
            or not self._takes(grads)
        ):
            return None
        self._adding.take(grads, scale)
        if inner is None:
            return [self._count, *map(self._adding, self._places), self._left]
        mean = 1 / batches if wrapper.reduction == "mean" else 1.0
        writes = inner.writes(self._adding.sums, mean)
        if writes is not None:
            writes.append(Assign(self._pending, _NONE))
            writes.append(Attributes(wrapper, {"_batch": {}}))
        return writes

    def _has_same_batch(self) -> bool:
        batch = self._wrapper._batch
        return batch is self._batch or list(batch) == list(self._batch)

    def _takes(self, grads: list[Any]) -> bool:
        """Whether no variable or gradient needs all checks."""
        if self._is_alone:
            return self._checks[0].takes(grads)
        return all(
            check.takes([grads[k] for k in places])
            for check, places in zip(self._checks, self._places, strict=True)
        )

    def finish(self) -> None:
        """Let go of the gradients, after the writes have been carried out."""
        self._adding.release()
        for check in self._checks:
            check.release()
        if self._inner is not None:
            self._inner.finish()
