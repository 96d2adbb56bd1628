"""The part of a torch optimizer's step whose parameters are on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tfopt.core.backends import backend_of
from tfopt.core.workspace import Workspace
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.update.commit import Launch, carry_out
from tfopt.updates.device_rule import DeviceRule
from tfopt.updates.rule_steps import RuleUpdate, SparseUpdate

__all__ = ["DevicePart"]


class DevicePart:
    """Parameters on one GPU that take their steps together.

    Whole parameters take them in the order of their memory, such as channels last.

    Parameters
    ----------
    operands : tuple of list of Tensor
        The parameters, their first slots, and so on; slots are laid out as their parameters are.
    """

    def __init__(self, operands: tuple[list[Any], ...]) -> None:
        self._given, self._backend = operands, backend_of(operands[0])
        self._orders = [_order_in_memory(parameter) for parameter in operands[0]]
        self._operands = tuple(map(self._in_order, operands))
        parameters, *slots = self._operands
        self._whole = DeviceRule(self._operands)
        self._of_slots = DeviceRule(tuple(slots)) if slots else None
        self._down = DeviceRule((parameters,))

    def dense(
        self, update: RuleUpdate, scale: float, grads: list[Any], rate: float | None
    ) -> Callable[[], None]:
        """Check a step; return the function that queues it.

        With a rate, the parameters then take a gradient descent step along the rule's variables.
        """
        grads = [_contiguous(grad) for grad in self._in_order(grads)]
        if rate is None or self._of_slots is None:
            return partial(self._queue, [self._whole.launch(update, scale, grads)])
        down = RuleUpdate("gradient_descent", {"alpha": rate})
        first = self._of_slots.launch(update, scale, grads)
        return partial(self._queue, [first, self._down.launch(down, 1.0, self._operands[1])])

    def rows(self, update: RuleUpdate, scale: float, slices: IndexedSlices) -> Callable[[], None]:
        """Check a step of some rows of a parameter; return the function that queues it."""
        arrays = tuple(column[0] for column in self._given)
        part: Any = SparseUpdate(arrays, 0, None, Workspace(), True)  # type: ignore[arg-type]
        updates = self._backend.checked_updates([part], [update.step(scale, lazy=True)], [slices])
        return partial(self._backend.run_clipped, updates)

    def _in_order(self, tensors: list[Any]) -> list[Any]:
        """Return tensors with their axes in the order of their parameters' memory."""
        each = zip(tensors, self._orders, strict=True)
        return [tensor if order is None else tensor.permute(order) for tensor, order in each]

    def _queue(self, steps: list[Launch | list[Any]]) -> None:
        for step in steps:
            if isinstance(step, Launch):
                carry_out([step])
                step.release()
            else:
                self._backend.run_clipped(step)


def _order_in_memory(tensor: Any) -> list[int] | None:
    """Return the order of axes in which a tensor is contiguous, None if it is as it stands."""
    if tensor.is_contiguous():
        return None
    return sorted(range(tensor.dim()), key=tensor.stride, reverse=True)


def _contiguous(grad: Any) -> Any:
    """Return a gradient, or a copy if its elements are not adjacent."""
    return grad if grad.is_contiguous() else grad.contiguous()
