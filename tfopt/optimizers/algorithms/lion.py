"""Lion."""

from __future__ import annotations

from typing import Any

from tfopt.optimizers.base.hyperparameters import Hyper
from tfopt.optimizers.execution.deferred_rows import Reach
from tfopt.optimizers.execution.rule_optimizer import RuleOptimizer
from tfopt.optimizers.execution.rule_steps import Update

__all__ = ["Lion"]


class Lion(RuleOptimizer):
    """Lion: steps of one length in each element, by the sign of a mean gradient.

    Parameters
    ----------
    learning_rate : float, LearningRateSchedule or callable, default 0.001
    beta_1 : float, default 0.9
        Weight of the mean gradient in the direction of a step, in [0, 1].
    beta_2 : float, default 0.99
        Decay of the mean gradient, in [0, 1].
    name : str, default "Lion"
    **kwargs
        `weight_decay`, a number of at least 0: before a step weights are multiplied by ``1 -
        learning_rate * weight_decay``, but for those of `exclude_from_weight_decay`.
        `sparse`: what a step of some rows does to the others. "tensorflow": what it does there;
        "lazy": nothing; "catch_up": what dense steps with a gradient of zero do, once they are
        named, or at `catch_up` or `flush`.
        `decay`, `clipvalue`, `clipnorm`, `global_clipnorm`, `merge`, `gradient_aggregator`,
        `gradient_transformers`, `use_locking`, `compat`, `lr`: as in `Optimizer`.

    Notes
    -----
    Slot: ``m``. A sparse gradient moves only the rows it names.

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
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.99,
        name: str = "Lion",
        **kwargs: Any,
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self.beta_1 = beta_1
        self.beta_2 = beta_2

    def _slot_values(self) -> dict[str, float]:
        return {"m": 0.0}

    def _update(self, t: int, lr: float) -> Update:
        return Update("lion", {"lr": lr, "beta1": self.beta_1, "beta2": self.beta_2})

    def _reach(self, update: Update) -> Reach:
        return Reach(update.hypers["lr"], 1.0)  # the sign stays while anything is left of m

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "beta_1": self.beta_1, "beta_2": self.beta_2}
