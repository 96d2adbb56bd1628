"""Follow the regularized leader."""

from __future__ import annotations

from typing import Unpack

from tfopt.errors import InvalidArgumentError
from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.options import LearningRateLike, OptimizerOptions
from tfopt.optimizers.state.hyperparameters import Hyper, LearningRate
from tfopt.updates.rule_steps import RuleUpdate
from tfopt.variable import Variable

__all__ = ["Ftrl"]


class Ftrl(RuleOptimizer):
    """FTRL-Proximal: per-coordinate learning rates and exact zeros under L1.

    Parameters
    ----------
    learning_rate : float, default 0.001
        Greater than 0.
    learning_rate_power : float, default -0.5
        At most 0; the step decays with this power of the accumulated squared gradients.
    initial_accumulator_value : float, default 0.1
    l1_regularization_strength, l2_regularization_strength : float, default 0.0
    name : str, default "Ftrl"
    l2_shrinkage_regularization_strength : float, default 0.0
        L2 penalty that is added to the gradient, so it affects only subsequent steps.
    beta : float, default 0.0
        The paper's beta: adds ``beta / (2 * learning rate)`` to the L2 strength.
    **kwargs
        `weight_decay` must be 0, because a step computes the weights from scratch.
        `sparse`: what a sparse step does to rows without a gradient. "tensorflow": the same as in
        TensorFlow; "lazy": nothing.
        `storage`: how slots are stored, such as "bfloat16" or "8bit", or a dict of it.
        `stochastic_rounding`: a seed, for which bfloat16 variables and slots round at random.
        `cautious_weight_decay` must be False, as there is no decay.
        {options}

    Notes
    -----
    Slots: ``accumulator``, ``linear``. Each step computes the variable from these slots, so its
    initial value matters only through the growth of the accumulator. A sparse gradient moves only
    its rows.

    References
    ----------
    McMahan et al.: Ad Click Prediction: a View from the Trenches, KDD 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.optimizers import Ftrl
    >>> w = np.zeros(2)
    >>> opt = Ftrl(learning_rate=0.5, l1_regularization_strength=0.5)
    >>> _ = opt.apply_gradients([(np.array([2.0, 0.1]), w)])
    >>> w.round(3)
    array([-0.37,  0.  ])
    """

    learning_rate = LearningRate(0, above=True)
    _can_decay = False
    # in the order of configurations
    initial_accumulator_value = Hyper(0, exact=True)
    learning_rate_power = Hyper(high=0)
    l1_regularization_strength = Hyper(0)
    l2_regularization_strength = Hyper(0)
    beta = Hyper(0)
    l2_shrinkage_regularization_strength = Hyper(0)

    def __init__(
        self,
        learning_rate: LearningRateLike = 0.001,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        name: str = "Ftrl",
        l2_shrinkage_regularization_strength: float = 0.0,
        beta: float = 0.0,
        **kwargs: Unpack[OptimizerOptions],
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self.learning_rate_power = learning_rate_power
        self.initial_accumulator_value = initial_accumulator_value
        self.l1_regularization_strength = l1_regularization_strength
        self.l2_regularization_strength = l2_regularization_strength
        self.l2_shrinkage_regularization_strength = l2_shrinkage_regularization_strength
        self.beta = beta

    def _check_settings(self) -> None:
        super()._check_settings()
        divisor = ("initial_accumulator_value", "l2_regularization_strength", "beta")
        if all(vars(self).get(name) == 0 for name in divisor):
            raise InvalidArgumentError(
                f"{', '.join(divisor)} must not all be 0: steps divide by them"
            )

    def _slot_values(self) -> dict[str, float]:
        return {"accumulator": self.initial_accumulator_value, "linear": 0.0}

    def _create_slots(self, variables: list[Variable]) -> None:
        for variable in variables:  # slot by slot, unlike other classes
            super()._create_slots([variable])

    def _update(self, t: int, lr: float) -> RuleUpdate:
        hypers = {
            "lr": lr,
            "l1": self.l1_regularization_strength,
            "l2": self.l2_regularization_strength + self.beta / (2 * lr),
            "l2_shrinkage": self.l2_shrinkage_regularization_strength,
            "lr_power": self.learning_rate_power,
        }
        rule = "ftrl_v2" if self.l2_shrinkage_regularization_strength > 0 else "ftrl"
        return RuleUpdate(rule, hypers, {"multiply_linear_by_lr": False})
