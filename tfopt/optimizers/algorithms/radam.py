"""RAdam."""

from __future__ import annotations

import math
from typing import Unpack

from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.options import LearningRateLike, OptimizerOptions
from tfopt.optimizers.state.hyperparameters import Hyper
from tfopt.optimizers.step.deferred_rows import DecayBound, quotient
from tfopt.updates.rule_steps import RuleUpdate

__all__ = ["RAdam"]


class RAdam(RuleOptimizer):
    """RAdam: Adam that does not divide by the root mean square until that is well estimated.

    Parameters
    ----------
    learning_rate : float, LearningRateSchedule or callable, default 0.001
    beta_1 : float, default 0.9
        Decay of the mean gradient, in [0, 1).
    beta_2 : float, default 0.999
        Decay of the mean squared gradient, in [0, 1].
    epsilon : float, default 1e-7
        Added to the square root, as in `Adam`.
    name : str, default "RAdam"
    **kwargs
        {decays}
        {sparse_rows}
        {elementwise}

    Notes
    -----
    Slots: ``m``, ``v``. While few gradients have been seen (5 with the default `beta_2`), a step is
    the mean gradient times the learning rate; then it is Adam's, times a factor that grows to 1. So
    there is no need for the learning rate to grow in the first steps. As in torch, whose default of
    `epsilon` is 1e-8. A sparse gradient moves only its rows.

    References
    ----------
    Liu et al.: On the Variance of the Adaptive Learning Rate and Beyond, ICLR 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.optimizers import RAdam
    >>> w = np.array([1.0, 2.0, 3.0])
    >>> opt = RAdam(learning_rate=0.1)
    >>> int(opt.apply_gradients([(np.array([0.1, -0.2, 0.3]), w)]))
    1
    >>> w.round(4)
    array([0.99, 2.02, 2.97])
    """

    beta_1 = Hyper(0, below=True)
    beta_2 = Hyper(0, 1)
    epsilon = Hyper(above=True)

    def __init__(
        self,
        learning_rate: LearningRateLike = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        name: str = "RAdam",
        **kwargs: Unpack[OptimizerOptions],
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon

    def _slot_values(self) -> dict[str, float]:
        return {"m": 0.0, "v": 0.0}

    def _update(self, t: int, lr: float) -> RuleUpdate:
        hypers = {
            "beta1_power": self.beta_1**t,
            "lr": lr,
            "beta1": self.beta_1,
            "beta2": self.beta_2,
            "epsilon": self.epsilon,
            "rectifier": self._rectifier(t),
        }
        return RuleUpdate("radam", hypers)

    def _rectifier(self, t: int) -> float:
        """Return the factor of step t, bias correction of the root included; at first 0."""
        power = self.beta_2**t
        if power == 1 or self.beta_2 == 1:
            return 0.0
        most = 2 / (1 - self.beta_2) - 1
        length = most - 2 * t * power / (1 - power)  # of the average that the mean square is
        if length <= 5:
            return 0.0
        variance = (length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)
        return math.sqrt(variance * (1 - power))

    def _decay_bound(self, update: RuleUpdate) -> DecayBound:
        h = update.hypers
        # a step without the root may be so small that it moves nothing, and later ones large
        first = quotient(h["lr"] * h["rectifier"], 1 - h["beta1_power"])
        return DecayBound(first, quotient(h["beta1"], math.sqrt(h["beta2"])))
