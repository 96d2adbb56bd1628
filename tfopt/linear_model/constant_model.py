"""The best constant prediction of targets and its loss, from sums over blocks of rows."""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy.optimize import brentq
from scipy.special import logit

from tfopt.linear_model.loss_record import PointwiseLoss, weighted_sum

__all__ = ["Constant", "Counts"]

#: The largest number of distinct values; values are rounded until there are no more.
MOST_VALUES = 2**22


@dataclasses.dataclass(frozen=True)
class Counts:
    """The weights of distinct values, for several kinds of rows; counts of blocks are added.

    They are exact up to `MOST_VALUES` distinct values. If there are more, values are rounded
    towards 0 to the largest number of bits that leaves no more; this does not depend on the blocks.

    Attributes
    ----------
    values : ndarray of float64, shape (n_values,)
        Ascending.
    weights : ndarray of float64, shape (n_kinds, n_values)
    rounded : int
        The number of bits of the values that were rounded off.
    """

    values: np.ndarray
    weights: np.ndarray
    rounded: int = 0

    @classmethod
    def of(cls, values: np.ndarray, weights: np.ndarray, rounded: int = 0) -> Counts:
        """Return the counts of rows, whose weights have the shape (n_kinds, n_rows)."""
        counted = weights.any(axis=0)
        values, weights = values[counted] + 0.0, weights[:, counted]  # -0 is 0
        while True:
            values = (values.view(np.int64) >> rounded << rounded).view(np.float64)
            distinct, places = np.unique(values, return_inverse=True)
            if distinct.size <= MOST_VALUES:
                break
            rounded += 1
        sums = [np.bincount(places, each, distinct.size) for each in weights]
        return cls(distinct, np.array(sums).reshape(len(weights), -1), rounded)

    def __add__(self, other: Counts) -> Counts:
        values = np.concatenate([self.values, other.values])
        weights = np.concatenate([self.weights, other.weights], axis=1)
        return Counts.of(values, weights, max(self.rounded, other.rounded))

    def area_under_curve(self) -> float | None:
        """Return the AUC: the share of pairs of both kinds where the second kind's value is larger.

        Equal values count half.
        """
        negative, positive = self.weights
        pairs = negative.sum() * positive.sum()
        below = np.cumsum(negative) - negative / 2
        return float(weighted_sum(positive, below) / pairs) if pairs else None

    def least_loss(self, phi: PointwiseLoss) -> float:
        """Return the sum of the losses of the best constant prediction of these values."""
        if self.values.size < 2:
            return 0.0
        (weights,) = self.weights
        losses = phi.value(np.asarray(self.best_constant(phi)), self.values)
        return weighted_sum(weights, losses - phi.least(self.values))

    def best_constant(self, phi: PointwiseLoss) -> float:
        """Return the prediction that minimizes the sum of the losses of these values."""
        y, (weights,) = self.values, self.weights
        if phi.best_is_mean:
            return phi.initial_intercept(weighted_sum(weights, y) / float(weights.sum()))
        if phi.is_classification and phi.link is not None:
            return float(logit(weighted_sum(weights, y > 0) / float(weights.sum())))
        if corners := phi.corners(y):
            places, lows, highs = (np.concatenate(parts) for parts in zip(*corners, strict=True))
            each = np.tile(weights, len(corners))
            order = np.argsort(places, kind="stable")
            slopes = np.cumsum((each * (highs - lows))[order]) - weighted_sum(each, highs)
            return float(places[order][np.argmax(slopes >= 0)])

        def slope(z: float) -> float:
            return weighted_sum(weights, phi.gradient(np.full(1, z), y))

        low, high = float(y[0]), float(y[-1])
        if slope(low) >= 0 or slope(high) <= 0:
            return low if slope(low) >= 0 else high
        return float(brentq(slope, low, high, xtol=1e-300, maxiter=1000, disp=False))


@dataclasses.dataclass(frozen=True)
class Constant:
    """The mean of targets and its loss as their prediction; those of blocks are added.

    It is for losses whose best constant is the mean. The loss of another constant is then larger by
    the loss of that constant for the mean.
    """

    phi: PointwiseLoss
    weight: float
    mean: float
    loss: float

    @classmethod
    def of(cls, phi: PointwiseLoss, y: np.ndarray, weights: np.ndarray) -> Constant:
        """Return the mean and its loss for targets with weights."""
        y, weights = y[weights > 0], weights[weights > 0]
        if not y.size:
            return cls(phi, 0.0, 0.0, 0.0)
        total = float(weights.sum())
        if (y == y[0]).all():
            return cls(phi, total, float(y[0]), 0.0)
        mean = weighted_sum(weights, y) / total
        return cls(phi, total, mean, weighted_sum(weights, _beyond_mean(phi, mean, y)))

    def __add__(self, other: Constant) -> Constant:
        if not other.weight or not self.weight:
            return self if self.weight else other
        weight, apart = self.weight + other.weight, other.mean - self.mean
        mean = self.mean + apart * (other.weight / weight)
        more = 0.0
        if apart:
            ours, theirs = _beyond_mean(self.phi, mean, np.array([self.mean, other.mean])).tolist()
            more = self.weight * ours + other.weight * theirs
        return Constant(self.phi, weight, mean, self.loss + other.loss + more)

    def least_loss(self, phi: PointwiseLoss) -> float:
        """Return the sum of the losses of the best constant prediction."""
        return self.loss


def _beyond_mean(phi: PointwiseLoss, mean: float, y: np.ndarray) -> np.ndarray:
    """Return the loss of a mean as the prediction of targets, above the least possible loss."""
    z = np.asarray(phi.initial_intercept(mean))
    return np.asarray(np.maximum(phi.value(z, y) - phi.least(y), 0.0))
