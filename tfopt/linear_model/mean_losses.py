"""The losses of models of the logarithm of a mean, each a record: Poisson and Gamma."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import xlogy

from tfopt.linear_model._solver.reductions import weighted_sum
from tfopt.linear_model.loss_record import PointwiseLoss

__all__ = ["Gamma", "Poisson"]


class _OfMeans(PointwiseLoss):
    """What losses of the logarithm of a mean have in common."""

    is_classification, link = False, "log"
    is_smooth, bounds_moves, best_is_mean = True, True, True
    #: Multiplied by t, y and exp(z) change phi by the factor t**degree, but for what is constant.
    degree: float

    def inverse_link(self, z: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(z))

    def without_offset(
        self, y: np.ndarray, offset: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | float]:
        return y * np.exp(-offset), np.exp(self.degree * offset)

    def initial_intercept(self, mean: float) -> float:
        return math.log(mean)


class Poisson(_OfMeans):
    """exp(z) - y * z"""

    name, domain, degree = "poisson", "non-negative", 1.0

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(z) - y * z)

    def gradient(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(z) - y)

    def least(self, y: np.ndarray) -> np.ndarray:
        return np.asarray(y - xlogy(y, y))

    def clip_duals(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.minimum(a, y))

    def is_outside(self, y: np.ndarray) -> np.ndarray:
        return np.asarray(y < 0)

    def intercept_step(self, gradient: float, hessian: float, longest: float) -> float:
        if gradient < hessian:
            return math.log1p(-gradient / hessian)  # the derivative is hessian * e**step - a sum
        return super().intercept_step(gradient, hessian, longest)

    def dual_sums(self, weight: np.ndarray, y: np.ndarray, a: np.ndarray) -> np.ndarray:
        return np.array([weighted_sum(weight, y), weighted_sum(weight, y - a)])

    def balanced(self, a: np.ndarray, y: np.ndarray, sums: np.ndarray) -> np.ndarray:
        return np.asarray(y - (y - a) * (sums[0] / sums[1]))  # y - a >= 0 gets the mean of y


class Gamma(_OfMeans):
    """y * exp(-z) + z - 1 - log(y), half the unit deviance"""

    name, domain, degree = "gamma", "positive", 0.0

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        s = np.log(y) - z
        return np.asarray(np.expm1(s) - s)

    def gradient(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(-np.expm1(np.log(y) - z))

    def clip_duals(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.maximum(a, -1.0))

    def is_outside(self, y: np.ndarray) -> np.ndarray:
        return np.asarray(y <= 0)

    def intercept_step(self, gradient: float, hessian: float, longest: float) -> float:
        # the derivative is a sum - hessian * e**-step
        return math.log(hessian / (gradient + hessian)) if gradient > -hessian else longest

    def dual_sums(self, weight: np.ndarray, y: np.ndarray, a: np.ndarray) -> np.ndarray:
        return np.array([weight.sum(), weighted_sum(weight, 1 + a)])

    def balanced(self, a: np.ndarray, y: np.ndarray, sums: np.ndarray) -> np.ndarray:
        return np.asarray((1 + a) * (sums[0] / sums[1]) - 1)  # 1 + a >= 0 gets the mean 1
