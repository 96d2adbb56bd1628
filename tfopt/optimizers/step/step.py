"""Steps bound to variables: what a step does is stated once, the first time and the thousandth.

A training loop updates the same variables at each step. What a step does with them is bound to them
once; each step is then prepared with its gradients (`Step.prepare`), and nothing is written before
all of it has been checked. An optimizer keeps the step that it has taken last (`Repeats`), and
binds another one if anything has changed that the step depends on. With ``TFOPT_REPEAT=0`` in the
environment each step is bound anew, which only takes more time.
"""

from __future__ import annotations

import operator
import os
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from tfopt.kernels.update.repetition import Apart, Unchanged, are_arrays, gradients_of
from tfopt.optimizers.step.gradients import apart_from, as_taken
from tfopt.optimizers.step.prepared_step import PreparedStep
from tfopt.optimizers.step.request import StepRequest

__all__ = ["Bound", "Preparing", "Repeats", "Step", "StepAround"]

_REPEATS = os.environ.get("TFOPT_REPEAT", "1") != "0"


class Step(ABC):
    """A step bound to variables, which one thread at a time can use."""

    @abstractmethod
    def prepare(self, grads: list[Any], scale: float) -> PreparedStep:
        """Check a step and return it; nothing changes except that missing slots are created.

        Parameters
        ----------
        grads : list
            Arrays and `IndexedSlices`, one for each variable.
        scale : float
            Multiplies the gradients.

        Raises
        ------
        InvalidArgumentError
            If an argument does not fit.
        NotFinite
            If the request requires finite gradients and they are not finite.
        """

    def fits(self) -> bool:
        """Whether what no version counts is still the same, such as names of variables."""
        return True

    def release(self) -> None:
        """Release the gradients, after the step has been taken; by default there are none."""
        return


class StepAround(Step):
    """Base class of a wrapper's steps: `prepare` adds to what the inner optimizer's step does.

    Parameters
    ----------
    inner : Step
    """

    def __init__(self, inner: Step) -> None:
        self._inner = inner

    def fits(self) -> bool:
        """Whether what no version counts is still the same."""
        return self._inner.fits()

    def release(self) -> None:
        """Release the gradients."""
        self._inner.release()


class Preparing(Step):
    """A step that needs the whole of an optimizer's `prepare`: a user's, or one with hooks."""

    def __init__(self, optimizer: Any, request: StepRequest) -> None:
        self._optimizer, self._request = optimizer, request.without_gradients()

    def prepare(self, grads: list[Any], scale: float) -> PreparedStep:
        """Check a step and return it."""
        request = self._request._replace(grads=tuple(grads), scale=scale)
        step: PreparedStep = self._optimizer.prepare(request)
        return step


class Bound(NamedTuple):
    """A bound step, and what it is bound to."""

    step: Step
    request: StepRequest  # without gradients
    mark: Any  # of the slots there are, in case the step fails
    apart: Apart | None = None  # of several variables: looks whether gradients lie outside of them
    unchanged: Unchanged | None = None  # None before the first step

    def holds(self) -> bool:
        """Whether nothing has changed that the step depends on."""
        return self.unchanged is not None and self.unchanged.holds() and self.step.fits()

    def gradients(self, grads: list[Any]) -> list[Any]:
        """Return gradients from a caller as steps take them."""
        taken = as_taken(grads, self.request.variables)
        if self.apart is None or self.apart.holds(taken):
            return taken
        return list(apart_from(taken, self.request.variables))


class Repeats:
    """The bound step that has been taken last, unless it is being used.

    Then it is not here, so that another thread binds its own.
    """

    def __init__(self) -> None:
        self._last: list[Bound] = []

    def keep(self, bound: Bound) -> None:
        """Keep a bound step that has been taken."""
        bound.step.release()
        if _REPEATS:
            self._last = [bound]

    def of_pairs(self, pairs: list[Any], aggregates: bool) -> tuple[Bound | None, list[Any]]:
        """Return the bound step and its gradients if the pairs have exactly its variables."""
        bound = self._taken_out()
        if bound is None or bound.request.aggregates is not aggregates:
            return None, []
        grads = gradients_of(pairs, bound.request.variables)
        if grads is None or (not are_arrays(grads) and type(None) in map(type, grads)):
            return None, []
        return bound, bound.gradients(grads)

    def of(self, request: StepRequest) -> Bound | None:
        """Return the bound step of such a request with any gradients and scale."""
        bound = self._taken_out()
        if bound is None or bound.request[3:] != request[3:]:
            return None
        ours, theirs = bound.request.variables, request.variables
        if ours is theirs:
            return bound
        if len(ours) != len(theirs) or not all(map(operator.is_, ours, theirs)):
            return None
        return bound._replace(request=bound.request._replace(variables=theirs))

    def _taken_out(self) -> Bound | None:
        try:
            return self._last.pop()
        except IndexError:
            return None
