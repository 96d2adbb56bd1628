"""Adamax."""

from __future__ import annotations

from typing import Any

from tfopt_ref.optimizers.hyper import Hyper
from tfopt_ref.optimizers.rule_optimizer import RuleOptimizer, Update
from tfopt_ref.training_ops import apply_adamax

__all__ = ["Adamax"]


class Adamax(RuleOptimizer):
    """Adam with the infinity norm (Kingma, Ba 2015, algorithm 2)."""

    beta_1 = Hyper(0, 1)
    beta_2 = Hyper(0, 1)
    epsilon = Hyper(0, exact=True)

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float | None = 1e-7,
        name: str = "Adamax",
        **kwargs: Any,
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon or 1e-7

    def _slot_values(self) -> dict[str, float]:
        return {"m": 0.0, "v": 0.0}

    def _update(self, t: int, lr: float) -> Update:
        return apply_adamax, {
            "beta1_power": self.beta_1**t,
            "lr": lr,
            "beta1": self.beta_1,
            "beta2": self.beta_2,
            "epsilon": self.epsilon,
        }

    def get_config(self) -> dict[str, Any]:
        own = {"beta_1": self.beta_1, "beta_2": self.beta_2, "epsilon": self.epsilon}
        return {**super().get_config(), **own}
