"""The step of groups of variables, each by the optimizer of its group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfopt.kernels.update.checks import Call
from tfopt.kernels.update.commit import Count
from tfopt.optimizers.base.optimizer_base import OptimizerBase
from tfopt.optimizers.step.known_norms import KnownNorms
from tfopt.optimizers.step.prepared_step import PreparedStep
from tfopt.optimizers.step.request import NotFinite, StepRequest
from tfopt.optimizers.step.step import Step
from tfopt.variable import Variable

__all__ = ["GroupsStep"]


class GroupsStep(Step):
    """A step of each group; of a group without gradients, only its count.

    Parameters
    ----------
    optimizers : sequence of Optimizer
    places : sequence of list of int
        The positions of each group's gradients.
    request : StepRequest
        Its gradients do not matter.
    """

    def __init__(
        self,
        optimizers: Sequence[OptimizerBase],
        places: Sequence[list[int]],
        request: StepRequest,
    ) -> None:
        self._groups = [
            (optimizer.bind(_narrowed(request, own)) if own else _CountStep(optimizer), own)
            for optimizer, own in zip(optimizers, places, strict=True)
        ]
        self._named = [each for each in request.variables if isinstance(each, Variable)]
        self._names = [variable.name for variable in self._named]
        if self._named:
            self.fits = self._has_names

    def prepare(
        self, grads: list[Any], scale: float, known: KnownNorms | None = None
    ) -> PreparedStep:
        """Check a step of all groups before any is updated, and return it."""
        joined = PreparedStep([])
        failures: list[NotFinite] = []
        for step, places in self._groups:
            try:
                each = step.prepare([grads[place] for place in places], scale, known)
            except NotFinite as error:  # the other groups' aggregators must still be called
                failures.append(error)
                continue
            joined.join(each)
            joined.counts = each.counts  # `iterations` is that of the last optimizer
        if failures:
            raise NotFinite(*(other for error in failures for other in error.instead))
        return joined

    def _has_names(self) -> bool:
        """Whether the variables have the names by which they belong to their groups."""
        return [variable.name for variable in self._named] == self._names

    def release(self) -> None:
        """Release the gradients."""
        for step, _ in self._groups:
            step.release()


class _CountStep(Step):
    """The step of a group without gradients, which only counts it."""

    def __init__(self, optimizer: OptimizerBase) -> None:
        self._number = optimizer.iterations
        self._count = Count(self._number.numpy())

    def prepare(
        self, grads: list[Any], scale: float, known: KnownNorms | None = None
    ) -> PreparedStep:
        """Return the step."""
        self._count.next()  # which must not be too large
        return PreparedStep([self._count], [self._number])


def _narrowed(request: StepRequest, places: list[int]) -> StepRequest:
    """Return the part of a request for the variables at some positions, renumbered from 0."""
    variables = tuple(request.variables[k] for k in places)
    before = request.before
    if before is None:
        return request.replace(variables=variables)

    def before_part(chosen: list[int]) -> Call:
        return before([places[k] for k in chosen])

    return request.replace(variables=variables, before=before_part)
