"""TensorFlow's losses: properties that the ops need besides the kernels' formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from tfopt.kernels.linear.visits import LOSSES

__all__ = ["LOSS_TYPES", "LossName", "LossType"]

Array: TypeAlias = np.ndarray[Any, Any]


class LossType(NamedTuple):
    """A loss of the ops.

    Attributes
    ----------
    has_classes : bool
        Whether labels are 0 and 1, which kernels take as -1 and 1.
    least : float
        The least label, of others.
    mean : callable
        Returns the expected labels of predictions, or these.
    is_outside : callable
        Returns which dual variables have no finite conjugate, given the kernels' labels.
    """

    has_classes: bool = True
    least: float = -math.inf
    mean: Callable[[Array], Array] = np.asarray
    is_outside: Callable[[Array, Array], Array] = lambda a, y: (a * y < 0) | (a * y > 1)


_RECORDS = (
    LossType(mean=lambda z: np.asarray(1 / (1 + np.exp(-z)))),  # logistic
    LossType(False, is_outside=lambda a, y: np.zeros(a.shape, bool)),  # squared
    LossType(),  # hinge
    LossType(),  # smooth hinge
    LossType(False, 0.0, np.exp, lambda a, y: np.asarray(a > y)),  # Poisson
)
LossName = Literal[
    "logistic_loss", "squared_loss", "hinge_loss", "smooth_hinge_loss", "poisson_loss"
]
#: By name; kernels have more.
LOSS_TYPES = dict(zip(LOSSES, _RECORDS, strict=False))
