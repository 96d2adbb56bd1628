"""Adam."""

from __future__ import annotations

import math
from typing import Any, Unpack

from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.options import LearningRateLike, OptimizerOptions
from tfopt.optimizers.settings import Setting, flag
from tfopt.optimizers.state.hyperparameters import Hyper
from tfopt.optimizers.state.restoration import Restoration
from tfopt.optimizers.step.deferred_rows import DecayBound, quotient
from tfopt.updates.rule_steps import RuleUpdate

__all__ = ["Adam"]


class Adam(RuleOptimizer):
    """Adam: step by the mean gradient over the root of its mean square.

    Parameters
    ----------
    learning_rate : float, LearningRateSchedule or callable, default 0.001
    beta_1 : float, default 0.9
        Decay of the mean gradient, in [0, 1).
    beta_2 : float, default 0.999
        Decay of the mean squared gradient, in [0, 1].
    epsilon : float, default 1e-7
        Added to the square root: the paper's "epsilon hat". 0 and None select the default, as in
        TensorFlow.
    amsgrad : bool, default False
        Use the largest mean square so far (AMSGrad).
    name : str, default "Adam"
    **kwargs
        {decays}
        {sparse}
        {elementwise}

    Notes
    -----
    Slots: ``m``, ``v`` and, with `amsgrad`, ``vhat``. A sparse gradient steps all rows, as in
    TensorFlow: the means of rows without a gradient decay, and these rows move.

    References
    ----------
    Kingma, Ba: Adam: A Method for Stochastic Optimization, ICLR 2015. Reddi, Kale, Kumar: On the
    Convergence of Adam and Beyond, ICLR 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.optimizers import Adam
    >>> w = np.array([1.0, 2.0, 3.0])
    >>> opt = Adam(learning_rate=0.1)
    >>> int(opt.apply_gradients([(np.array([0.1, -0.2, 0.3]), w)]))
    1
    >>> w.round(4)
    array([0.9, 2.1, 2.9])
    """

    beta_1 = Hyper(0, below=True)
    beta_2 = Hyper(0, 1)
    epsilon = Hyper(above=True, exact=True, instead=1e-7)
    amsgrad = Setting(flag)

    def __init__(
        self,
        learning_rate: LearningRateLike = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float | None = 1e-7,
        amsgrad: bool = False,
        name: str = "Adam",
        **kwargs: Unpack[OptimizerOptions],
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.amsgrad = amsgrad

    def _slot_values(self) -> dict[str, float]:
        slots = ("m", "v", "vhat") if self.amsgrad else ("m", "v")
        return dict.fromkeys(slots, 0.0)

    def _update(self, t: int, lr: float) -> RuleUpdate:
        hypers = {
            "beta1_power": self.beta_1**t,
            "beta2_power": self.beta_2**t,
            "lr": lr,
            "beta1": self.beta_1,
            "beta2": self.beta_2,
            "epsilon": self.epsilon,
        }
        rule = "adam_with_amsgrad" if self.amsgrad else "adam"
        return RuleUpdate(rule, hypers, {"use_nesterov": False}, rows=f"keras_{rule}")

    def _decay_bound(self, update: RuleUpdate) -> DecayBound:
        h = update.hypers
        first = quotient(h["lr"] * math.sqrt(1 - h["beta2_power"]), 1 - h["beta1_power"])
        return DecayBound(first, quotient(h["beta1"], math.sqrt(h["beta2"])))

    def _set_weights(self, restoration: Restoration, weights: Any) -> None:
        ours = len(self._weights)
        if len(weights) == 3 * ((ours - 1) // 2) + 1:  # of an older Adam, always with vhat
            weights = weights[:ours]
        super()._set_weights(restoration, weights)
