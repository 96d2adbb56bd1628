"""Nadam."""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np

from tfopt.errors import InvalidArgumentError
from tfopt.kernels.update.commit import Assign
from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.options import LearningRateLike, OptionsButDecay
from tfopt.optimizers.schedules import LearningRateSchedule
from tfopt.optimizers.settings import Setting
from tfopt.optimizers.state.hyperparameters import Hyper
from tfopt.optimizers.state.transaction import Writes
from tfopt.optimizers.step.deferred_rows import DecayBound, quotient
from tfopt.updates.rule_steps import RuleUpdate
from tfopt.variable import Variable

__all__ = ["Nadam"]

_C = float(np.float32(0.96))  # TensorFlow's constant


class Nadam(RuleOptimizer):
    """Nadam: Adam with Nesterov momentum.

    Parameters
    ----------
    learning_rate : float or callable, default 0.001
        Must not be a schedule, as in TensorFlow: Nadam has its own momentum schedule.
    beta_1 : float, default 0.9
        Decay of the mean gradient, in [0, 1].
    beta_2 : float, default 0.999
        Decay of the mean squared gradient, in [0, 1).
    epsilon : float, default 1e-7
        Added to the square root. 0 and None select the default, as in TensorFlow.
    name : str, default "Nadam"
    schedule_decay : float, default 0.004
        How fast the momentum grows to `beta_1`: at step t it is
        ``beta_1 * (1 - 0.5 * 0.96 ** (schedule_decay * t))``, with 0.96 rounded to float32. `decay`
        is an alias, as in TensorFlow's configurations, and as an attribute.
    **kwargs
        {decays}
        {sparse}
        `storage`: how slots are stored, such as "bfloat16" or "8bit", or a dict of it.
        `stochastic_rounding`: a seed, for which bfloat16 variables and slots round at random.
        `cautious_weight_decay`: whether weights decay only where the step agrees.
        `clipvalue`, `clipnorm`, `global_clipnorm`, `merge`, `gradient_aggregator`,
        `gradient_transformers`, `use_locking`, `compat`, `lr`: as in `Optimizer`.

    Attributes
    ----------
    momentum_cache : Variable
        The product of the momenta of all steps so far, in float64; part of the weights.

    Notes
    -----
    Slots: ``m``, ``v``. A sparse gradient decays the means of all rows, but moves only its own
    rows.

    References
    ----------
    Dozat: Incorporating Nesterov Momentum into Adam, ICLR workshop 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.optimizers import Nadam
    >>> w = np.array([1.0, 2.0, 3.0])
    >>> opt = Nadam(learning_rate=0.1)
    >>> int(opt.apply_gradients([(np.array([0.1, -0.2, 0.3]), w)]))
    1
    >>> w.round(4)
    array([0.8944, 2.1056, 2.8944])
    """

    beta_1 = Hyper(0, 1)
    beta_2 = Hyper(0, below=True)
    epsilon = Hyper(above=True, exact=True, instead=1e-7)
    schedule_decay = Hyper(0, exact=True)
    momentum_cache = Setting[Variable](once=True)

    def __init__(
        self,
        learning_rate: LearningRateLike = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float | None = 1e-7,
        name: str = "Nadam",
        schedule_decay: float = 0.004,
        *,
        decay: float | None = None,
        **kwargs: Unpack[OptionsButDecay],
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.schedule_decay = schedule_decay if decay is None else decay
        self.momentum_cache = Variable(np.ones(()), name=f"{name}/momentum_cache", trainable=False)
        self._weights.append(self.momentum_cache)

    def _check_settings(self) -> None:
        super()._check_settings()
        if isinstance(vars(self).get("learning_rate"), LearningRateSchedule):
            raise InvalidArgumentError("Nadam does not take a schedule as its learning rate")

    @property
    def decay(self) -> float:
        """Alias of `schedule_decay`, as in TensorFlow: the learning rate does not decay."""
        decay: float = self.schedule_decay
        return decay

    @decay.setter
    def decay(self, value: float) -> None:
        self.schedule_decay = value

    def _next_rate(self, step: int) -> float:
        rate: float = type(self).learning_rate.at(self, step)
        return rate

    def _slot_values(self) -> dict[str, float]:
        return {"m": 0.0, "v": 0.0}

    def _momentum(self, t: int) -> float:
        number: float = self.beta_1 * (1 - 0.5 * _C ** (self.schedule_decay * t))
        return number

    def _update(self, t: int, lr: float) -> RuleUpdate:
        mu, mu_next = self._momentum(t), self._momentum(t + 1)
        product = float(self.momentum_cache) * mu
        hypers = {
            "lr": lr,
            "beta1": self.beta_1,
            "beta2": self.beta_2,
            "beta2_power": self.beta_2**t,
            "mu": mu,
            "mu_next": mu_next,
            "mu_product": product,
            "mu_product_next": product * mu_next,
            "epsilon": self.epsilon,
        }
        return RuleUpdate("nadam", hypers)

    def _decay_bound(self, update: RuleUpdate) -> DecayBound:
        h = update.hypers
        length = h["lr"] * h["mu_next"] * math.sqrt(1 - h["beta2_power"])
        first = quotient(length, 1 - h["mu_product_next"])
        return DecayBound(first, quotient(h["beta1"], math.sqrt(h["beta2"])))

    def _left_by(self, update: RuleUpdate) -> Writes:
        product = np.array(update.hypers["mu_product"])
        return [Assign(self.momentum_cache.numpy(), product)]

    def _given(self) -> dict[str, Any]:
        return {**super()._given(), "decay": None}  # another name of schedule_decay

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["schedule_decay"]  # which is `decay` there
        return config
