"""AdEMAMix."""

from __future__ import annotations

import math
from typing import Unpack

from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.options import LearningRateLike, OptimizerOptions
from tfopt.optimizers.state.hyperparameters import Hyper
from tfopt.updates.rule_steps import RuleUpdate

__all__ = ["AdEMAMix"]


class AdEMAMix(RuleOptimizer):
    """AdEMAMix: Adam with a second mean gradient, which remembers thousands of steps.

    Parameters
    ----------
    learning_rate : float, LearningRateSchedule or callable, default 0.001
    beta_1 : float, default 0.9
        Decay of the mean gradient, in [0, 1).
    beta_2 : float, default 0.999
        Decay of the mean squared gradient, in [0, 1).
    beta_3 : float, default 0.9999
        Decay of the slow mean gradient, in [0, 1].
    alpha : float, default 5.0
        Weight of the slow mean gradient.
    epsilon : float, default 1e-8
        Added to the square root, after the correction of the mean square for its start.
    warmup_steps : int, default 0
        The steps in which `alpha` grows from 0, and `beta_3` from `beta_1`.
    name : str, default "AdEMAMix"
    **kwargs
        {decays}
        `sparse`: what a sparse step does to rows without a gradient. "tensorflow", "lazy":
        nothing.
        {elementwise}

    Notes
    -----
    Slots: ``m``, ``slow``, ``v``. In training from scratch the authors let `warmup_steps` be the
    number of all steps: without it, early gradients can make a run diverge. A sparse gradient
    moves only its rows.

    References
    ----------
    Pagliardini, Ablin, Grangier: The AdEMAMix Optimizer: Better, Faster, Older, ICLR 2025.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.optimizers import AdEMAMix
    >>> w = np.array([1.0, 2.0, 3.0])
    >>> opt = AdEMAMix(learning_rate=0.1)
    >>> int(opt.apply_gradients([(np.array([0.1, -0.2, 0.3]), w)]))
    1
    >>> w.round(4)
    array([0.9, 2.1, 2.9])
    """

    beta_1 = Hyper(0, below=True)
    beta_2 = Hyper(0, below=True)
    beta_3 = Hyper(0, 1)
    alpha = Hyper(0)
    epsilon = Hyper(above=True)
    warmup_steps = Hyper(0)

    def __init__(
        self,
        learning_rate: LearningRateLike = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        beta_3: float = 0.9999,
        alpha: float = 5.0,
        epsilon: float = 1e-8,
        warmup_steps: float = 0,
        name: str = "AdEMAMix",
        **kwargs: Unpack[OptimizerOptions],
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.beta_3 = beta_3
        self.alpha = alpha
        self.epsilon = epsilon
        self.warmup_steps = warmup_steps

    def _slot_values(self) -> dict[str, float]:
        return {"m": 0.0, "slow": 0.0, "v": 0.0}

    def _update(self, t: int, lr: float) -> RuleUpdate:
        share = min(t / self.warmup_steps, 1.0) if self.warmup_steps else 1.0
        hypers = {
            "beta1_power": self.beta_1**t,
            "beta2_power": self.beta_2**t,
            "lr": lr,
            "beta1": self.beta_1,
            "beta2": self.beta_2,
            "beta3": self._slow_decay(share),
            "alpha": self.alpha * share,
            "epsilon": self.epsilon,
        }
        return RuleUpdate("ademamix", hypers)

    def _slow_decay(self, share: float) -> float:
        """Return `beta_3` after a share of the warm-up, in which the half-life grows evenly."""
        if share == 1 or not 0 < self.beta_1 < self.beta_3 < 1:
            decay: float = self.beta_3
            return decay
        begin, end = math.log(self.beta_1), math.log(self.beta_3)
        return math.exp(begin * end / ((1 - share) * end + share * begin))
