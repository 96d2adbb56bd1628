"""The step of an optimizer that updates one variable after another by its methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfopt.kernels.update.commit import Count
from tfopt.optimizers.step.known_norms import KnownNorms
from tfopt.optimizers.step.prepared_step import PreparedStep
from tfopt.optimizers.step.request import StepRequest
from tfopt.optimizers.step.step import Step

if TYPE_CHECKING:
    from tfopt.optimizers.base.optimizer_v2 import Optimizer

__all__ = ["EachStep"]


class EachStep(Step):
    """A step whose methods for each variable may do anything, so that each one is new.

    Parameters
    ----------
    optimizer : Optimizer
    request : StepRequest
        Its gradients do not matter.
    """

    def __init__(self, optimizer: Optimizer, request: StepRequest) -> None:
        self._optimizer, self._request = optimizer, request.without_gradients()

    def prepare(
        self, grads: list[Any], scale: float, known: KnownNorms | None = None
    ) -> PreparedStep:
        """Check a step and return it."""
        optimizer, variables = self._optimizer, self._request.variables
        asked = self._request._replace(grads=tuple(grads), scale=scale, known=known)
        step = optimizer._prepare_each(asked)
        count = optimizer._store.weights[0]
        step.variables += [*variables, count]
        step.writes.append(Count(count._array))
        return step
