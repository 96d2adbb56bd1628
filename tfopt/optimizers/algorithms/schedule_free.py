"""Schedule-Free SGD and AdamW."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from tfopt.errors import InvalidArgumentError
from tfopt.kernels.update.commit import Assign, carry_out
from tfopt.optimizers.base.averaged import Averaged
from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.options import LearningRateLike, OptimizerOptions, OptionsButWeightDecay
from tfopt.optimizers.settings import Setting
from tfopt.optimizers.state.hyperparameters import Hyper
from tfopt.optimizers.state.transaction import Writes
from tfopt.optimizers.state.variables import wide
from tfopt.updates.device_copy import copies_of
from tfopt.updates.device_rule import DeviceRule
from tfopt.updates.rule_steps import RuleUpdate
from tfopt.variable import Variable

__all__ = ["ScheduleFreeAdamW", "ScheduleFreeSGD"]


class _ScheduleFree(RuleOptimizer, Averaged, abstract=True):
    """The base of both: the weights of the average, and the two views of a variable."""

    weight_sum = Setting[Variable](once=True)

    def __init__(
        self, name: str, learning_rate: LearningRateLike, **kwargs: Unpack[OptimizerOptions]
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
        self.weight_sum = Variable(np.zeros(()), name=f"{name}/weight_sum", trainable=False)
        self._weights.append(self.weight_sum)

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.cautious_weight_decay:
            raise InvalidArgumentError(
                f"{type(self).__name__} adds its weight_decay to the gradient, which excludes "
                "cautious_weight_decay"
            )

    @property
    def _interpolation(self) -> Any:
        """The share of the average in the weights at which gradients are taken."""
        raise NotImplementedError

    def _sum_with(self, lr: float) -> float:
        return float(self.weight_sum) + lr * lr

    def _shared(self, lr: float) -> dict[str, float]:
        """Return the hyperparameters of a step that both rules have."""
        total = self._sum_with(lr)
        share = lr * lr / total if total > 0 else 0.0
        return {"lr": lr, "share": share, "weight_decay": self.weight_decay}

    def _left_by(self, update: RuleUpdate) -> Writes:
        total = np.array(self._sum_with(update.hypers["lr"]))
        return [Assign(self.weight_sum.numpy(), total)]

    def _average(self, variable: Variable) -> np.ndarray:
        weights, offset = variable.numpy(), self.get_slot(variable, "offset").numpy()
        dtype = wide(weights.dtype)
        ahead = dtype.type(1 / self._interpolation - 1)
        mean = weights.astype(dtype) - ahead * offset.astype(dtype)
        return np.asarray(mean).astype(weights.dtype)

    def _device_average(self, variable: Variable) -> Any:
        dtype, name = wide(variable.dtype), variable.name
        mean = copies_of([variable.value()], name, [dtype])
        ahead = dtype.type(1 / self._interpolation - 1)
        update = RuleUpdate("gradient_descent", {"alpha": float(ahead)})
        offset = [self.get_slot(variable, "offset").value()]
        carry_out([DeviceRule((mean,)).write(update, 1.0, offset, name)])
        return mean[0]


class ScheduleFreeSGD(_ScheduleFree):
    """Schedule-Free SGD: needs no schedule, as the average of the iterates is evaluated.

    Parameters
    ----------
    learning_rate : float, LearningRateSchedule or callable, default 1.0
        About as large as with a schedule, or larger; warm it up, but do not let it decay.
    momentum : float, default 0.9
        Where between the iterate (0) and its average (1) gradients are taken; above 0.
    weight_decay : float, default 0.0
        At least 0: this times the weights is added to the gradient, except for those given to
        `exclude_from_weight_decay`.
    name : str, default "ScheduleFreeSGD"
    **kwargs
        `sparse`: "tensorflow" or "lazy", which are the same here.
        `storage`: how slots are stored, "float32", "float16", "bfloat16" or a dict of it.
        {schedule_free}

    Attributes
    ----------
    weight_sum : Variable
        The sum of the squared learning rates of all steps.

    Notes
    -----
    Slot: ``offset``, by which the iterate is ahead of the weights. While training, a variable holds
    the point at which gradients are to be taken. Evaluate, and save for inference, within
    `averaged`, or after `assign_averages`. Steps weigh in the average by their squared learning
    rates, as in the paper; the authors' program takes the largest rate so far instead, which is
    the same unless the rate falls. A sparse gradient moves only its rows.

    References
    ----------
    Defazio, Yang, Mehta, Mishchenko, Khaled, Cutkosky: The Road Less Scheduled, NeurIPS 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.optimizers import ScheduleFreeSGD
    >>> w = np.array([1.0, -2.0])
    >>> opt = ScheduleFreeSGD(learning_rate=0.1)
    >>> for _ in range(20):
    ...     _ = opt.apply_gradients([(2 * w, w)])
    >>> with opt.averaged():
    ...     print(w.round(3))
    [ 0.004 -0.008]
    """

    momentum = Hyper(0, 1, above=True)

    def __init__(
        self,
        learning_rate: LearningRateLike = 1.0,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        name: str = "ScheduleFreeSGD",
        **kwargs: Unpack[OptionsButWeightDecay],
    ) -> None:
        super().__init__(name, learning_rate, weight_decay=weight_decay, **kwargs)
        self.momentum = momentum

    @property
    def _interpolation(self) -> Any:
        return self.momentum

    def _slot_values(self) -> dict[str, float]:
        return {"offset": 0.0}

    def _update(self, t: int, lr: float) -> RuleUpdate:
        return RuleUpdate("schedule_free_sgd", {**self._shared(lr), "beta": self.momentum})


class ScheduleFreeAdamW(_ScheduleFree):
    """Schedule-Free AdamW: needs no schedule, as the average of the iterates is evaluated.

    Parameters
    ----------
    learning_rate : float, LearningRateSchedule or callable, default 0.0025
        About as large as with a schedule, or larger; warm it up, but do not let it decay.
    beta_1 : float, default 0.9
        Where between the iterate (0) and its average (1) gradients are taken; above 0.
    beta_2 : float, default 0.999
        Decay of the mean squared gradient, in [0, 1).
    epsilon : float, default 1e-8
    weight_decay : float, default 0.0
        At least 0: this times the weights is added to the normalized gradient, except for those
        given to `exclude_from_weight_decay`.
    name : str, default "ScheduleFreeAdamW"
    **kwargs
        `sparse`: "tensorflow" or "lazy", which are the same here.
        `storage`: how slots are stored, "float32", "float16", "bfloat16" or a dict of it;
        ``{"v": "8bit"}``, too.
        {schedule_free}

    Attributes
    ----------
    weight_sum : Variable
        The sum of the squared learning rates of all steps.

    Notes
    -----
    Slots: ``offset``, by which the iterate is ahead of the weights, and ``v``. While training, a
    variable holds the point at which gradients are to be taken. Evaluate, and save for inference,
    within `averaged`, or after `assign_averages`. Steps weigh in the average by their squared
    learning rates, as in the paper; the authors' program takes the largest rate so far instead,
    which is the same unless the rate falls. A sparse gradient moves only its rows.

    References
    ----------
    Defazio, Yang, Mehta, Mishchenko, Khaled, Cutkosky: The Road Less Scheduled, NeurIPS 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.optimizers import ScheduleFreeAdamW
    >>> w = np.array([1.0, -2.0])
    >>> opt = ScheduleFreeAdamW(learning_rate=0.1)
    >>> for _ in range(50):
    ...     _ = opt.apply_gradients([(2 * w, w)])
    >>> with opt.averaged():
    ...     print(w.round(3))
    [-0.082 -0.17 ]
    """

    beta_1 = Hyper(0, 1, above=True)
    beta_2 = Hyper(0, below=True)
    epsilon = Hyper(above=True)

    def __init__(
        self,
        learning_rate: LearningRateLike = 0.0025,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        name: str = "ScheduleFreeAdamW",
        **kwargs: Unpack[OptionsButWeightDecay],
    ) -> None:
        super().__init__(name, learning_rate, weight_decay=weight_decay, **kwargs)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon

    @property
    def _interpolation(self) -> Any:
        return self.beta_1

    def _slot_values(self) -> dict[str, float]:
        return {"offset": 0.0, "v": 0.0}

    def _update(self, t: int, lr: float) -> RuleUpdate:
        own = {
            "beta1": self.beta_1,
            "beta2": self.beta_2,
            "beta2_power": self.beta_2**t,
            "epsilon": self.epsilon,
        }
        return RuleUpdate("schedule_free_adam", {**self._shared(lr), **own})
