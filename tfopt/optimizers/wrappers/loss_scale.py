"""Losses scaled so that gradients of 16 bits do not vanish."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from tfopt.errors import InvalidArgumentError
from tfopt.kernels.commit import Assign, Count
from tfopt.optimizers.base.gradients import as_variable, checked_gradient
from tfopt.optimizers.base.minimize import product, times
from tfopt.optimizers.base.optimizer import Optimizer
from tfopt.optimizers.execution.commit import Commit, Writes
from tfopt.optimizers.execution.route import NotFinite, Route
from tfopt.optimizers.schedules.schedule import refuse_variable
from tfopt.optimizers.wrappers.wrapper import Own, Wrapper
from tfopt.variable import Variable

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
    """Takes gradients of a loss that has been multiplied by a scale, and finds the scale.

    A step with an infinite gradient or a NaN is left out, and the scale halved; after
    `dynamic_growth_steps` steps in a row it is doubled.

    Parameters
    ----------
    optimizer : Optimizer
        Takes the steps; gets the true gradients.
    initial_scale : float, default 32768.0
        Greater than 0.
    dynamic_growth_steps : int, default 2000
        At least 1.
    name : str, default "LossScaleOptimizer"

    Attributes
    ----------
    dynamic_scale : Variable
        The scale, float64; one of the weights.
    step_counter : Variable
        Steps taken since the scale last changed, int64; one of the weights.

    Raises
    ------
    InvalidArgumentError
        If an argument does not fit.

    Notes
    -----
    As Keras 3's. The gradients are divided by the scale as the inner optimizer's step reads them.
    To know that all are finite before anything is written takes one pass of reading; a norm that
    the inner optimizer clips by tells it without one. For variables in the host's memory. Nothing
    keeps the scale from falling below 1, as long as gradients can be divided by it.

    References
    ----------
    Micikevicius et al.: Mixed Precision Training, ICLR 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.optimizers import SGD, LossScaleOptimizer
    >>> w = np.ones(2, np.float32)
    >>> opt = LossScaleOptimizer(SGD(0.5), initial_scale=4.0)
    >>> float(opt.scale_loss(3.0))
    12.0
    >>> _ = opt.apply_gradients([(np.array([4.0, 8.0], np.float32), w)])
    >>> w
    array([0.5, 0. ], dtype=float32)
    >>> _ = opt.apply_gradients([(np.array([4.0, np.inf], np.float32), w)])
    >>> w, float(opt.dynamic_scale), int(opt.iterations)
    (array([0.5, 0. ], dtype=float32), 2.0, 1)
    """

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

    @property
    def _fuses(self) -> bool:
        return False  # the gradients are looked at first

    def _prepared(self, grads: tuple[Any, ...], variables: tuple[Any, ...], route: Route) -> Commit:
        handles = map(as_variable, variables)
        grads = tuple(map(checked_gradient, grads, handles))
        scale = route.scale / float(self.dynamic_scale)
        try:
            commit: Commit = self.optimizer._prepared(
                grads, variables, route._replace(scale=scale, finite=True)
            )
        except NotFinite as found:
            leave_out = self._leaving_out(found.instead)
            if route.finite:
                raise NotFinite(leave_out) from None
            return leave_out
        commit.variables += self._weights[1:]
        if int(self.step_counter) + 1 >= self.dynamic_growth_steps:
            commit.writes += self._changing_scale(2.0)
        else:
            commit.writes.append(Count(self.step_counter.numpy()))
        return commit

    def _leaving_out(self, instead: tuple[Commit, ...]) -> Commit:
        commit = Commit([], self._weights[1:], steps=False)
        for other in instead:
            commit.join(other)
        commit.writes += self._changing_scale(0.5)
        return commit

    def _changing_scale(self, factor: float) -> Writes:
        writes: Writes = [Assign(self.step_counter.numpy(), np.zeros((), np.int64))]
        scale = float(self.dynamic_scale) * factor
        if sys.float_info.min <= scale <= 1 / sys.float_info.min:  # gradients are divided by it
            writes.append(Assign(self.dynamic_scale.numpy(), np.array(scale)))
        return writes

    def _own_config(self) -> dict[str, Any]:
        return {
            "initial_scale": self.initial_scale,
            "dynamic_growth_steps": self.dynamic_growth_steps,
        }
