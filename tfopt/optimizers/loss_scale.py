"""Losses scaled so that gradients of 16 bits do not vanish."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from tfopt.errors import InvalidArgumentError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.norms import all_finite
from tfopt.optimizers.optimizer import Optimizer
from tfopt.optimizers.pairs import as_variable, checked_gradient
from tfopt.optimizers.route import Commit, NotFinite, Route
from tfopt.optimizers.wrapper import Wrapper
from tfopt.variable import Variable

__all__ = ["LossScaleOptimizer"]


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

    @property
    def _fuses(self) -> bool:
        return False  # the gradients are looked at first

    def _prepared(self, grads: tuple[Any, ...], variables: tuple[Any, ...], route: Route) -> Commit:
        handles = map(as_variable, variables)
        grads = tuple(map(checked_gradient, grads, handles))
        measures = self.optimizer._measures
        if not (measures or _finite(grads)):
            return self._leave_out
        scale = route.scale / float(self.dynamic_scale)
        asked = route._replace(scale=scale, finite=measures)
        try:
            step = self.optimizer._prepared(grads, variables, asked)
        except NotFinite:
            return self._leave_out

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


def _finite(grads: tuple[Any, ...]) -> bool:
    """Return whether no element of gradients is infinite or NaN."""
    arrays = [grad.values if isinstance(grad, IndexedSlices) else grad for grad in grads]
    complex_ones = [array for array in arrays if array.dtype.kind == "c"]
    real = [array for array in arrays if array.dtype.kind != "c"]
    return all_finite(real) and all(np.isfinite(array).all() for array in complex_ones)
