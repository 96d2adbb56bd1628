"""The penalty of each weight: its value, its corner, and its Fenchel-Young gap.

The penalty of a weight is ``up * max(w, 0) + down * max(-w, 0) + l2 / 2 * w**2``. Both slopes are
l1 times a factor; `down` is infinite if the weight may not be negative. For u = X^T (weight * a),
the excess over the slopes is ``u - clip(u, -down, up)``. The conjugate is the square of the excess
divided by 2 * l2; with l2 = 0 the excess must be 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

__all__ = ["Penalties", "scaled"]


class Penalties(NamedTuple):
    """The penalties of some weights.

    Attributes
    ----------
    l2, down, up : ndarray, shape (n_weights,)
    """

    l2: np.ndarray
    down: np.ndarray
    up: np.ndarray

    @classmethod
    def of(
        cls, n: int, l1: float, l2: float, factor: np.ndarray | None = None, positive: bool = False
    ) -> Penalties:
        """Return the penalties of n weights: l1 and l2 times the factor of each weight."""
        factors = np.ones(n) if factor is None else factor
        up = l1 * factors
        return cls(l2 * factors, np.full(n, np.inf) if positive else up, up)

    def taken(self, chosen: np.ndarray) -> Penalties:
        """Return the penalties of some of the weights."""
        return Penalties(*(part[chosen] for part in self))

    @property
    def are_free(self) -> np.ndarray:
        """Which weights have neither l1 nor l2; they may still be bounded below by 0."""
        free: np.ndarray = (self.l2 == 0) & (self.up == 0)
        return free

    def slopes(self, w: np.ndarray) -> np.ndarray:
        """Return the slope of each penalty on the side of its weight."""
        slopes: np.ndarray = np.where(w < 0, self.down, self.up)
        return slopes

    def sizes(self, w: np.ndarray) -> np.ndarray:
        """Return the penalties without their l2 terms."""
        sizes: np.ndarray = self.slopes(w) * np.abs(w)
        return sizes

    def value(self, w: np.ndarray) -> float:
        """Return the sum of the penalties."""
        return float(np.add.reduce(self.sizes(w) + self.l2 / 2 * np.square(w)))

    def violations(self, w: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Return the distance of the negative gradient, of losses and l2, from the slopes at w.

        For a weight of 0 it is negative if the negative gradient is between both slopes.
        """
        at_corner = np.maximum(gradient - self.down, -gradient - self.up)
        beside = np.abs(gradient + self.slopes(w) * np.sign(w))
        violations: np.ndarray = np.where(w == 0, at_corner, beside)
        return violations

    def reaches(self, u: np.ndarray, errors: np.ndarray | None = None) -> np.ndarray:
        """Return u divided by the slope of its side, which must not be 0.

        With bounds of the errors of u, return the largest value that they allow.
        """
        size = 0.0 if errors is None else errors
        with np.errstate(divide="ignore", invalid="ignore"):
            reaches: np.ndarray = np.maximum((u + size) / self.up, (size - u) / self.down)
        return reaches

    def gaps(self, w: np.ndarray, u: np.ndarray, errors: np.ndarray | None = None) -> np.ndarray:
        """Return the Fenchel-Young gap of each weight.

        With l2 = 0 the excess of u over the slopes counts as an error of u. With bounds of the
        errors of u, return an upper bound of the gap.
        """
        inside = np.clip(u, -self.down, self.up)
        beyond, is_square = u - inside, self.l2 > 0
        apart, size = self.l2 * w - beyond, np.abs(beyond)
        if errors is not None:
            apart, size = np.abs(apart) + errors, size + errors
        gaps: np.ndarray = np.where(is_square, 0.0, size * np.abs(w))
        np.divide(np.square(apart), 2 * self.l2, out=gaps, where=is_square)
        gaps += self.sizes(w) - inside * w
        return gaps


def scaled(X: Any, scale: np.ndarray) -> Any:
    """Return the features multiplied by their scales, in float64: an array or a CSR matrix.

    The l2 of a weight has to be divided by the square of the scale.
    """
    if not sparse.issparse(X):
        return X * scale
    X = X.astype(np.float64)
    X.data *= scale[X.indices]
    return X
