"""The losses of models of the logarithm of a mean, as records: Poisson, Gamma and Tweedie.

The power of Tweedie is between those of Poisson, 1, and Gamma, 2.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import xlogy

from tfopt.linear_model.loss_record import LossOption, PointwiseLoss, weighted_sum

__all__ = ["Gamma", "Poisson", "Tweedie"]


class _OfMeans(PointwiseLoss):
    """The common part of losses of the logarithm of a mean."""

    is_classification, link = False, "log"
    is_smooth, best_is_mean, is_likelihood = True, True, True
    #: If y and exp(z) are multiplied by t, phi is multiplied by t**degree, up to a constant.
    degree: float

    def inverse_link(self, z: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(z))

    def without_offset(
        self, y: np.ndarray, offset: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | float]:
        return y * np.exp(-offset), np.exp(self.degree * offset)

    def information(self, z: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(self.degree * z))

    def initial_intercept(self, mean: float) -> float:
        return math.log(mean)

    def intercept_step(self, gradient: float, hessian: float, longest: float) -> float:
        """Return the exact step: phi' at distance t is a difference of two exponentials of t."""
        # with k = degree: rising * e**(k * t) - falling * e**((k - 1) * t), and likewise phi''
        rising, falling = hessian + (1 - self.degree) * gradient, hessian - self.degree * gradient
        if rising > 0 and falling > 0:
            return math.log1p(-gradient / rising)
        return super().intercept_step(gradient, hessian, longest)


class Poisson(_OfMeans):
    """exp(z) - y * z"""

    name, domain, degree, bounds_moves = "poisson", "non-negative", 1.0, True
    has_unit_dispersion = True

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

    def dual_sums(self, weight: np.ndarray, y: np.ndarray, a: np.ndarray) -> np.ndarray:
        return np.array([weighted_sum(weight, y), weighted_sum(weight, y - a)])

    def balanced(self, a: np.ndarray, y: np.ndarray, sums: np.ndarray) -> np.ndarray:
        return np.asarray(y - (y - a) * (sums[0] / sums[1]))  # y - a >= 0 gets the mean of y


class Gamma(_OfMeans):
    """y * exp(-z) + z - 1 - log(y), half the unit deviance"""

    name, domain, degree, bounds_moves = "gamma", "positive", 0.0, True

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        s = np.log(y) - z
        return np.asarray(np.expm1(s) - s)

    def gradient(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(-np.expm1(np.log(y) - z))

    def clip_duals(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.maximum(a, -1.0))

    def is_outside(self, y: np.ndarray) -> np.ndarray:
        return np.asarray(y <= 0)

    def dual_sums(self, weight: np.ndarray, y: np.ndarray, a: np.ndarray) -> np.ndarray:
        return np.array([weight.sum(), weighted_sum(weight, 1 + a)])

    def balanced(self, a: np.ndarray, y: np.ndarray, sums: np.ndarray) -> np.ndarray:
        return np.asarray((1 + a) * (sums[0] / sums[1]) - 1)  # 1 + a >= 0 gets the mean 1


class Tweedie(_OfMeans):
    """y * exp(-m * z) / m + exp(k * z) / k minus its least value: half the unit deviance.

    With the power p, k = 2 - p and m = p - 1.
    """

    name, domain = "tweedie", "non-negative"
    option = LossOption("power", 1.5, low=1.0, high=2.0)

    def __init__(self, power: float = 1.5) -> None:
        self.parameter, self.degree = power, 2 - power

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        k, m = self.degree, 1 - self.degree
        s = z - np.log(np.where(y > 0, y, 1.0))
        apart = (np.expm1(k * s) - k * s) / k + (np.expm1(-m * s) + m * s) / m
        return np.where(y > 0, y**k * apart, np.exp(k * z) / k)

    def gradient(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.asarray(-np.exp(self.degree * z) * np.expm1(np.log(y) - z))

    def clip_duals(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.where(y > 0, a, np.minimum(a, 0.0))

    def is_outside(self, y: np.ndarray) -> np.ndarray:
        return np.asarray(y < 0)

    def dual_sums(self, weight: np.ndarray, y: np.ndarray, a: np.ndarray) -> np.ndarray:
        return np.array([weighted_sum(weight, a), weighted_sum(weight, self._give(a, y))])

    def balanced(self, a: np.ndarray, y: np.ndarray, sums: np.ndarray) -> np.ndarray:
        return np.asarray(a - self._give(a, y) * (sums[0] / sums[1]))

    def _give(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return approximately phi'' where phi' = -a: the cost of a move is its square / phi''."""
        k, m = self.degree, 1 - self.degree
        return np.asarray(y**k + k * np.maximum(-a, 0) + m * np.maximum(a, 0))
