"""Losses scaled so that gradients of 16 bits do not vanish."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np

from tfopt_ref.errors import InvalidArgumentError
from tfopt_ref.optimizers.minimizing import product, times
from tfopt_ref.optimizers.optimizer import Commit, NotFinite, Optimizer
from tfopt_ref.optimizers.schedules import refuse_variable
from tfopt_ref.optimizers.wrapper import Own, Wrapper
from tfopt_ref.variable import Variable

__all__ = ["LossScaleOptimizer"]


def _checked_scale(scale: Any) -> float:
    refuse_variable("initial_scale", scale)
    if not 0 < scale < np.inf:
        raise InvalidArgumentError(f"initial_scale must be finite and greater than 0, not {scale}")
    return float(scale)


def _checked_growth(steps: Any) -> int:
    refuse_variable("dynamic_growth_steps", steps)
    if not steps >= 1:
        raise InvalidArgumentError(f"dynamic_growth_steps must be at least 1, not {steps}")
    return int(steps)


class LossScaleOptimizer(Wrapper):
    """Takes gradients of a loss that has been multiplied by a scale, and finds the scale."""

    initial_scale: float = Own(_checked_scale, once=True)  # type: ignore[assignment]
    dynamic_growth_steps: int = Own(_checked_growth)  # type: ignore[assignment]
    step_counter: Variable = Own(once=True)  # type: ignore[assignment]
    dynamic_scale: Variable = Own(once=True)  # type: ignore[assignment]

    def __init__(
        self,
        optimizer: Optimizer,
        initial_scale: float = 2.0**15,
        dynamic_growth_steps: int = 2000,
        name: str = "LossScaleOptimizer",
    ) -> None:
        super().__init__(optimizer, name)
        self.initial_scale = initial_scale
        self.dynamic_growth_steps = dynamic_growth_steps
        self.step_counter = Variable(
            np.zeros((), np.int64), f"{name}/step_counter", trainable=False
        )
        self.dynamic_scale = Variable(
            np.array(self.initial_scale), f"{name}/dynamic_scale", trainable=False
        )
        self._weights += [self.step_counter, self.dynamic_scale]

    def scale_loss(self, loss: Any) -> Any:
        """Return a loss, or its gradient by the last values, times the scale."""
        return times(loss, product(self._scales_of(None)))

    def _scales_of(self, var: Any) -> tuple[Variable, ...]:
        return (self.dynamic_scale, *super()._scales_of(var))

    def _prepared(self, pairs: list[Any], scale: float, aggregates: bool, finite: bool) -> Commit:
        scale = scale / float(self.dynamic_scale)
        try:
            step = self.optimizer._prepared(pairs, scale, aggregates, True)
        except NotFinite as found:
            leave_out = partial(self._leave_out, found.instead)
            if finite:
                raise NotFinite(leave_out) from None
            return leave_out

        def commit() -> None:
            step()
            self.step_counter.assign_add(1)
            if int(self.step_counter) >= self.dynamic_growth_steps:
                self._change_scale(2.0)

        return commit

    def _leave_out(self, instead: tuple[Commit, ...]) -> None:
        for carry_out in instead:
            carry_out()
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
