"""Adagrad."""

from __future__ import annotations

from typing import Any, Unpack

from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.options import LearningRateLike, OptimizerOptions
from tfopt.optimizers.state.hyperparameters import Hyper
from tfopt.optimizers.state.restoration import Restoration, with_iterations
from tfopt.optimizers.step.deferred_rows import DecayBound
from tfopt.updates.rule_steps import RuleUpdate

__all__ = ["Adagrad"]


class Adagrad(RuleOptimizer):
    """Adagrad: divide each step by the root of the sum of squared gradients.

    Parameters
    ----------
    learning_rate : float, LearningRateSchedule or callable, default 0.001
    initial_accumulator_value : float, default 0.1
        At least 0.
    epsilon : float, default 1e-7
        Added to the square root. 0 and None select the default, as in TensorFlow.
    name : str, default "Adagrad"
    **kwargs
        {decays}
        {sparse}
        {elementwise}

    Notes
    -----
    Slot: ``accumulator``. A sparse gradient moves only its rows.

    References
    ----------
    Duchi, Hazan, Singer: Adaptive Subgradient Methods, JMLR 12, 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.optimizers import Adagrad
    >>> w = np.array([1.0, 2.0, 3.0])
    >>> opt = Adagrad(learning_rate=0.1)
    >>> int(opt.apply_gradients([(np.array([0.1, -0.2, 0.3]), w)]))
    1
    >>> w.round(4)
    array([0.9698, 2.0535, 2.9312])
    """

    initial_accumulator_value = Hyper(0, exact=True)
    epsilon = Hyper(above=True, exact=True, instead=1e-7)

    def __init__(
        self,
        learning_rate: LearningRateLike = 0.001,
        initial_accumulator_value: float = 0.1,
        epsilon: float | None = 1e-7,
        name: str = "Adagrad",
        **kwargs: Unpack[OptimizerOptions],
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self.initial_accumulator_value = initial_accumulator_value
        self.epsilon = epsilon

    def _slot_values(self) -> dict[str, float]:
        return {"accumulator": self.initial_accumulator_value}

    def _update(self, t: int, lr: float) -> RuleUpdate:
        hypers = {
            "lr": lr,
            "epsilon": self.epsilon,
        }
        return RuleUpdate("adagrad_v2", hypers, {"update_slots": True})

    def _decay_bound(self, update: RuleUpdate) -> DecayBound:
        return DecayBound(0.0, 1.0)

    def _set_weights(self, restoration: Restoration, weights: Any) -> None:
        super()._set_weights(restoration, with_iterations(self._weights, weights))
