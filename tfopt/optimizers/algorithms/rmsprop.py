"""RMSprop."""

from __future__ import annotations

from typing import Any, Unpack

from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.options import LearningRateLike, OptimizerOptions
from tfopt.optimizers.settings import Setting, flag
from tfopt.optimizers.state.hyperparameters import Hyper
from tfopt.optimizers.state.restoration import Restoration, with_iterations
from tfopt.optimizers.step.deferred_rows import DecayBound
from tfopt.updates.rule_steps import RuleUpdate

__all__ = ["RMSprop"]


class RMSprop(RuleOptimizer):
    """RMSprop: divide the gradient by the root of its mean square.

    Parameters
    ----------
    learning_rate : float, LearningRateSchedule or callable, default 0.001
    rho : float, default 0.9
        Decay of the means, in [0, 1].
    momentum : float, default 0.0
        In [0, 1].
    epsilon : float, default 1e-7
        0 and None select the default, as in TensorFlow.
    centered : bool, default False
        Also subtract the square of the mean gradient, so as to divide by the standard deviation.
    name : str, default "RMSprop"
    **kwargs
        {decays}
        {sparse}
        {elementwise}

    Notes
    -----
    Slots: ``rms``; with momentum also ``momentum``, if centered also ``mg``. As in TensorFlow these
    are two algorithms. Without momentum, `epsilon` is added to the square root, and a sparse
    gradient decays the means of all rows but moves only its own rows. With momentum, it is added
    inside the square root, and rows without a gradient do not change.

    References
    ----------
    Tieleman, Hinton: Lecture 6.5, 2012. Graves: Generating Sequences with Recurrent Neural
    Networks, 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.optimizers import RMSprop
    >>> w = np.array([1.0, 2.0, 3.0])
    >>> opt = RMSprop(learning_rate=0.1)
    >>> int(opt.apply_gradients([(np.array([0.1, -0.2, 0.3]), w)]))
    1
    >>> w.round(4)
    array([0.6838, 2.3162, 2.6838])
    """

    rho = Hyper(0, 1)
    momentum = Hyper(0, 1)
    epsilon = Hyper(above=True, exact=True, instead=1e-7)
    centered = Setting(flag)

    def __init__(
        self,
        learning_rate: LearningRateLike = 0.001,
        rho: float = 0.9,
        momentum: float = 0.0,
        epsilon: float | None = 1e-7,
        centered: bool = False,
        name: str = "RMSprop",
        **kwargs: Unpack[OptimizerOptions],
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self.rho = rho
        self.momentum = momentum
        self.epsilon = epsilon
        self.centered = centered

    def _slot_values(self) -> dict[str, float]:
        momentum = ["momentum"] if self.momentum > 0 else []
        return dict.fromkeys(["rms", *momentum, *(["mg"] if self.centered else [])], 0.0)

    def _rule_slots(self) -> tuple[str, ...]:
        momentum = ("momentum",) if self.momentum > 0 else ()
        return (*(("mg",) if self.centered else ()), "rms", *momentum)

    def _update(self, t: int, lr: float) -> RuleUpdate:
        hypers = {
            "lr": lr,
            "rho": self.rho,
            "momentum": self.momentum,
            "epsilon": self.epsilon,
        }
        rule = "centered_rms_prop" if self.centered else "rms_prop"
        return RuleUpdate(rule if self.momentum > 0 else f"keras_{rule}", hypers)

    def _decay_bound(self, update: RuleUpdate) -> DecayBound:
        return DecayBound(1.0, self.momentum)

    def _set_weights(self, restoration: Restoration, weights: Any) -> None:
        super()._set_weights(restoration, with_iterations(self._weights, weights))
