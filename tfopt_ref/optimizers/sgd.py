"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from tfopt_ref.optimizers.hyper import Hyper
from tfopt_ref.optimizers.rule_optimizer import RuleOptimizer, Update
from tfopt_ref.training_ops import apply_gradient_descent, apply_keras_momentum

__all__ = ["SGD"]


class SGD(RuleOptimizer):
    """Steps against the gradient, with momentum or without (Sutskever et al. 2013)."""

    momentum = Hyper(0, 1)

    def __init__(
        self,
        learning_rate: float = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        name: str = "SGD",
        **kwargs: Any,
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self.momentum = momentum
        self.nesterov = nesterov

    def _slot_values(self) -> dict[str, float]:
        return {"momentum": 0.0} if self.momentum > 0 else {}

    def _update(self, t: int, lr: float) -> Update:
        if self.momentum == 0:
            return apply_gradient_descent, {"alpha": lr}
        hypers = {"lr": lr, "momentum": self.momentum, "use_nesterov": bool(self.nesterov)}
        return apply_keras_momentum, hypers

    def _duplicates(self) -> str:
        return "sum" if self.momentum > 0 else "sequential"

    def get_config(self) -> dict[str, Any]:
        own = {"momentum": self.momentum, "nesterov": self.nesterov}
        return {**super().get_config(), **own}
