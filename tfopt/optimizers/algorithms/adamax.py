"""Adamax."""

from __future__ import annotations

from typing import Unpack

from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.options import LearningRateLike, OptimizerOptions
from tfopt.optimizers.state.hyperparameters import Hyper
from tfopt.optimizers.step.deferred_rows import DecayBound, quotient
from tfopt.updates.rule_steps import RuleUpdate

__all__ = ["Adamax"]


class Adamax(RuleOptimizer):
    """AdaMax: Adam with the infinity norm, the decaying maximum of the gradient's magnitude.

    Parameters
    ----------
    learning_rate : float, default 0.001
    beta_1 : float, default 0.9
        Decay of the mean gradient, in [0, 1).
    beta_2 : float, default 0.999
        Decay of the largest magnitude, in [0, 1].
    epsilon : float, default 1e-7
        Added to the largest magnitude. 0 and None select the default, as in TensorFlow.
    name : str, default "Adamax"
    **kwargs
        {decays}
        {sparse}
        {elementwise}

    Notes
    -----
    Slots: ``m``, ``v``. A sparse gradient moves only its rows, and only their slots decay. The
    powers of `beta_1` are computed in float64.

    References
    ----------
    Kingma, Ba: Adam: A Method for Stochastic Optimization, ICLR 2015, algorithm 2.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.optimizers import Adamax
    >>> w = np.array([1.0, 2.0, 3.0])
    >>> Adamax(learning_rate=0.1).apply_gradients([(np.array([0.1, -0.2, 0.3]), w)])
    <step 1 of Adamax>
    >>> w.round(4)
    array([0.9, 2.1, 2.9])
    """

    beta_1 = Hyper(0, below=True)
    beta_2 = Hyper(0, 1)
    epsilon = Hyper(above=True, exact=True, instead=1e-7)

    def __init__(
        self,
        learning_rate: LearningRateLike = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float | None = 1e-7,
        name: str = "Adamax",
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
        }
        return RuleUpdate("adamax", hypers)

    def _decay_bound(self, update: RuleUpdate) -> DecayBound:
        h = update.hypers
        return DecayBound(quotient(h["lr"], 1 - h["beta1_power"]), quotient(h["beta1"], h["beta2"]))
