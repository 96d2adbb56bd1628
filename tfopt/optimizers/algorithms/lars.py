"""LARS."""

from __future__ import annotations

from typing import Unpack

from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.options import LearningRateLike, OptionsButWeightDecay
from tfopt.optimizers.state.hyperparameters import Hyper
from tfopt.updates.rule_steps import RuleUpdate

__all__ = ["LARS"]


class LARS(RuleOptimizer):
    """LARS: momentum with a rate for each variable, by its norm and that of its gradient.

    Parameters
    ----------
    learning_rate : float, LearningRateSchedule or callable, default 0.01
    momentum : float, default 0.9
        In [0, 1].
    trust : float, default 0.001
        The paper's trust coefficient: a first step is this share of the norm of the weights, times
        the learning rate.
    epsilon : float, default 0.0
        Added to the divisor.
    weight_decay : float, default 0.0
        At least 0; ``weight_decay * weights`` are added to the gradient.
    name : str, default "LARS"
    **kwargs
        `sparse`: "tensorflow"; a sparse gradient is made a dense one.
        `storage`: how slots are stored, such as "bfloat16" or "8bit", or a dict of it.
        {reduction}

    Notes
    -----
    Slot: ``momentum``. The rate of a variable is the learning rate times ``trust * ||w|| / (||g||
    + weight_decay * ||w|| + epsilon)``, equation 6 of the paper; optax divides by the norm of ``g +
    weight_decay * w`` instead. Variables given to `exclude_from_weight_decay` neither decay nor
    have a rate of their own; neither has one whose weights or gradient are all zeros. Norms are
    summed in float64, in the order of `tfopt.clip_ops.global_norm`. A sparse gradient is made a
    dense one.

    References
    ----------
    You, Gitman, Ginsburg: Large Batch Training of Convolutional Networks, 2017, algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.optimizers import LARS
    >>> w = np.array([3.0, 4.0])
    >>> opt = LARS(learning_rate=1.0, trust=0.01)
    >>> _ = opt.step(w, np.array([0.6, 0.8]))
    >>> w.round(4)
    array([2.97, 3.96])
    """

    _by_elements = False
    _densifies = True

    momentum = Hyper(0, 1)
    trust = Hyper(0)
    epsilon = Hyper(0)

    def __init__(
        self,
        learning_rate: LearningRateLike = 0.01,
        momentum: float = 0.9,
        trust: float = 0.001,
        epsilon: float = 0.0,
        weight_decay: float = 0.0,
        name: str = "LARS",
        **kwargs: Unpack[OptionsButWeightDecay],
    ) -> None:
        super().__init__(name, learning_rate, weight_decay=weight_decay, **kwargs)
        self.momentum = momentum
        self.trust = trust
        self.epsilon = epsilon

    def _slot_values(self) -> dict[str, float]:
        return {"momentum": 0.0}

    def _update(self, t: int, lr: float) -> RuleUpdate:
        hypers = {
            "lr": lr,
            "momentum": self.momentum,
            "trust": self.trust,
            "weight_decay": self.weight_decay,
            "epsilon": self.epsilon,
        }
        return RuleUpdate("lars", hypers, {"adapts": True})
