"""The addition of dense gradients to sums, on the host or on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfopt.core.backends import backend_of
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels import kernels
from tfopt.kernels.update.checks import Call
from tfopt.kernels.update.clip import scale_call
from tfopt.kernels.update.commit import Launch
from tfopt.kernels.update.multi_tensor import many_call
from tfopt.kernels.update.repetition import Repetition
from tfopt.optimizers.step.gradients import are_finite
from tfopt.optimizers.step.known_norms import KnownNorms
from tfopt.updates.device_copy import DeviceCopy
from tfopt.updates.device_rule import DeviceStep
from tfopt.updates.rule_steps import DenseBucket, RuleUpdate
from tfopt.variable import Variable

__all__ = ["Adding", "Ordinary", "added", "ordinary"]

_ADD = kernels["gradient_descent"]
_ADDED = RuleUpdate("gradient_descent", {"alpha": -1.0})
_FUSED = (np.float32, np.float64)
_NAME = "a sum of gradients"


class Adding:
    """Makes the calls that add a batch to dense sums, as `StepRequest.before`.

    Calls that are asked for again check only what can have changed.
    """

    def __init__(self) -> None:
        self._sums: Sequence[np.ndarray] = ()
        self._grads: Sequence[Any] = ()
        self._scale, self._first = 1.0, False
        self._known: dict[int, Repetition] = {}  # by their first positions
        self._on_device: dict[tuple[int, ...], tuple[DeviceCopy, DeviceStep]] = {}

    def take(
        self, sums: Sequence[np.ndarray], grads: Sequence[Any], scale: float, first: bool
    ) -> None:
        """Use the gradients of a batch."""
        self._sums, self._grads, self._scale, self._first = sums, grads, scale, first

    def __call__(self, places: list[int]) -> Call | Launch:
        """Return what adds the gradients of one dtype and device at some positions."""
        grads = [self._grads[k] for k in places]
        if not isinstance(grads[0], np.ndarray):
            return self._launch(places, grads)
        known = self._known.get(places[0])
        if known is not None and not self._first and known.takes(grads):
            return known.call_with({"alpha": -1.0}, {}, self._scale, 1.0)
        call = added([self._sums[k] for k in places], grads, self._first, self._scale)
        if isinstance(call, Call) and not self._first:
            self._known[places[0]] = Repetition(_ADD, call)
        return call

    def _launch(self, places: list[int], grads: list[Any]) -> Launch:
        key = tuple(places)
        if key not in self._on_device:
            sums = [self._sums[k] for k in places]
            self._on_device[key] = DeviceCopy(sums, _NAME), _on_device(sums, grads)
        copy, step = self._on_device[key]
        if self._first:
            return copy.launch(grads, self._scale)
        return step.write(_ADDED, self._scale, grads, _NAME)

    def forget(self) -> None:
        """Release what is bound to gradients of other dtypes."""
        self._on_device.clear()

    def release(self) -> None:
        """Release the gradients."""
        self._grads = ()
        for known in self._known.values():
            known.release()
        for each in self._on_device.values():
            for bound in each:
                bound.release()


def added(sums: list[Any], grads: list[Any], first: bool, scale: float) -> Call | Launch:
    """Return a function that adds gradients to sums, or assigns the first ones."""
    if not isinstance(sums[0], np.ndarray):
        if first:
            return DeviceCopy(sums, _NAME).launch(grads, scale)
        return _on_device(sums, grads).write(_ADDED, scale, grads, _NAME)
    if first:
        return scale_call(sums, grads, scale, 1.0, sums[0].dtype == np.float32)
    return many_call(_ADD, (sums, grads), (-1.0,), 0, scale)


def _on_device(sums: list[Any], grads: list[Any]) -> DeviceStep:
    """Return the step that adds gradients on a GPU, which may have several dtypes."""
    places: dict[Any, list[int]] = {}
    for place, grad in enumerate(grads):
        places.setdefault(_dtype(grad), []).append(place)
    return DeviceStep(
        [
            DenseBucket(([sums[k] for k in own],), own, [], None, True, False)
            for own in places.values()
        ]
    )


class Ordinary:
    """Looks whether gradients are ordinary arrays like those that have been checked.

    Attributes
    ----------
    places : list of list of int
        The positions of gradients that one call adds: of one dtype, for variables of one dtype.
    fuses : bool
        Whether a step can add them while it reads the sums.
    """

    def __init__(self, handles: list[Variable], grads: list[Any]) -> None:
        by_dtype: dict[Any, list[int]] = {}
        for place, (handle, grad) in enumerate(zip(handles, grads, strict=True)):
            key = handle.device, handle.dtype, _dtype(grad)
            by_dtype.setdefault(key, []).append(place)
        self.places = list(by_dtype.values())
        self.fuses = all(
            # on a GPU the addition is a launch of its own, whatever the gradient's dtype
            (handle.dtype if handle.device == "gpu" else grad.dtype) in _FUSED
            and handle.constraint is None
            for grad, handle in zip(grads, handles, strict=True)
        )
        self._checks = [_check(*_columns(handles, grads, own)) for own in self.places]

    def accepts(self, grads: list[Any]) -> bool:
        """Whether no variable or gradient needs other checks."""
        if len(self.places) == 1:  # of all
            return self._checks[0].takes(grads)
        return all(
            check.takes([grads[k] for k in own])
            for check, own in zip(self._checks, self.places, strict=True)
        )

    def are_finite(self, grads: list[Any], known: KnownNorms | None) -> bool:
        """Whether all elements of gradients that have been accepted are finite."""
        launches = [check for check in self._checks if isinstance(check, Launch)]
        if not launches:
            return are_finite(grads, known)
        hosted = [grad for grad in grads if isinstance(grad, np.ndarray)]
        return are_finite(hosted, known) and all(launch.finite() for launch in launches)

    def release(self) -> None:
        """Release the gradients."""
        for check in self._checks:
            check.release()


def _check(variables: list[Any], grads: list[Any]) -> Repetition | Launch:
    """Return a function that accepts gradients if they are like earlier ones that fit."""
    if isinstance(variables[0], np.ndarray):
        return Repetition(_ADD, many_call(_ADD, (variables, grads), (0.0,), 0, 1.0))
    return _on_device(variables, grads).write(_ADDED, 1.0, grads, _NAME)


def _dtype(array: Any) -> np.dtype[Any]:
    if isinstance(array, np.ndarray):
        dtype: np.dtype[Any] = array.dtype
    else:
        dtype = backend_of(array).dtype_of(array)
    return dtype


def _columns(
    handles: list[Variable], grads: list[Any], places: list[int]
) -> tuple[list[Any], list[Any]]:
    return [handles[k]._array for k in places], [grads[k] for k in places]


def ordinary(handles: list[Variable], grads: list[Any]) -> Ordinary | None:
    """Return the look at gradients like these; None if any is sparse."""
    sparse = any(isinstance(grad, IndexedSlices) for grad in grads)
    return None if sparse else Ordinary(handles, grads)
