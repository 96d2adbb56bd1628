"""ADOPT."""

from __future__ import annotations

from typing import Unpack

from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.options import LearningRateLike, OptimizerOptions
from tfopt.optimizers.state.hyperparameters import Hyper
from tfopt.optimizers.step.deferred_rows import DecayBound
from tfopt.updates.rule_steps import RuleUpdate

__all__ = ["ADOPT"]


class ADOPT(RuleOptimizer):
    """ADOPT: divide each gradient by the root of the mean square before it, then average.

    Parameters
    ----------
    learning_rate : float, LearningRateSchedule or callable, default 0.001
    beta_1 : float, default 0.9
        Decay of the mean gradient, in [0, 1].
    beta_2 : float, default 0.9999
        Decay of the mean squared gradient, in [0, 1].
    epsilon : float, default 1e-6
        The least divisor.
    name : str, default "ADOPT"
    **kwargs
        {decays}
        {sparse_rows}
        {elementwise}

    Notes
    -----
    Slots: ``m``, ``v``. The first step only begins the mean square; in step t quotients are
    clipped to ``(t - 1) ** 0.25`` in magnitude. Unlike Adam, ADOPT converges with any `beta_2`. A
    sparse gradient moves only its rows; the first gradient of a row that the first step lacked is
    divided by `epsilon`, then clipped.

    References
    ----------
    Taniguchi et al.: ADOPT: Modified Adam Can Converge with Any beta_2 with the Optimal Rate,
    NeurIPS 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.optimizers import ADOPT
    >>> w = np.array([1.0, 2.0, 3.0])
    >>> opt = ADOPT(learning_rate=0.1)
    >>> for _ in range(2):
    ...     _ = opt.apply_gradients([(np.array([0.1, -0.2, 0.3]), w)])
    >>> w.round(4)
    array([0.99, 2.01, 2.99])
    """

    beta_1 = Hyper(0, 1)
    beta_2 = Hyper(0, 1)
    epsilon = Hyper(above=True)

    def __init__(
        self,
        learning_rate: LearningRateLike = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.9999,
        epsilon: float = 1e-6,
        name: str = "ADOPT",
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
            "lr": lr,
            "beta1": self.beta_1,
            "beta2": self.beta_2 if t > 1 else 0.0,
            "epsilon": self.epsilon,
            "limit": (t - 1) ** 0.25,
        }
        return RuleUpdate("adopt", hypers)

    def _decay_bound(self, update: RuleUpdate) -> DecayBound:
        return DecayBound(update.hypers["lr"], update.hypers["beta1"])
