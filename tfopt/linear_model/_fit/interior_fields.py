"""The initial variables of rows in the interior-point method; the kernel names the fields."""

from __future__ import annotations

import numpy as np

from tfopt.kernels.linear import interior_point

__all__ = ["FIELD", "centred", "kept"]

#: The index of each field by its name.
FIELD = {name: k for k, name in enumerate(interior_point.FIELDS)}
WEIGHT, DUAL, UPPER, LOWER, ABOVE, BELOW = (
    FIELD[name] for name in ("weight", "dual", "upper", "lower", "above", "below")
)
#: Near the minimum, dual variables are moved into their intervals by at most this share of them.
INSIDE = 0.3


def centred(
    weight: np.ndarray, residual: np.ndarray, low: np.ndarray, high: np.ndarray, mu: float
) -> np.ndarray:
    """Return the fields of corners with these residuals, such that all products are mu."""
    width = high - low
    # mu / near - mu / (width - near) = |residual|
    near = 2 * mu * width / (width * np.abs(residual) + 2 * mu + np.hypot(width * residual, 2 * mu))
    fields = _beside_ends(weight, low, high, near, residual > 0)
    fields[ABOVE], fields[BELOW] = mu / fields[UPPER], mu / fields[LOWER]
    return fields


def kept(
    centred: np.ndarray,
    residual: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    mu: float,
    duals: np.ndarray,
) -> np.ndarray:
    """Return fields with these dual variables, moved away from the ends of their intervals.

    The distance from an end is at least that of the `centred` fields, or the share INSIDE of the
    interval if that is smaller. The mean of the two products is mu, unless one would be too small.
    """
    weight, upper, lower = centred[[WEIGHT, UPPER, LOWER]]
    width, is_up = high - low, duals - low > (high - low) / 2
    near = np.maximum(
        np.where(is_up, high - duals, duals - low),
        np.minimum(np.where(is_up, upper, lower), INSIDE * width),
    )
    fields = _beside_ends(weight, low, high, near, is_up)
    products = np.where(residual > 0, fields[UPPER], fields[LOWER]) * np.abs(residual)
    least = np.maximum(2 * mu - products, mu) / width
    fields[ABOVE] = least + np.maximum(residual, 0.0)
    fields[BELOW] = least + np.maximum(-residual, 0.0)
    return fields


def _beside_ends(
    weight: np.ndarray, low: np.ndarray, high: np.ndarray, near: np.ndarray, is_up: np.ndarray
) -> np.ndarray:
    """Return fields of dual variables with the distances `near` from the upper or lower end."""
    fields, far = np.zeros((len(FIELD), near.size)), high - low - near
    fields[WEIGHT] = weight
    fields[DUAL] = np.where(is_up, high - near, low + near)
    fields[UPPER], fields[LOWER] = np.where(is_up, near, far), np.where(is_up, far, near)
    return fields
