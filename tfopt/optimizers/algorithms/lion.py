"""Lion."""

from __future__ import annotations

from typing import Unpack

from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.options import LearningRateLike, OptimizerOptions
from tfopt.optimizers.state.hyperparameters import Hyper
from tfopt.optimizers.step.deferred_rows import DecayBound
from tfopt.updates.rule_steps import RuleUpdate

__all__ = ["Lion"]


class Lion(RuleOptimizer):
    """Lion: step by the sign of a mean gradient, with the same size in each element.

    Parameters
    ----------
    learning_rate : float, LearningRateSchedule or callable, default 0.001
    beta_1 : float, default 0.9
        Weight of the mean gradient in the direction of a step, in [0, 1].
    beta_2 : float, default 0.99
        Decay of the mean gradient, in [0, 1].
    name : str, default "Lion"
    **kwargs
        {decays}
        {sparse}
        {elementwise}

    Notes
    -----
    Slot: ``m``. A sparse gradient moves only its rows.

    References
    ----------
    Chen et al.: Symbolic Discovery of Optimization Algorithms, NeurIPS 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.optimizers import Lion
    >>> w = np.array([1.0, 2.0, 3.0])
    >>> opt = Lion(learning_rate=0.1)
    >>> int(opt.apply_gradients([(np.array([0.5, -20.0, 0.0]), w)]))
    1
    >>> w
    array([0.9, 2.1, 3. ])
    """

    beta_1 = Hyper(0, 1)
    beta_2 = Hyper(0, 1)

    def __init__(
        self,
        learning_rate: LearningRateLike = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.99,
        name: str = "Lion",
        **kwargs: Unpack[OptimizerOptions],
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self.beta_1 = beta_1
        self.beta_2 = beta_2

    def _slot_values(self) -> dict[str, float]:
        return {"m": 0.0}

    def _update(self, t: int, lr: float) -> RuleUpdate:
        return RuleUpdate("lion", {"lr": lr, "beta1": self.beta_1, "beta2": self.beta_2})

    def _decay_bound(self, update: RuleUpdate) -> DecayBound:
        # the sign does not change until m has decayed to 0
        return DecayBound(update.hypers["lr"], 1.0)
