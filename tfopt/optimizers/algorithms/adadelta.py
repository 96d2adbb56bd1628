"""Adadelta."""

from __future__ import annotations

from typing import Any, Unpack

from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.options import LearningRateLike, OptimizerOptions
from tfopt.optimizers.state.hyperparameters import Hyper
from tfopt.optimizers.state.restoration import Restoration, with_iterations
from tfopt.optimizers.step.deferred_rows import DecayBound
from tfopt.updates.rule_steps import RuleUpdate

__all__ = ["Adadelta"]


class Adadelta(RuleOptimizer):
    """Adadelta: scale each step by the root mean square of past steps.

    Parameters
    ----------
    learning_rate : float, LearningRateSchedule or callable, default 0.001
        The paper has no learning rate, which corresponds to 1.
    rho : float, default 0.95
        Decay of the mean squares, in [0, 1].
    epsilon : float, default 1e-7
        Added to the mean squares. 0 and None select the default, as in TensorFlow.
    name : str, default "Adadelta"
    **kwargs
        {decays}
        {sparse}
        {elementwise}

    Notes
    -----
    Slots: ``accum_grad`` and ``accum_var``, the mean squares of gradients and of steps. A sparse
    gradient moves only its rows, and only their slots decay.

    References
    ----------
    Zeiler: ADADELTA: An Adaptive Learning Rate Method, 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.optimizers import Adadelta
    >>> w = np.array([1.0, 2.0, 3.0])
    >>> opt = Adadelta(learning_rate=0.1)
    >>> int(opt.apply_gradients([(np.array([0.1, -0.2, 0.3]), w)]))
    1
    >>> w.round(4)
    array([0.9999, 2.0001, 2.9999])
    """

    rho = Hyper(0, 1)
    epsilon = Hyper(above=True, exact=True, instead=1e-7)

    def __init__(
        self,
        learning_rate: LearningRateLike = 0.001,
        rho: float = 0.95,
        epsilon: float | None = 1e-7,
        name: str = "Adadelta",
        **kwargs: Unpack[OptimizerOptions],
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self.rho = rho
        self.epsilon = epsilon

    def _slot_values(self) -> dict[str, float]:
        return {"accum_grad": 0.0, "accum_var": 0.0}

    def _update(self, t: int, lr: float) -> RuleUpdate:
        hypers = {
            "lr": lr,
            "rho": self.rho,
            "epsilon": self.epsilon,
        }
        return RuleUpdate("adadelta", hypers)

    def _decay_bound(self, update: RuleUpdate) -> DecayBound:
        return DecayBound(0.0, 1.0)

    def _set_weights(self, restoration: Restoration, weights: Any) -> None:
        super()._set_weights(restoration, with_iterations(self._weights, weights))
