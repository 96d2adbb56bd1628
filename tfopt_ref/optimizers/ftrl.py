"""Follow the regularized leader."""

from __future__ import annotations

from typing import Any

from tfopt_ref.optimizers.hyper import Hyper, LearningRate
from tfopt_ref.optimizers.rule_optimizer import RuleOptimizer, Update
from tfopt_ref.training_ops import apply_ftrl, apply_ftrl_v2
from tfopt_ref.variable import Variable

__all__ = ["Ftrl"]


class Ftrl(RuleOptimizer):
    """FTRL-Proximal (McMahan et al. 2013)."""

    learning_rate = LearningRate(0, above=True)
    _can_decay = False
    _catches_up = False  # a step without a gradient is none that only lets slots decay

    learning_rate_power = Hyper(high=0)
    initial_accumulator_value = Hyper(0, exact=True)
    l1_regularization_strength = Hyper(0)
    l2_regularization_strength = Hyper(0)
    l2_shrinkage_regularization_strength = Hyper(0)
    beta = Hyper(0)

    def __init__(
        self,
        learning_rate: float = 0.001,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        name: str = "Ftrl",
        l2_shrinkage_regularization_strength: float = 0.0,
        beta: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self.learning_rate_power = learning_rate_power
        self.initial_accumulator_value = initial_accumulator_value
        self.l1_regularization_strength = l1_regularization_strength
        self.l2_regularization_strength = l2_regularization_strength
        self.l2_shrinkage_regularization_strength = l2_shrinkage_regularization_strength
        self.beta = beta

    def _slot_values(self) -> dict[str, float]:
        return {"accumulator": self.initial_accumulator_value, "linear": 0.0}

    def _create_slots(self, variables: list[Variable]) -> None:
        for variable in variables:  # one after the other, unlike other classes
            super()._create_slots([variable])

    def _update(self, t: int, lr: float) -> Update:
        hypers = {
            "lr": lr,
            "l1": self.l1_regularization_strength,
            "l2": self.l2_regularization_strength + self.beta / (2 * lr),
            "lr_power": self.learning_rate_power,
        }
        shrinkage = self.l2_shrinkage_regularization_strength
        if shrinkage > 0:
            return apply_ftrl_v2, {**hypers, "l2_shrinkage": shrinkage}
        return apply_ftrl, hypers

    def get_config(self) -> dict[str, Any]:
        own = {
            "initial_accumulator_value": self.initial_accumulator_value,
            "learning_rate_power": self.learning_rate_power,
            "l1_regularization_strength": self.l1_regularization_strength,
            "l2_regularization_strength": self.l2_regularization_strength,
            "beta": self.beta,
            "l2_shrinkage_regularization_strength": self.l2_shrinkage_regularization_strength,
        }
        return {**super().get_config(), **own}
