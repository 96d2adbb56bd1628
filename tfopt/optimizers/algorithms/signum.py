"""Signum."""

from __future__ import annotations

from typing import Unpack

from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.options import LearningRateLike, OptimizerOptions
from tfopt.optimizers.state.hyperparameters import Hyper
from tfopt.optimizers.step.deferred_rows import DecayBound
from tfopt.updates.rule_steps import RuleUpdate

__all__ = ["Signum"]


class Signum(RuleOptimizer):
    """Signum: step by the sign of the mean gradient, with the same size in each element.

    Parameters
    ----------
    learning_rate : float, LearningRateSchedule or callable, default 0.001
    momentum : float, default 0.9
        Decay of the mean gradient, in [0, 1]; 0 selects signSGD.
    name : str, default "Signum"
    **kwargs
        {decays}
        {sparse_rows}
        {elementwise}

    Notes
    -----
    Slot: ``m``. The same as Lion with both decays equal, so a step uses the rule ``lion``. A sparse
    gradient moves only its rows.

    References
    ----------
    Bernstein, Wang, Azizzadenesheli, Anandkumar: signSGD: Compressed Optimisation for Non-Convex
    Problems, ICML 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.optimizers import Signum
    >>> w = np.array([1.0, 2.0, 3.0])
    >>> opt = Signum(learning_rate=0.1)
    >>> int(opt.apply_gradients([(np.array([0.1, -0.2, 0.3]), w)]))
    1
    >>> w.round(4)
    array([0.9, 2.1, 2.9])
    """

    momentum = Hyper(0, 1)

    def __init__(
        self,
        learning_rate: LearningRateLike = 0.001,
        momentum: float = 0.9,
        name: str = "Signum",
        **kwargs: Unpack[OptimizerOptions],
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self.momentum = momentum

    def _slot_values(self) -> dict[str, float]:
        return {"m": 0.0}

    def _update(self, t: int, lr: float) -> RuleUpdate:
        return RuleUpdate("lion", {"lr": lr, "beta1": self.momentum, "beta2": self.momentum})

    def _decay_bound(self, update: RuleUpdate) -> DecayBound:
        # the sign does not change until m has decayed to 0
        return DecayBound(update.hypers["lr"], 1.0)
