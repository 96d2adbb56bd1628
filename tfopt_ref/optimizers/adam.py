"""Adam."""

from __future__ import annotations

from typing import Any

from tfopt_ref.optimizers.hyper import Hyper
from tfopt_ref.optimizers.rule_optimizer import RuleOptimizer, Update
from tfopt_ref.training_op import TrainingOp
from tfopt_ref.training_ops import (
    apply_adam,
    apply_adam_with_amsgrad,
    apply_keras_adam,
    apply_keras_adam_with_amsgrad,
)

__all__ = ["Adam"]


class Adam(RuleOptimizer):
    """Steps by the mean gradient over the root of its mean square (Kingma, Ba 2015)."""

    beta_1 = Hyper(0, 1)
    beta_2 = Hyper(0, 1)
    epsilon = Hyper(0, exact=True)

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float | None = 1e-7,
        amsgrad: bool = False,
        name: str = "Adam",
        **kwargs: Any,
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon or 1e-7
        self.amsgrad = bool(amsgrad)

    def _slot_values(self) -> dict[str, float]:
        slots = ("m", "v", "vhat") if self.amsgrad else ("m", "v")
        return dict.fromkeys(slots, 0.0)

    def _update(self, t: int, lr: float) -> Update:
        hypers = {
            "beta1_power": self.beta_1**t,
            "beta2_power": self.beta_2**t,
            "lr": lr,
            "beta1": self.beta_1,
            "beta2": self.beta_2,
            "epsilon": self.epsilon,
        }
        return (apply_adam_with_amsgrad if self.amsgrad else apply_adam), hypers

    def _sparse_op(self) -> TrainingOp:
        return apply_keras_adam_with_amsgrad if self.amsgrad else apply_keras_adam

    def set_weights(self, weights: Any) -> None:
        ours = len(self._weights)
        if len(weights) == 3 * ((ours - 1) // 2) + 1:  # an older Adam's, which always has vhat
            weights = weights[:ours]
        super().set_weights(weights)

    def get_config(self) -> dict[str, Any]:
        own = {
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "amsgrad": self.amsgrad,
        }
        return {**super().get_config(), **own}
