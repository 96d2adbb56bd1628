"""Loss scaling, which keeps 16-bit gradients from underflowing."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

import numpy as np

from tfopt.kernels.update.commit import Count
from tfopt.optimizers.base.minimize import product, times
from tfopt.optimizers.base.optimizer_base import OptimizerBase
from tfopt.optimizers.settings import Setting, positive, whole
from tfopt.optimizers.state.stateful import COUNTED
from tfopt.optimizers.step.known_norms import KnownNorms
from tfopt.optimizers.step.prepared_step import PreparedStep
from tfopt.optimizers.step.request import Capabilities, NotFinite, StepRequest
from tfopt.optimizers.step.step import Step, StepAround
from tfopt.optimizers.wrappers.wrapper import Wrapper
from tfopt.variable import Variable

__all__ = ["LossScaleOptimizer"]


_SCALES = (sys.float_info.min, 1 / sys.float_info.min)  # gradients are divided by them


class LossScaleOptimizer(Wrapper):
    """Takes gradients of a loss multiplied by a scale, which is adjusted dynamically.

    A step with an infinite or NaN gradient is skipped, and the scale is halved; after
    `dynamic_growth_steps` consecutive steps it is doubled.

    Parameters
    ----------
    optimizer : Optimizer
        Takes the steps, with unscaled gradients.
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
        The number of steps since the scale last changed, int64; one of the weights.

    Raises
    ------
    InvalidArgumentError
        If an argument is invalid.

    Notes
    -----
    Follows Keras 3. The gradients are divided by the scale while the inner optimizer's step reads
    them. Checking that all are finite before anything is written takes one additional pass over
    them, unless the inner optimizer clips by norm, which shows it. On a GPU it always takes that
    pass, and the step waits for its result, since the host counts steps: all work queued before has
    then been done. The scale may fall below 1, as long as gradients can be divided by it.

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

    initial_scale = Setting(lambda name, value: float(positive(name, value)), once=True)
    dynamic_growth_steps = Setting(whole(1))
    step_counter = Setting[Variable](once=True)
    dynamic_scale = Setting[Variable](once=True)
    _weight_bounds: ClassVar[dict[str, tuple[float, float]]] = {
        "step_counter": COUNTED,
        "dynamic_scale": _SCALES,
    }

    def __init__(
        self,
        optimizer: OptimizerBase,
        initial_scale: float = 2.0**15,
        dynamic_growth_steps: int = 2000,
        name: str = "LossScaleOptimizer",
    ) -> None:
        super().__init__(optimizer, name)
        self.initial_scale = initial_scale
        self.dynamic_growth_steps = dynamic_growth_steps
        self.step_counter = self.add_weight("step_counter", np.zeros((), np.int64))
        self.dynamic_scale = self.add_weight("dynamic_scale", self.initial_scale)

    def scale_loss(self, loss: Any) -> Any:
        """Return a loss, or the upstream gradient of its outputs, times the scale."""
        return times(loss, product(self.loss_scales(None)))

    def loss_scales(self, var: Any) -> tuple[Variable, ...]:
        """Return the scale and those of the inner optimizer."""
        return (self.dynamic_scale, *super().loss_scales(var))

    @property
    def capabilities(self) -> Capabilities:
        """Those of the inner optimizer, except fusing: gradients must exist to be checked."""
        return self.optimizer.capabilities._replace(fuses=False, fuses_on_device=False)

    def _bind(self, request: StepRequest) -> Step:
        return _ScaledStep(self, request)

    def _change_scale(self, step: PreparedStep, factor: float) -> None:
        step.assign(self.step_counter, 0)
        scale = float(self.dynamic_scale) * factor
        if _SCALES[0] <= scale <= _SCALES[1]:
            step.assign(self.dynamic_scale, scale)


class _ScaledStep(StepAround):
    """A step with gradients divided by the scale, and the update of the scale."""

    def __init__(self, wrapper: LossScaleOptimizer, request: StepRequest) -> None:
        self._wrapper, self._finite = wrapper, request.finite
        self._scale = wrapper.dynamic_scale.numpy()
        self._count = Count(wrapper.step_counter.numpy())
        super().__init__(wrapper.optimizer.bind(request.replace(finite=True)))

    def prepare(
        self, grads: list[Any], scale: float, known: KnownNorms | None = None
    ) -> PreparedStep:
        """Check a step and return it; if a gradient is not finite, one that halves the scale."""
        wrapper = self._wrapper
        try:
            step = self._inner.prepare(grads, scale / float(self._scale), known)
        except NotFinite as error:
            skipped = PreparedStep([], counts=False)
            for other in error.instead:
                skipped.join(other)
            wrapper._change_scale(skipped, 0.5)
            if self._finite:
                raise NotFinite(skipped) from None
            return skipped
        if self._count.next() >= wrapper.dynamic_growth_steps:
            wrapper._change_scale(step, 2.0)
        else:
            step.writes.append(self._count)
            step.variables.append(wrapper.step_counter)
        return step
