"""Adagrad."""

from __future__ import annotations

from typing import Any

from tfopt_ref.optimizers.hyper import Hyper
from tfopt_ref.optimizers.rule_optimizer import RuleOptimizer, Update
from tfopt_ref.optimizers.weights import with_iterations
from tfopt_ref.training_ops import apply_adagrad_v2

__all__ = ["Adagrad"]


class Adagrad(RuleOptimizer):
    """Divides by the root of the sum of squared gradients (Duchi et al. 2011)."""

    initial_accumulator_value = Hyper(0, exact=True)
    epsilon = Hyper(0, exact=True)

    def __init__(
        self,
        learning_rate: Any = 0.001,
        initial_accumulator_value: float = 0.1,
        epsilon: float | None = 1e-7,
        name: str = "Adagrad",
        **kwargs: Any,
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self.initial_accumulator_value = initial_accumulator_value
        self.epsilon = epsilon or 1e-7

    def _slot_values(self) -> dict[str, float]:
        return {"accumulator": self.initial_accumulator_value}

    def _update(self, t: int, lr: float) -> Update:
        hypers = {
            "lr": lr,
            "epsilon": self.epsilon,
        }
        return apply_adagrad_v2, hypers

    def set_weights(self, weights: Any) -> None:
        super().set_weights(with_iterations(self._weights, weights))

    def get_config(self) -> dict[str, Any]:
        own = {
            "initial_accumulator_value": self.initial_accumulator_value,
            "epsilon": self.epsilon,
        }
        return {**super().get_config(), **own}
