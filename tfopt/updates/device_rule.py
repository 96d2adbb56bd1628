"""Steps of whole arrays on a GPU by a rule, outside the plan of an optimizer's own step."""

from __future__ import annotations

from typing import Any

from tfopt.core.backends import backend_of
from tfopt.kernels.update.commit import Launch
from tfopt.updates.rule_steps import DenseBucket, RuleUpdate

__all__ = ["DeviceRule"]

_UNLIMITED = None, None, None


class DeviceRule:
    """A rule's step of the same arrays, which is bound to them the first time.

    Parameters
    ----------
    operands : tuple of list
        The variables, their first slots, and so on; arrays on one GPU.
    """

    def __init__(self, operands: tuple[list[Any], ...]) -> None:
        self._operands, self._backend = operands, backend_of(operands[0])
        self._launch: Launch | None = None
        self._rule = ""

    def launch(self, update: RuleUpdate, scale: float, grads: list[Any]) -> Launch | list[Any]:
        """Check a step and return its launch, or the updates of arrays that cannot be bound."""
        launch: Launch | None = self._launch if update.rule == self._rule else None
        if launch is not None and launch.takes(grads) and launch.prepare(update, scale):
            return launch
        part = DenseBucket(self._operands, list(range(len(grads))), [], None, True, False)
        updates: list[Any] = self._backend.checked_updates([part], [update.step(scale)], grads)
        bound: Launch | None = self._backend.launch_of([part], updates, grads, _UNLIMITED)
        if bound is None or not (bound.takes(grads) and bound.prepare(update, scale)):
            return updates
        self._launch, self._rule = bound, update.rule
        return bound
