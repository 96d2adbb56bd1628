"""The part of a torch optimizer's step whose parameters are on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tfopt.core.backends import backend_of
from tfopt.core.workspace import Workspace
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.update.commit import Launch, carry_out
from tfopt.updates.rule_steps import DenseBucket, RuleUpdate, SparseUpdate

__all__ = ["DevicePart"]

_UNLIMITED = None, None, None


class DevicePart:
    """Parameters on one GPU that take their steps together.

    Parameters
    ----------
    operands : tuple of list of Tensor
        The parameters, their first slots, and so on.
    """

    def __init__(self, operands: tuple[list[Any], ...]) -> None:
        self._operands, self._backend = operands, backend_of(operands[0])
        self._launches: dict[str, Launch] = {}  # by rule

    def dense(
        self, update: RuleUpdate, scale: float, grads: list[Any], rate: float | None
    ) -> Callable[[], None]:
        """Check a step; return the function that queues it.

        With a rate, the parameters then take a gradient descent step along the rule's variables.
        """
        if rate is None:
            return self._queued([(update, scale, self._operands, grads)])
        parameters, *slots = self._operands
        down = RuleUpdate("gradient_descent", {"alpha": rate})
        steps = [
            (update, scale, tuple(slots), grads),
            (down, 1.0, (parameters,), slots[0]),
        ]
        return self._queued(steps)

    def rows(self, update: RuleUpdate, scale: float, slices: IndexedSlices) -> Callable[[], None]:
        """Check a step of some rows of a parameter; return the function that queues it."""
        arrays = tuple(column[0] for column in self._operands)
        part: Any = SparseUpdate(arrays, 0, None, Workspace(), True)  # type: ignore[arg-type]
        updates = self._backend.checked_updates([part], [update.step(scale, lazy=True)], [slices])
        return partial(self._backend.run_clipped, updates)

    def _queued(self, steps: list[tuple[Any, ...]]) -> Callable[[], None]:
        return partial(self._queue, [self._checked(*step) for step in steps])

    def _checked(
        self, update: RuleUpdate, scale: float, operands: tuple[list[Any], ...], grads: list[Any]
    ) -> Launch | list[Any]:
        """Return the launch of a rule, or the updates of arrays that cannot be bound."""
        launch: Launch | None = self._launches.get(update.rule)
        if launch is not None and launch.takes(grads) and launch.prepare(update, scale):
            return launch
        part = DenseBucket(operands, list(range(len(grads))), [], None, True, False)
        updates = self._backend.checked_updates([part], [update.step(scale)], grads)
        launch = self._backend.launch_of([part], updates, grads, _UNLIMITED)
        if launch is None or not (launch.takes(grads) and launch.prepare(update, scale)):
            unbound: list[Any] = updates
            return unbound
        self._launches[update.rule] = launch
        return launch

    def _queue(self, steps: list[Launch | list[Any]]) -> None:
        for step in steps:
            if isinstance(step, Launch):
                carry_out([step])
                step.release()
            else:
                self._backend.run_clipped(step)
