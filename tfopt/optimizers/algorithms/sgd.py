"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from tfopt.optimizers.base.hyperparameters import Hyper
from tfopt.optimizers.execution.deferred_rows import Reach
from tfopt.optimizers.execution.rule_optimizer import RuleOptimizer
from tfopt.optimizers.execution.rule_steps import Update

__all__ = ["SGD"]


class SGD(RuleOptimizer):
    """Steps against the gradient, with momentum or without.

    Parameters
    ----------
    learning_rate : float, default 0.01
    momentum : float, default 0.0
        In [0, 1].
    nesterov : bool, default False
        Look ahead along the momentum. Without momentum it has no effect.
    name : str, default "SGD"
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
    Slot: ``momentum``, if there is momentum; it holds past steps, the learning rate included. A
    sparse gradient moves only the rows it names, and only their momentum decays. Without momentum
    the rows of repeated indices are applied one after another.

    References
    ----------
    Sutskever et al.: On the importance of initialization and momentum in deep learning, ICML 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.optimizers import SGD
    >>> w = np.array([1.0, 2.0])
    >>> opt = SGD(learning_rate=0.5)
    >>> int(opt.apply_gradients([(np.array([1.0, -1.0]), w)]))
    1
    >>> w
    array([0.5, 2.5])
    """

    momentum = Hyper(0, 1)

    def __init__(
        self,
        learning_rate: float = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        name: str = "SGD",
        **kwargs: Any,
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self.momentum = momentum
        self.nesterov = nesterov

    def _slot_values(self) -> dict[str, float]:
        return {"momentum": 0.0} if self.momentum > 0 else {}

    def _update(self, t: int, lr: float) -> Update:
        if self.momentum == 0:
            return Update("gradient_descent", {"alpha": lr}, duplicates="sequential")
        return Update(
            "keras_momentum",
            {"lr": lr, "momentum": self.momentum},
            {"use_nesterov": bool(self.nesterov)},
        )

    def _reach(self, update: Update) -> Reach:
        return Reach(1.0, self.momentum)

    def get_config(self) -> dict[str, Any]:
        own = {"momentum": self.momentum, "nesterov": self.nesterov}
        return {**super().get_config(), **own}
