"""Lion."""

from __future__ import annotations

from typing import Any

from tfopt_ref.optimizers.hyper import Hyper
from tfopt_ref.optimizers.rule_optimizer import RuleOptimizer, Update
from tfopt_ref.training_ops import apply_lion

__all__ = ["Lion"]


class Lion(RuleOptimizer):
    """Steps of one length, by the sign of a mean gradient (Chen et al. 2023)."""

    beta_1 = Hyper(0, 1)
    beta_2 = Hyper(0, 1)

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.99,
        name: str = "Lion",
        **kwargs: Any,
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self.beta_1 = beta_1
        self.beta_2 = beta_2

    def _slot_values(self) -> dict[str, float]:
        return {"m": 0.0}

    def _update(self, t: int, lr: float) -> Update:
        return apply_lion, {"lr": lr, "beta1": self.beta_1, "beta2": self.beta_2}

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "beta_1": self.beta_1, "beta_2": self.beta_2}
