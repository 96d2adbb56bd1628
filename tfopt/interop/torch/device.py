"""The part of a torch optimizer's step whose parameters are on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfopt.core.backends import backend_of
from tfopt.core.workspace import Workspace
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.update.commit import Launch, carry_out
from tfopt.updates.device_rule import DeviceRule, DeviceStep
from tfopt.updates.rule_steps import RuleUpdate, SparseUpdate

__all__ = ["DevicePart", "Queued"]

#: Launches, and what is called once they are carried out.
Queued = tuple[list[Launch], Callable[[], object]]


class DevicePart:
    """Parameters on one GPU that take their steps together.

    Whole parameters take them in the order of their memory, such as channels last.

    Parameters
    ----------
    operands : tuple of list of Tensor
        The parameters, their first slots, and so on; slots are laid out as their parameters are.
    """

    def __init__(self, operands: tuple[list[Any], ...]) -> None:
        self._backend = backend_of(operands[0])
        self._orders = [_order_in_memory(parameter) for parameter in operands[0]]
        self._operands = tuple(map(self._in_order, operands))
        first = tuple(column[0] for column in operands)
        self._rows = DeviceStep([SparseUpdate(first, 0, None, Workspace(), True)], "lazy")  # type: ignore[arg-type]
        parameters, *slots = self._operands
        self._whole = DeviceRule(self._operands)
        self._of_slots = DeviceRule(tuple(slots)) if slots else None
        self._down = DeviceRule((parameters,))

    def dense(
        self, update: RuleUpdate, scale: float, grads: list[Any], rate: float | None
    ) -> Queued:
        """Check a step and return it.

        With a rate, the parameters then take a gradient descent step along the rule's variables.
        """
        grads = [_contiguous(grad) for grad in self._in_order(grads)]
        if rate is None or self._of_slots is None:
            return self._queued(self._whole.launch(update, scale, grads))
        down = RuleUpdate("gradient_descent", {"alpha": rate})
        first = self._of_slots.launch(update, scale, grads)
        return self._queued(first, self._down.launch(down, 1.0, self._operands[1]))

    def rows(self, update: RuleUpdate, scale: float, slices: IndexedSlices) -> Queued:
        """Check a step of some rows of a parameter and return it."""
        self._rows.release()
        return self._queued(self._rows.launch(update, scale, [slices]))

    def _in_order(self, tensors: list[Any]) -> list[Any]:
        """Return tensors with their axes in the order of their parameters' memory."""
        each = zip(tensors, self._orders, strict=True)
        return [tensor if order is None else tensor.permute(order) for tensor, order in each]

    def _queued(self, *steps: Launch | list[Any]) -> Queued:
        launches = [step for step in steps if isinstance(step, Launch)]
        bound = len(launches) == len(steps)

        def complete() -> None:
            for step in steps:
                if not isinstance(step, Launch):
                    self._backend.run_clipped(step)
                    continue
                if not bound:
                    carry_out([step])
                step.release()

        return launches if bound else [], complete


def _order_in_memory(tensor: Any) -> list[int] | None:
    """Return the order of axes in which a tensor is contiguous, None if it is as it stands."""
    if tensor.is_contiguous():
        return None
    return sorted(range(tensor.dim()), key=tensor.stride, reverse=True)


def _contiguous(grad: Any) -> Any:
    """Return a gradient, or a copy if its elements are not adjacent."""
    return grad if grad.is_contiguous() else grad.contiguous()
