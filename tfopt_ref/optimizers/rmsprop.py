"""RMSprop."""

from __future__ import annotations

from typing import Any

from tfopt_ref.optimizers.hyper import Hyper
from tfopt_ref.optimizers.rule_optimizer import RuleOptimizer, Update
from tfopt_ref.optimizers.weights import with_iterations
from tfopt_ref.training_ops import (
    apply_centered_rms_prop,
    apply_keras_centered_rms_prop,
    apply_keras_rms_prop,
    apply_rms_prop,
)

__all__ = ["RMSprop"]


class RMSprop(RuleOptimizer):
    """Divides by the root of the gradient's mean square (Tieleman, Hinton 2012)."""

    rho = Hyper(0, 1)
    momentum = Hyper(0, 1)
    epsilon = Hyper(0, exact=True)

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: float = 0.9,
        momentum: float = 0.0,
        epsilon: float | None = 1e-7,
        centered: bool = False,
        name: str = "RMSprop",
        **kwargs: Any,
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self.rho = rho
        self.momentum = momentum
        self.epsilon = epsilon or 1e-7
        self.centered = bool(centered)

    def _slot_values(self) -> dict[str, float]:
        momentum = ["momentum"] if self.momentum > 0 else []
        return dict.fromkeys(["rms", *momentum, *(["mg"] if self.centered else [])], 0.0)

    def _op_slots(self) -> tuple[str, ...]:
        momentum = ("momentum",) if self.momentum > 0 else ()
        return (*(("mg",) if self.centered else ()), "rms", *momentum)

    def _update(self, t: int, lr: float) -> Update:
        hypers = {
            "lr": lr,
            "rho": self.rho,
            "momentum": self.momentum,
            "epsilon": self.epsilon,
        }
        if self.momentum > 0:
            return (apply_centered_rms_prop if self.centered else apply_rms_prop), hypers
        del hypers["momentum"]
        return (apply_keras_centered_rms_prop if self.centered else apply_keras_rms_prop), hypers

    def set_weights(self, weights: Any) -> None:
        super().set_weights(with_iterations(self._weights, weights))

    def get_config(self) -> dict[str, Any]:
        own = {
            "rho": self.rho,
            "momentum": self.momentum,
            "epsilon": self.epsilon,
            "centered": self.centered,
        }
        return {**super().get_config(), **own}
