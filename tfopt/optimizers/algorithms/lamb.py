"""LAMB."""

from __future__ import annotations

from typing import Unpack

from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.options import LearningRateLike, OptionsButWeightDecay
from tfopt.optimizers.state.hyperparameters import Hyper
from tfopt.updates.rule_steps import RuleUpdate

__all__ = ["LAMB"]


class LAMB(RuleOptimizer):
    """LAMB: Adam with the update of each variable rescaled to the norm of its weights.

    Parameters
    ----------
    learning_rate : float, LearningRateSchedule or callable, default 0.001
    beta_1 : float, default 0.9
        Decay of the mean gradient, in [0, 1).
    beta_2 : float, default 0.999
        Decay of the mean squared gradient, in [0, 1).
    epsilon : float, default 1e-6
        Added to the square root.
    weight_decay : float, default 0.0
        At least 0; ``weight_decay * weights`` are added to Adam's update, before its norm is taken.
    name : str, default "LAMB"
    **kwargs
        `sparse`: "tensorflow"; a sparse gradient is made a dense one.
        `storage`: how slots are stored, such as "bfloat16" or "8bit", or a dict of it.
        {reduction}

    Notes
    -----
    Slots: ``m``, ``v``. Variables given to `exclude_from_weight_decay` do not decay, and their
    updates are Adam's, as in the paper's experiments and their code: biases and the parameters of
    normalization are usually excluded. A variable whose weights or update are all zeros takes
    Adam's update, too. Norms are summed in float64, in the order of
    `tfopt.clip_ops.global_norm`. A sparse gradient is made a dense one.

    References
    ----------
    You et al.: Large Batch Optimization for Deep Learning: Training BERT in 76 minutes, ICLR 2020,
    algorithm 2.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.optimizers import LAMB
    >>> w, b = np.array([3.0, 4.0]), np.array([3.0, 4.0])
    >>> opt = LAMB(learning_rate=0.1)
    >>> opt.exclude_from_weight_decay([b])
    >>> _ = opt.step([w, b], [np.array([0.1, 0.1]), np.array([0.1, 0.1])])
    >>> w.round(4), b.round(4)
    (array([2.6464, 3.6464]), array([2.9, 3.9]))
    """

    _by_elements = False
    _densifies = True

    beta_1 = Hyper(0, below=True)
    beta_2 = Hyper(0, below=True)
    epsilon = Hyper(above=True)

    def __init__(
        self,
        learning_rate: LearningRateLike = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        weight_decay: float = 0.0,
        name: str = "LAMB",
        **kwargs: Unpack[OptionsButWeightDecay],
    ) -> None:
        super().__init__(name, learning_rate, weight_decay=weight_decay, **kwargs)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon

    def _slot_values(self) -> dict[str, float]:
        return {"m": 0.0, "v": 0.0}

    def _update(self, t: int, lr: float) -> RuleUpdate:
        hypers = {
            "beta1_power": self.beta_1**t,
            "beta2_power": self.beta_2**t,
            "lr": lr,
            "beta1": self.beta_1,
            "beta2": self.beta_2,
            "epsilon": self.epsilon,
            "weight_decay": self.weight_decay,
        }
        return RuleUpdate("lamb", hypers, {"adapts": True})
