"""Signum."""

from __future__ import annotations

from typing import Any

from tfopt.core.rule_steps import RuleUpdate
from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.state.hyperparameters import Hyper
from tfopt.optimizers.step.deferred_rows import DecayBound

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
        `weight_decay`, at least 0: before a step the weights are multiplied by ``1 - learning_rate
        * weight_decay``, except those given to `exclude_from_weight_decay`.
        `sparse`: what a sparse step does to rows without a gradient. "tensorflow", "lazy":
        nothing; "catch_up": the same as dense steps with zero gradients, but deferred until the
        row has a gradient again, or until `catch_up` or `flush`.
        `storage`: how slots are stored, such as "bfloat16" or "8bit", or a dict of it.
        `stochastic_rounding`: a seed, for which bfloat16 variables and slots round at random.
        `cautious_weight_decay`: whether weights decay only where the step agrees.
        `decay`, `clipvalue`, `clipnorm`, `global_clipnorm`, `merge`, `gradient_aggregator`,
        `gradient_transformers`, `use_locking`, `compat`, `lr`: as in `Optimizer`.

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
        learning_rate: Any = 0.001,
        momentum: float = 0.9,
        name: str = "Signum",
        **kwargs: Any,
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
