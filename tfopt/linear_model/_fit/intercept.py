"""One-dimensional searches for the intercept that minimizes the losses for given weights.

A search lists the intercepts at which it needs the first and second derivatives of the sum of the
losses, in `places`, and receives them by `update`. So searches of several problems share passes.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from tfopt.linear_model.loss_record import PointwiseLoss

__all__ = ["InterceptSearch", "intercept_search"]

#: The smallest relevant change of the intercept, relative to 1 + |intercept|.
TOLERANCE = 1e-10
#: The largest number of rounds.
MAX_ROUNDS = 100
#: The longest step of Newton's method.
LONGEST_STEP = 4.0
#: The first grid of the multisection search: these distances on both sides.
INITIAL_OFFSETS = 4.0 ** np.arange(3, -8, -1.0)
#: The number of points of its other grids.
GRID_POINTS = 16


class InterceptSearch(Protocol):
    """A search.

    Attributes
    ----------
    places : list of float
        The intercepts at which derivatives are needed next.
    bias : float
        The result, when the search is done.
    """

    places: list[float]
    bias: float

    def update(self, derivatives: np.ndarray) -> bool:
        """Take the derivatives, of shape (2, n_places), and return whether the search is done."""


def intercept_search(phi: PointwiseLoss, bias: float, slack: float) -> InterceptSearch:
    """Return the search for a loss.

    Parameters
    ----------
    phi : PointwiseLoss
    bias : float
        The initial guess.
    slack : float
        The largest allowed excess of the sum of the losses over its minimum.
    """
    if not phi.is_smooth:
        return MultisectionSearch(bias, slack)
    return NewtonSearch(phi, bias, slack)


class NewtonSearch:
    """Finds the root of the derivative by Newton's method, safeguarded by bisection.

    For the squared and the Poisson loss the first step reaches the root, up to rounding.
    """

    def __init__(self, phi: PointwiseLoss, bias: float, slack: float) -> None:
        self.phi, self.bias, self.slack = phi, bias, slack
        self.places, self.low, self.high, self.n_rounds = [bias], -math.inf, math.inf, 0

    def update(self, derivatives: np.ndarray) -> bool:
        """Take the derivatives at the place, and go on to the next."""
        ((gradient,), (hessian,)) = derivatives.tolist()
        self.n_rounds += 1
        if gradient == 0 or gradient * gradient <= 2 * self.slack * hessian:
            return True
        bias = self.bias
        self.low, self.high = (bias, self.high) if gradient < 0 else (self.low, bias)
        step = self._step(gradient, hessian)
        if not self.low < bias + step < self.high:
            if math.isinf(self.high - self.low) or _is_close(step, bias):
                return True  # rounding: bisection would only lead away
            step = self.low + (self.high - self.low) / 2 - bias
        self.bias += step
        self.places = [self.bias]
        return _is_close(step, bias) or self.n_rounds == MAX_ROUNDS

    def _step(self, gradient: float, hessian: float) -> float:
        if 0 < hessian < math.inf:
            return self.phi.intercept_step(gradient, hessian, LONGEST_STEP)
        # where a loss of y is linear, steps find its scale
        growth = 2.0 ** (self.n_rounds - 1) if self.phi.link == "identity" else 1.0
        return -math.copysign(LONGEST_STEP * growth, gradient)


def _is_close(step: float, bias: float) -> bool:
    return abs(step) <= TOLERANCE * (1 + abs(bias))


class MultisectionSearch:
    """Finds where a piecewise constant derivative changes its sign, by multisection.

    The losses are convex: the value at an end of the bracket exceeds the minimum by at most the
    absolute derivative there times the width of the bracket.
    """

    def __init__(self, bias: float, slack: float) -> None:
        self.bias, self.slack, self.n_rounds = bias, slack, 0
        self.places = [*bias - INITIAL_OFFSETS, bias, *bias + INITIAL_OFFSETS[::-1]]
        self.low, self.high = (-math.inf, -math.inf), (math.inf, math.inf)

    def update(self, derivatives: np.ndarray) -> bool:
        """Take the derivatives at the places, and go on to those of a finer grid."""
        self.n_rounds += 1
        for place, gradient in zip(self.places, derivatives[0].tolist(), strict=True):
            if gradient == 0:
                self.bias = float(place)
                return True
            if gradient < 0:
                self.low = max(self.low, (place, gradient))
            else:
                self.high = min(self.high, (place, gradient))
        low, high = self.low, self.high
        width = high[0] - low[0]
        if math.isinf(width):  # no bracket yet: extend the grid
            end, step = (low[0], 1) if math.isinf(high[0]) else (high[0], -1)
            offsets = 4 * INITIAL_OFFSETS[0] * 4.0 ** np.arange(GRID_POINTS)
            self.bias, self.places = float(end), list(end + step * offsets)
            return self.n_rounds == MAX_ROUNDS
        self.bias, gradient = (float(x) for x in min(low, high, key=lambda end: abs(end[1])))
        self.places = list(low[0] + width * np.arange(1, GRID_POINTS) / GRID_POINTS)
        return (
            abs(gradient) * width <= self.slack
            or width <= TOLERANCE * (1 + abs(self.bias))
            or self.n_rounds == MAX_ROUNDS
        )
