"""Adadelta."""

from __future__ import annotations

from typing import Any

from tfopt_ref.optimizers.hyper import Hyper
from tfopt_ref.optimizers.rule_optimizer import RuleOptimizer, Update
from tfopt_ref.optimizers.weights import with_iterations
from tfopt_ref.training_ops import apply_adadelta

__all__ = ["Adadelta"]


class Adadelta(RuleOptimizer):
    """Scales steps by the root mean square of past ones (Zeiler 2012)."""

    rho = Hyper(0, 1)
    epsilon = Hyper(0, exact=True)

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: float = 0.95,
        epsilon: float | None = 1e-7,
        name: str = "Adadelta",
        **kwargs: Any,
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self.rho = rho
        self.epsilon = epsilon or 1e-7

    def _slot_values(self) -> dict[str, float]:
        return {"accum_grad": 0.0, "accum_var": 0.0}

    def _update(self, t: int, lr: float) -> Update:
        hypers = {
            "lr": lr,
            "rho": self.rho,
            "epsilon": self.epsilon,
        }
        return apply_adadelta, hypers

    def set_weights(self, weights: Any) -> None:
        super().set_weights(with_iterations(self._weights, weights))

    def get_config(self) -> dict[str, Any]:
        own = {"rho": self.rho, "epsilon": self.epsilon}
        return {**super().get_config(), **own}
