"""Rowwise Adagrad."""

from __future__ import annotations

from typing import Unpack

from tfopt.errors import InvalidArgumentError
from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.options import LearningRateLike, OptimizerOptions
from tfopt.optimizers.state.hyperparameters import Hyper
from tfopt.updates.rule_steps import RuleUpdate

__all__ = ["RowwiseAdagrad"]


class RowwiseAdagrad(RuleOptimizer):
    """Rowwise Adagrad: Adagrad for tables, with one number of state for each row.

    Parameters
    ----------
    learning_rate : float, LearningRateSchedule or callable, default 0.01
    initial_accumulator_value : float, default 0.0
        At least 0.
    epsilon : float, default 1e-8
        Added to the square root.
    l2 : float, default 0.0
        At least 0; ``l2 * weights`` are added to a row's gradient.
    name : str, default "RowwiseAdagrad"
    **kwargs
        `weight_decay`, at least 0: before a step the weights are multiplied by ``1 - learning_rate
        * weight_decay``, except those given to `exclude_from_weight_decay`; of a sparse gradient,
        only its rows.
        `sparse`: "tensorflow" or "lazy"; both leave the other rows alone.
        `storage`: how the slot is stored, "float32", "float16" or "bfloat16".
        {reduction}

    Notes
    -----
    Slot: ``accumulator``, of shape ``var.shape[:1]``: the sum of the mean squares of a row's
    gradients. The elements of a vector are rows.

    With the same numbers as FBGEMM's ``EXACT_ROWWISE_ADAGRAD``, whose weight decay is `l2` in mode
    L2 and `weight_decay` in mode DECOUPLE.

    References
    ----------
    Mudigere et al.: Software-Hardware Co-design for Fast and Scalable Training of Deep Learning
    Recommendation Models, ISCA 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt import IndexedSlices
    >>> from tfopt.optimizers import RowwiseAdagrad
    >>> table = np.ones((1000, 2))
    >>> opt = RowwiseAdagrad(learning_rate=0.1)
    >>> _ = opt.step(table, IndexedSlices(np.array([[3.0, 4.0]]), np.array([7])))
    >>> table[7].round(4), opt.get_slot(table, "accumulator").shape
    (array([0.9151, 0.8869]), (1000,))
    """

    _by_elements = False
    _row_slots = ("accumulator",)

    initial_accumulator_value = Hyper(0, exact=True)
    epsilon = Hyper(0)
    l2 = Hyper(0)

    def __init__(
        self,
        learning_rate: LearningRateLike = 0.01,
        initial_accumulator_value: float = 0.0,
        epsilon: float = 1e-8,
        l2: float = 0.0,
        name: str = "RowwiseAdagrad",
        **kwargs: Unpack[OptimizerOptions],
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self.initial_accumulator_value = initial_accumulator_value
        self.epsilon = epsilon
        self.l2 = l2

    def _check_settings(self) -> None:
        super()._check_settings()
        if vars(self).get("epsilon") == vars(self).get("initial_accumulator_value") == 0:
            raise InvalidArgumentError(
                "epsilon and initial_accumulator_value must not both be 0: steps divide by them"
            )

    def _slot_values(self) -> dict[str, float]:
        return {"accumulator": self.initial_accumulator_value}

    def _update(self, t: int, lr: float) -> RuleUpdate:
        hypers = {"lr": lr, "epsilon": self.epsilon, "l2": self.l2}
        return RuleUpdate("rowwise_adagrad", hypers)
