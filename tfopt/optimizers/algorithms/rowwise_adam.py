"""Adam with one mean square for each row, and Adam-mini."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from tfopt.indexed_slices import IndexedSlices
from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.options import LearningRateLike, OptimizerOptions
from tfopt.optimizers.state.hyperparameters import Hyper
from tfopt.optimizers.step.gradients import checked_gradient
from tfopt.updates.rule_steps import RuleUpdate
from tfopt.variable import Variable

__all__ = ["AdamMini", "RowwiseAdam"]


class RowwiseAdam(RuleOptimizer):
    """Rowwise Adam: Adam with one mean square for each row, as for tables.

    Parameters
    ----------
    learning_rate : float, LearningRateSchedule or callable, default 0.001
    beta_1 : float, default 0.9
        Decay of the mean gradient, in [0, 1).
    beta_2 : float, default 0.999
        Decay of the mean squares, in [0, 1).
    epsilon : float, default 1e-8
        Added to the square root.
    name : str, default "RowwiseAdam"
    **kwargs
        `weight_decay`, at least 0: before a step the weights are multiplied by ``1 - learning_rate
        * weight_decay``, except those given to `exclude_from_weight_decay`; of a sparse gradient,
        only its rows.
        `sparse`: "tensorflow" or "lazy"; both leave the other rows alone.
        `storage`: how slots are stored, such as "bfloat16" or "8bit", or a dict of it;
        in 8 bits only ``m``.
        {reduction}

    Notes
    -----
    Slots: ``m``, and ``v`` of shape ``var.shape[:1]``, the mean of the mean squares of a row's
    gradients: of Adam's two, the second takes no memory to speak of. The elements of a vector are
    rows.

    With the same numbers as FBGEMM's ``PARTIAL_ROWWISE_ADAM``.

    References
    ----------
    Zhang et al.: Adam-mini: Use Fewer Learning Rates To Gain More, ICLR 2025.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.optimizers import RowwiseAdam
    >>> w = np.ones((2, 2))
    >>> opt = RowwiseAdam(learning_rate=0.1)
    >>> _ = opt.step(w, np.array([[3.0, 4.0], [0.3, 0.4]]))
    >>> w.round(4)
    array([[0.9151, 0.8869],
           [0.9151, 0.8869]])
    """

    _by_elements = False
    _row_slots = ("v",)

    beta_1 = Hyper(0, below=True)
    beta_2 = Hyper(0, below=True)
    epsilon = Hyper(above=True)

    def __init__(
        self,
        learning_rate: LearningRateLike = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        name: str = "RowwiseAdam",
        **kwargs: Unpack[OptimizerOptions],
    ) -> None:
        super().__init__(name, learning_rate, **kwargs)
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
        }
        return RuleUpdate("rowwise_adam", hypers)


class AdamMini(RowwiseAdam):
    """Adam-mini: Adam with one mean square for each row of a matrix, and one for a vector.

    A row is an element along the first axis, as the outputs of torch's layers are. Where outputs
    are the last axis, as in Keras, pass the transposed view of the variable.

    Parameters
    ----------
    learning_rate : float, LearningRateSchedule or callable, default 0.001
    beta_1 : float, default 0.9
        Decay of the mean gradient, in [0, 1).
    beta_2 : float, default 0.999
        Decay of the mean squares, in [0, 1).
    epsilon : float, default 1e-8
        Added to the square root.
    name : str, default "AdamMini"
    **kwargs
        `weight_decay`, at least 0: before a step the weights are multiplied by ``1 - learning_rate
        * weight_decay``, except those given to `exclude_from_weight_decay`; of a sparse gradient,
        only its rows.
        `sparse`: "tensorflow" or "lazy"; both leave the other rows alone. A sparse gradient of a
        vector is made a dense one.
        `storage`: how slots are stored, such as "bfloat16" or "8bit", or a dict of it;
        in 8 bits only ``m``.
        {reduction}

    Notes
    -----
    Slots: ``m``, and ``v`` with one number for each row; for a vector or a scalar, with one number.

    References
    ----------
    Zhang et al.: Adam-mini: Use Fewer Learning Rates To Gain More, ICLR 2025.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.optimizers import AdamMini
    >>> w, b = np.ones((2, 3)), np.ones(2)
    >>> opt = AdamMini(learning_rate=0.1)
    >>> _ = opt.step({"w": w, "b": b}, {"w": np.ones((2, 3)), "b": np.array([3.0, 4.0])})
    >>> b.round(4), opt.get_slot(w, "v").shape, opt.get_slot(b, "v").shape
    (array([0.9151, 0.8869]), (2,), (1,))
    """

    _densifies = True

    def __init__(
        self,
        learning_rate: LearningRateLike = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        name: str = "AdamMini",
        **kwargs: Unpack[OptimizerOptions],
    ) -> None:
        super().__init__(learning_rate, beta_1, beta_2, epsilon, name, **kwargs)

    def _numbers_shape(self, variable: Variable, slot_name: str) -> tuple[int, ...]:
        if slot_name in self._row_slots and len(variable.shape) < 2:
            return (1,)
        return super()._numbers_shape(variable, slot_name)

    def _needs_whole(self, variable: Variable) -> bool:
        return len(variable.shape) < 2

    def _as_stepped(self, grads: list[Any], variables: list[Variable]) -> list[Any]:
        return list(map(_as_rows, grads, variables))

    def _operands(self, variable: Variable) -> tuple[Any, ...]:
        var, m, v = super()._operands(variable)
        if len(variable.shape) > 1 or variable.device == "gpu":
            return var, m, v
        return var[np.newaxis], m if m.dtype.names else m[np.newaxis], v


def _as_rows(grad: Any, variable: Variable) -> Any:
    """Return the gradient of a vector or scalar as a row, after checking it."""
    if len(variable.shape) > 1 or variable.device == "gpu" or isinstance(grad, IndexedSlices):
        return grad
    array = variable.numpy()
    fits = type(grad) is np.ndarray and grad.shape == array.shape and grad.dtype == array.dtype
    if not (fits and array.flags.writeable):
        grad = checked_gradient(grad, variable)
    return grad[np.newaxis]
