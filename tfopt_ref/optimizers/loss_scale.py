"""Losses scaled so that gradients of 16 bits do not vanish."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from tfopt_ref.errors import InvalidArgumentError
from tfopt_ref.indexed_slices import IndexedSlices
from tfopt_ref.optimizers.optimizer import Commit, Optimizer
from tfopt_ref.optimizers.pairs import as_variable, checked_gradient
from tfopt_ref.optimizers.wrapper import Wrapper
from tfopt_ref.variable import Variable

__all__ = ["LossScaleOptimizer"]


class LossScaleOptimizer(Wrapper):
    """Takes gradients of a loss that has been multiplied by a scale, and finds the scale."""

    def __init__(
        self,
        optimizer: Optimizer,
        initial_scale: float = 2.0**15,
        dynamic_growth_steps: int = 2000,
        name: str = "LossScaleOptimizer",
    ) -> None:
        if not 0 < initial_scale < np.inf:
            raise InvalidArgumentError(
                f"initial_scale must be finite and greater than 0, not {initial_scale}"
            )
        if not dynamic_growth_steps >= 1:
            raise InvalidArgumentError(
                f"dynamic_growth_steps must be at least 1, not {dynamic_growth_steps}"
            )
        super().__init__(optimizer, name)
        self.initial_scale = float(initial_scale)
        self.dynamic_growth_steps = int(dynamic_growth_steps)
        self.step_counter = Variable(
            np.zeros((), np.int64), f"{name}/step_counter", trainable=False
        )
        self.dynamic_scale = Variable(
            np.array(self.initial_scale), f"{name}/dynamic_scale", trainable=False
        )
        self._weights += [self.step_counter, self.dynamic_scale]

    def scale_loss(self, loss: Any) -> Any:
        """Return a loss, or its gradient by the last values, times the scale."""
        return loss * float(self.dynamic_scale)

    def _prepared(self, pairs: list[Any], scale: float, aggregates: bool) -> Commit:
        given = [(checked_gradient(grad, as_variable(var)), var) for grad, var in pairs]
        if not all(_is_finite(grad) for grad, _ in given):
            return self._leave_out
        scale = scale / float(self.dynamic_scale)
        step = self.optimizer._prepared(given, scale, aggregates)

        def commit() -> None:
            step()
            self.step_counter.assign_add(1)
            if int(self.step_counter) >= self.dynamic_growth_steps:
                self._change_scale(2.0)

        return commit

    def _leave_out(self) -> None:
        self._change_scale(0.5)

    def _change_scale(self, factor: float) -> None:
        self.step_counter.assign(0)
        scale = float(self.dynamic_scale) * factor
        if sys.float_info.min <= scale <= 1 / sys.float_info.min:  # gradients are divided by it
            self.dynamic_scale.assign(scale)

    def _own_config(self) -> dict[str, Any]:
        return {
            "initial_scale": self.initial_scale,
            "dynamic_growth_steps": self.dynamic_growth_steps,
        }


def _is_finite(grad: Any) -> bool:
    array = grad.values if isinstance(grad, IndexedSlices) else grad
    return bool(np.isfinite(array).all())
