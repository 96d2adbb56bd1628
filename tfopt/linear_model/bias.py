"""The intercept that suits given weights best, found by asking for slopes.

A search yields biases and is sent the first and the second derivative of the losses' sum at each:
an array of shape (2, n_biases). Who asks whom for them is not its business.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import TypeAlias

import numpy as np

__all__ = ["BiasSearch", "bias_search", "newton_on_bias"]

BiasSearch: TypeAlias = Generator[list[float], np.ndarray, float]

#: Relative to 1 + |bias|: nearer than that is of no use.
NEAR = 1e-10
#: Where a search for a corner looks first: so far on both sides.
REACHES = 4.0 ** np.arange(3, -8, -1.0)
#: At how many places at a time it looks then.
PLACES = 16


def bias_search(loss: str, bias: float, slack: float) -> BiasSearch:
    """Return the search that suits a loss.

    Parameters
    ----------
    loss : str
    bias : float
        Where to begin.
    slack : float
        By how much the losses' sum may be above its minimum.
    """
    return corner(bias, slack) if loss == "hinge_loss" else newton_on_bias(bias, slack)


def newton_on_bias(bias: float, slack: float = 0.0) -> BiasSearch:
    """Look for the bias where the slope is 0, by Newton's method within a bracket."""
    low, high = -math.inf, math.inf
    for _ in range(100):
        answer = yield [bias]
        ((slope,), (bend,)) = answer.tolist()
        if slope == 0 or slope * slope <= 2 * slack * bend:
            break
        low, high = (bias, high) if slope < 0 else (low, bias)
        step = min(max(-slope / bend, -4.0), 4.0) if bend > 0 else -math.copysign(4.0, slope)
        if not low < bias + step < high:
            if math.isinf(high - low) or _is_near(step, bias):
                break  # rounding: the middle of the bracket would be further away
            step = low + (high - low) / 2 - bias
        bias += step
        if _is_near(step, bias):
            break
    return bias


def _is_near(step: float, bias: float) -> bool:
    return abs(step) <= NEAR * (1 + abs(bias))


def corner(bias: float, slack: float) -> BiasSearch:
    """Look for the bias where the slope, a sum of steps, changes its sign.

    The losses are convex: between two places the minimum is no further below the first than the
    slope there times their distance.
    """
    places = np.concatenate([bias - REACHES, [bias], bias + REACHES[::-1]])
    low, high = (-math.inf, -math.inf), (math.inf, math.inf)
    for _ in range(100):
        answer = yield places.tolist()
        for place, slope in zip(places.tolist(), answer[0].tolist(), strict=True):
            if slope == 0:
                return float(place)
            if slope < 0:
                low = max(low, (place, slope))
            else:
                high = min(high, (place, slope))
        width = high[0] - low[0]
        if math.isinf(width):  # further out
            ends = (low[0], 4 * REACHES[0]) if math.isinf(high[0]) else (high[0], -4 * REACHES[0])
            places = ends[0] + ends[1] * 4.0 ** np.arange(PLACES)
            continue
        nearer = min(low, high, key=lambda end: abs(end[1]))
        if abs(nearer[1]) * width <= slack or width <= NEAR * (1 + abs(nearer[0])):
            break
        places = low[0] + width * np.arange(1, PLACES) / PLACES
    return nearer[0]
