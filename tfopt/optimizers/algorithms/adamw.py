"""AdamW."""

from __future__ import annotations

from typing import Unpack

from tfopt.optimizers.algorithms.adam import Adam
from tfopt.optimizers.base.rule_state import WeightDecay
from tfopt.optimizers.options import LearningRateLike, OptionsButWeightDecay

__all__ = ["AdamW"]


class AdamW(Adam):
    """Adam with decoupled weight decay.

    Parameters
    ----------
    learning_rate : float, LearningRateSchedule or callable, default 0.001
    weight_decay : float, default 0.004
        Before each step the weights are multiplied by ``1 - learning_rate * weight_decay``.
    beta_1 : float, default 0.9
        Decay of the mean gradient, in [0, 1).
    beta_2 : float, default 0.999
        Decay of the mean squared gradient, in [0, 1].
    epsilon : float, default 1e-7
        Added to the square root: the paper's "epsilon hat". 0 and None select the default.
    amsgrad : bool, default False
        Use the largest mean square so far (AMSGrad).
    name : str, default "AdamW"
    **kwargs
        {sparse}
        {elementwise}

    Notes
    -----
    As in Keras 3. torch adds epsilon after the bias correction, so its steps agree only as far as
    epsilon is negligible. Slots and sparse steps are those of Adam; every row that a step moves
    decays once. `exclude_from_weight_decay` selects variables that do not decay.

    References
    ----------
    Loshchilov, Hutter: Decoupled Weight Decay Regularization, ICLR 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.optimizers import AdamW
    >>> w = np.array([1.0, 2.0])
    >>> opt = AdamW(learning_rate=0.1, weight_decay=0.1)
    >>> int(opt.apply_gradients([(np.array([0.0, 3.0]), w)]))
    1
    >>> w.round(4)
    array([0.99, 1.88])
    """

    weight_decay = WeightDecay(usual=None)  # configurations always have it

    def __init__(
        self,
        learning_rate: LearningRateLike = 0.001,
        weight_decay: float = 0.004,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float | None = 1e-7,
        amsgrad: bool = False,
        name: str = "AdamW",
        **kwargs: Unpack[OptionsButWeightDecay],
    ) -> None:
        settings = beta_1, beta_2, epsilon, amsgrad, name
        super().__init__(learning_rate, *settings, weight_decay=weight_decay, **kwargs)
