"""Steps bound to variables: one description serves the first step and all later ones.

A training loop updates the same variables at each step. What a step does with them is bound to them
once; each step is then prepared with its gradients (`Step.prepare`), and nothing is written before
all of it has been checked. An optimizer keeps the step that it has taken last (`Repeats`), and
binds another one if anything has changed that the step depends on. An optimizer that is made with
``TFOPT_REPEAT=0`` in the environment binds each step anew, which only takes more time.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from tfopt.kernels.update.repetition import Bound, Repeats
from tfopt.optimizers.step.gradients import apart_from, as_taken
from tfopt.optimizers.step.known_norms import KnownNorms
from tfopt.optimizers.step.prepared_step import PreparedStep
from tfopt.optimizers.step.request import StepRequest

__all__ = ["Preparing", "Step", "StepAround", "repeats"]


class Step(ABC):
    """A step bound to variables, which one thread at a time can use.

    Attributes
    ----------
    fits : callable or None
        Returns whether what has no version is still the same, such as names of variables.
    """

    fits: Callable[[], bool] | None = None

    @abstractmethod
    def prepare(
        self, grads: list[Any], scale: float, known: KnownNorms | None = None
    ) -> PreparedStep:
        """Check a step and return it; nothing changes except that missing slots are created.

        Parameters
        ----------
        grads : list
            Arrays and `IndexedSlices`, one for each variable.
        scale : float
            Multiplies the gradients.
        known : KnownNorms, optional
            What is known of norms of the gradients.

        Raises
        ------
        InvalidArgumentError
            If an argument does not fit.
        NotFinite
            If the request requires finite gradients and they are not finite.
        """

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
        self._inner, self.fits = inner, inner.fits

    def release(self) -> None:
        """Release the gradients."""
        self._inner.release()


class Preparing(Step):
    """A step that needs the whole of an optimizer's `prepare`: a user's, or one with hooks."""

    def __init__(self, optimizer: Any, request: StepRequest) -> None:
        self._optimizer, self._request = optimizer, request.without_gradients()

    def prepare(
        self, grads: list[Any], scale: float, known: KnownNorms | None = None
    ) -> PreparedStep:
        """Check a step and return it."""
        request = self._request._replace(grads=tuple(grads), scale=scale, known=known)
        step: PreparedStep = self._optimizer.prepare(request)
        return step


class _Anew(Repeats):
    """Keeps nothing."""

    def keep(self, bound: Bound) -> bool:
        """Make the next step bind again."""
        return False


def repeats() -> Repeats:
    """Return what keeps the bound step that an optimizer has taken last."""
    anew = os.environ.get("TFOPT_REPEAT") == "0"
    return (_Anew if anew else Repeats)(as_taken, apart_from)
