"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Unpack

from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.options import LearningRateLike, OptimizerOptions
from tfopt.optimizers.settings import Setting, flag
from tfopt.optimizers.state.hyperparameters import Hyper
from tfopt.optimizers.step.deferred_rows import DecayBound
from tfopt.updates.rule_steps import RuleUpdate

__all__ = ["SGD"]


class SGD(RuleOptimizer):
    """Stochastic gradient descent, optionally with momentum.

    Parameters
    ----------
    learning_rate : float, default 0.01
    momentum : float, default 0.0
        In [0, 1].
    nesterov : bool, default False
        Use Nesterov momentum. Has no effect without momentum.
    name : str, default "SGD"
    **kwargs
        {decays}
        {sparse}
        {elementwise}

    Notes
    -----
    Slot: ``momentum``, if momentum is used; it accumulates steps, including the learning rate. A
    sparse gradient moves only its rows, and only their momentum decays. Without momentum, rows with
    repeated indices are applied one after another.

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
    nesterov = Setting(flag)

    def __init__(
        self,
        learning_rate: LearningRateLike = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        name: str = "SGD",
        **kwargs: Unpack[OptimizerOptions],
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self.momentum = momentum
        self.nesterov = nesterov

    def _slot_values(self) -> dict[str, float]:
        return {"momentum": 0.0} if self.momentum > 0 else {}

    def _update(self, t: int, lr: float) -> RuleUpdate:
        if self.momentum == 0:
            return RuleUpdate("gradient_descent", {"alpha": lr}, duplicates="sequential")
        return RuleUpdate(
            "keras_momentum",
            {"lr": lr, "momentum": self.momentum},
            {"use_nesterov": self.nesterov},
        )

    def _decay_bound(self, update: RuleUpdate) -> DecayBound:
        return DecayBound(1.0, self.momentum)
