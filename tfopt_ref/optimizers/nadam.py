"""Nadam."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt_ref.errors import InvalidArgumentError
from tfopt_ref.optimizers.hyper import Hyper
from tfopt_ref.optimizers.rule_optimizer import RuleOptimizer, Update
from tfopt_ref.optimizers.schedules import LearningRateSchedule
from tfopt_ref.training_ops import apply_nadam
from tfopt_ref.variable import Variable

__all__ = ["Nadam"]

_C = float(np.float32(0.96))  # TensorFlow's constant


class Nadam(RuleOptimizer):
    """Adam by the mean gradient of the step to come (Dozat 2016)."""

    beta_1 = Hyper(0, 1)
    beta_2 = Hyper(0, 1)
    epsilon = Hyper(0, exact=True)
    schedule_decay = Hyper(0, exact=True)

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float | None = 1e-7,
        name: str = "Nadam",
        schedule_decay: float = 0.004,
        *,
        decay: float | None = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(learning_rate, LearningRateSchedule):
            raise InvalidArgumentError("Nadam does not take a schedule as its learning rate")
        super().__init__(name, learning_rate, **kwargs)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon or 1e-7
        self.schedule_decay = schedule_decay if decay is None else decay
        self.momentum_cache = Variable(np.ones(()), name=f"{name}/momentum_cache")
        self._weights.append(self.momentum_cache)

    def _slot_values(self) -> dict[str, float]:
        return {"m": 0.0, "v": 0.0}

    def _momentum(self, t: int) -> float:
        number: float = self.beta_1 * (1 - 0.5 * _C ** (self.schedule_decay * t))
        return number

    def _update(self, t: int, lr: float) -> Update:
        mu, mu_next = self._momentum(t), self._momentum(t + 1)
        product = float(self.momentum_cache) * mu
        hypers = {
            "lr": lr,
            "beta1": self.beta_1,
            "beta2": self.beta_2,
            "beta2_power": self.beta_2**t,
            "mu": mu,
            "mu_next": mu_next,
            "mu_product": product,
            "mu_product_next": product * mu_next,
            "epsilon": self.epsilon,
        }
        return apply_nadam, hypers

    def _stepped(self, hypers: dict[str, Any]) -> None:
        self.momentum_cache.assign(hypers["mu_product"])

    def get_config(self) -> dict[str, Any]:
        own = {"beta_1": self.beta_1, "beta_2": self.beta_2, "epsilon": self.epsilon}
        return {**super().get_config(), "decay": self.schedule_decay, **own}
