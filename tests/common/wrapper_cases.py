"""Every optimizer around another one: the package's own, and two that users might write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tfopt import IndexedSlices, optimizers
from tfopt.optimizers import PreparedStep, StepRequest, Wrapper

__all__ = ["USERS", "WRAPPERS", "Lookahead", "Skipping"]


class Case(NamedTuple):
    """The cases of a wrapper in general tests."""

    idle: Callable[[Any], Any]  # around an optimizer, doing nothing more than that
    busy: Callable[[Any], Any]  # doing something
    changed: dict[str, tuple[Any, Any]]  # two values of each argument, with other results


def _grouped(inner: Any) -> Any:
    own = optimizers.SGD(0.5, momentum=0.5, use_locking=inner.use_locking)
    return optimizers.ParameterGroups(inner, [("table", own)])


#: The package's.
WRAPPERS = {
    "GradientAccumulation": Case(
        idle=lambda inner: optimizers.GradientAccumulation(inner, 1),
        busy=lambda inner: optimizers.GradientAccumulation(inner, 2),
        changed={"steps": (2, 3), "reduction": ("mean", "sum")},
    ),
    "LossScaleOptimizer": Case(
        idle=lambda inner: optimizers.LossScaleOptimizer(inner, 1.0, 10**9),
        busy=lambda inner: optimizers.LossScaleOptimizer(inner, 4.0, 2),
        changed={"initial_scale": (4.0, 8.0), "dynamic_growth_steps": (2, 5)},
    ),
    "Mirror": Case(
        idle=optimizers.Mirror,
        busy=lambda inner: optimizers.Mirror(inner, "float16"),
        changed={"dtype": ("bfloat16", "float16")},
    ),
    "ParameterGroups": Case(
        idle=lambda inner: optimizers.ParameterGroups(inner, []),
        busy=_grouped,
        changed={"groups": ([], [("Variable", {"learning_rate": 0.5})])},
    ),
    "WeightAverage": Case(
        idle=optimizers.WeightAverage,
        busy=lambda inner: optimizers.WeightAverage(inner, 0.5, 2),
        changed={"momentum": (0.5, 0.25), "overwrite_frequency": (None, 2)},
    ),
}


class Lookahead(Wrapper):
    """k steps forward, one step back: with a slot, and writes after the step."""

    def __init__(
        self, optimizer: Any, period: int = 5, alpha: float = 0.5, name: str = "Lookahead"
    ) -> None:
        super().__init__(optimizer, name)
        self.period, self.alpha = period, alpha

    def prepare(self, request: StepRequest) -> PreparedStep:
        slots = [(self.add_slot(var, "slow", var.numpy()), var) for var in request.handles]
        step = self.optimizer.prepare(request)
        if step.counts and (int(self.iterations) + 1) % self.period == 0:
            for slow, fast in slots:
                step.update("moving_average", slow, fast, momentum=1 - self.alpha)
                step.assign(fast, slow)
        return step


class Skipping(Wrapper):
    """Adds noise and leaves steps of large gradients out: with a weight, and other gradients."""

    def __init__(
        self, optimizer: Any, limit: float = 1e9, spread: float = 0.0, name: str = "Skipping"
    ) -> None:
        super().__init__(optimizer, name)
        self.limit, self.spread = limit, spread
        self._skipped = self.add_weight("skipped", np.zeros((), np.int64))

    def prepare(self, request: StepRequest) -> PreparedStep:
        t = int(self.iterations) + int(self._skipped)

        def noisy(grad: np.ndarray) -> np.ndarray:
            noise = np.sin(np.arange(t, t + grad.size)).reshape(grad.shape)
            return (grad + self.spread * noise).astype(grad.dtype)

        request = request.map(noisy) if self.spread else request.checked()
        arrays = [g.values if isinstance(g, IndexedSlices) else g for g in request.grads]
        if all(np.abs(array).max(initial=0) <= self.limit for array in arrays):
            return self.optimizer.prepare(request)
        step = PreparedStep([], counts=False)
        step.count(self._skipped)
        return step


#: Users'.
USERS = {
    "Lookahead": Case(
        idle=lambda inner: Lookahead(inner, 10**9),
        busy=lambda inner: Lookahead(inner, 2),
        changed={"period": (2, 3), "alpha": (0.5, 0.25)},
    ),
    "Skipping": Case(
        idle=lambda inner: Skipping(inner, np.inf),
        busy=lambda inner: Skipping(inner, 1e3, 0.25),
        changed={"limit": (0.5, 2.0), "spread": (0.0, 0.25)},
    ),
}
