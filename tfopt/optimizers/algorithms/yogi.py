"""Yogi."""

from __future__ import annotations

import math
from typing import Unpack

from tfopt.errors import InvalidArgumentError
from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.options import LearningRateLike, OptimizerOptions
from tfopt.optimizers.state.hyperparameters import Hyper
from tfopt.optimizers.step.deferred_rows import DecayBound, quotient
from tfopt.updates.rule_steps import RuleUpdate

__all__ = ["Yogi"]


class Yogi(RuleOptimizer):
    """Yogi: Adam whose mean square grows and shrinks by the squared gradient, at most.

    Parameters
    ----------
    learning_rate : float, LearningRateSchedule or callable, default 0.01
    beta_1 : float, default 0.9
        Decay of the mean gradient, in [0, 1).
    beta_2 : float, default 0.999
        Decay of the mean squared gradient, in [0, 1].
    epsilon : float, default 0.001
        Added to the square root, as in `Adam`.
    initial_accumulator_value : float, default 1e-6
        The mean square before the first step.
    name : str, default "Yogi"
    **kwargs
        {decays}
        {sparse_rows}
        {elementwise}

    Notes
    -----
    Slots: ``m``, ``v``. Where gradients become small, Adam's mean square decays exponentially;
    Yogi's decreases by the squared gradients alone, so steps do not grow quickly. As in
    TensorFlow Addons, the learning rate is corrected for the start of the means, which the paper
    does not do. A sparse gradient moves only its rows.

    References
    ----------
    Zaheer, Reddi, Sachan, Kale, Kumar: Adaptive Methods for Nonconvex Optimization, NeurIPS 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.optimizers import Yogi
    >>> w = np.array([1.0, 2.0, 3.0])
    >>> opt = Yogi(learning_rate=0.1)
    >>> int(opt.apply_gradients([(np.array([0.1, -0.2, 0.3]), w)]))
    1
    >>> w.round(4)
    array([0.9267, 2.0854, 2.91  ])
    """

    beta_1 = Hyper(0, below=True)
    beta_2 = Hyper(0, 1)
    epsilon = Hyper(0)
    initial_accumulator_value = Hyper(0)

    def __init__(
        self,
        learning_rate: LearningRateLike = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-3,
        initial_accumulator_value: float = 1e-6,
        name: str = "Yogi",
        **kwargs: Unpack[OptimizerOptions],
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.initial_accumulator_value = initial_accumulator_value

    def _check_settings(self) -> None:
        super()._check_settings()
        if vars(self).get("epsilon") == vars(self).get("initial_accumulator_value") == 0:
            raise InvalidArgumentError(
                "epsilon and initial_accumulator_value must not both be 0: steps divide by them"
            )

    def _slot_values(self) -> dict[str, float]:
        return {"m": 0.0, "v": self.initial_accumulator_value}

    def _update(self, t: int, lr: float) -> RuleUpdate:
        hypers = {
            "beta1_power": self.beta_1**t,
            "beta2_power": self.beta_2**t,
            "lr": lr,
            "beta1": self.beta_1,
            "beta2": self.beta_2,
            "epsilon": self.epsilon,
        }
        return RuleUpdate("yogi", hypers)

    def _decay_bound(self, update: RuleUpdate) -> DecayBound:
        h = update.hypers
        first = quotient(h["lr"] * math.sqrt(1 - h["beta2_power"]), 1 - h["beta1_power"])
        return DecayBound(first, h["beta1"])
