"""Steps of groups of variables that are repeated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfopt.kernels.update.commit import Count
from tfopt.optimizers.base.optimizer_base import OptimizerBase
from tfopt.optimizers.state.transaction import Writes
from tfopt.optimizers.step.bound_step import BoundStep
from tfopt.variable import Variable

__all__ = ["BoundCount", "BoundGroups"]


class BoundGroups(BoundStep):
    """A step of each group, of variables whose names stay the same.

    Parameters
    ----------
    variables : tuple of Variable or ndarray
    places : list of list of int
        The positions of each group's gradients.
    makes : list of callable
        They make the bound step of each group.
    """

    def __init__(
        self,
        variables: tuple[Any, ...],
        places: list[list[int]],
        makes: list[Callable[[], BoundStep]],
    ) -> None:
        self._groups = [(make(), each) for make, each in zip(makes, places, strict=True)]
        self._named = [variable for variable in variables if isinstance(variable, Variable)]
        self._names = [variable.name for variable in self._named]

    def writes(self, grads: list[Any], scale: float) -> Writes | None:
        """Check the step with other gradients, without changing anything."""
        if [variable.name for variable in self._named] != self._names:
            return None
        writes: Writes = []
        for step, places in self._groups:
            own = step.writes([grads[k] for k in places], scale)
            if own is None:
                return None
            writes += own
        return writes

    def finish(self) -> None:
        """Let go of the gradients, after the writes have been carried out."""
        for step, _ in self._groups:
            step.finish()


class BoundCount(BoundStep):
    """A step of a group without gradients."""

    def __init__(self, optimizer: OptimizerBase) -> None:
        self._optimizer = optimizer

    def writes(self, grads: list[Any], scale: float) -> Writes | None:
        """Check the step with other gradients, without changing anything."""
        return [Count(self._optimizer.iterations._array)]

    def finish(self) -> None:
        """Do nothing: there are no gradients."""
