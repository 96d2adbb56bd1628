"""Adagrad."""

from __future__ import annotations

from typing import Any

from tfopt.optimizers.base.hyperparameters import Hyper
from tfopt.optimizers.base.weights import with_iterations
from tfopt.optimizers.execution.deferred_rows import Reach
from tfopt.optimizers.execution.rule_optimizer import RuleOptimizer
from tfopt.optimizers.execution.rule_steps import Update

__all__ = ["Adagrad"]


class Adagrad(RuleOptimizer):
    """Adagrad: divides each element's step by the root of its sum of squared gradients.

    Parameters
    ----------
    learning_rate : float, LearningRateSchedule or callable, default 0.001
    initial_accumulator_value : float, default 0.1
        At least 0.
    epsilon : float, default 1e-7
        Added to the root. 0 and None mean the default, as in TensorFlow.
    name : str, default "Adagrad"
    **kwargs
        `weight_decay`, a number of at least 0: before a step weights are multiplied by ``1 -
        learning_rate * weight_decay``, but for those of `exclude_from_weight_decay`.
        `sparse`: what a step of some rows does to the others. "tensorflow": what it does there;
        "lazy": nothing; "catch_up": what dense steps with a gradient of zero do, once they are
        named, or at `catch_up` or `flush`.
        `decay`, `clipvalue`, `clipnorm`, `global_clipnorm`, `merge`, `gradient_aggregator`,
        `gradient_transformers`, `use_locking`, `compat`, `lr`: as in `Optimizer`.

    Notes
    -----
    Slot: ``accumulator``. A sparse gradient moves only the rows it names.

    References
    ----------
    Duchi, Hazan, Singer: Adaptive Subgradient Methods, JMLR 12, 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.optimizers import Adagrad
    >>> w = np.array([1.0, 2.0, 3.0])
    >>> opt = Adagrad(learning_rate=0.1)
    >>> int(opt.apply_gradients([(np.array([0.1, -0.2, 0.3]), w)]))
    1
    >>> w.round(4)
    array([0.9698, 2.0535, 2.9312])
    """

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
        return Update("adagrad_v2", hypers, {"update_slots": True})

    def _reach(self, update: Update) -> Reach:
        return Reach(0.0, 1.0)

    def set_weights(self, weights: Any) -> None:
        super().set_weights(with_iterations(self._weights, weights))

    def get_config(self) -> dict[str, Any]:
        own = {
            "initial_accumulator_value": self.initial_accumulator_value,
            "epsilon": self.epsilon,
        }
        return {**super().get_config(), **own}
