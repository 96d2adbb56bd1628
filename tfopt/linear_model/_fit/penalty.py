"""The penalties of weights, each by itself: their values, their corners, and their gaps.

That of a weight is ``up * max(w, 0) + down * max(-w, 0) + l2 / 2 * w**2``. Both slopes are l1 times
a factor; if a weight may not be negative, the one downwards is infinite. What u = X^T (weight * a)
has beyond them is ``u - clip(u, -down, up)``, and the conjugate is its square divided by 2 * l2: of
an l2 of 0 nothing may be beyond.
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
        """Return those of n weights, of l1 and l2 times the factor of each."""
        factors = np.ones(n) if factor is None else factor
        up = l1 * factors
        return cls(l2 * factors, np.full(n, np.inf) if positive else up, up)

    def taken(self, chosen: np.ndarray) -> Penalties:
        """Return those of some of the weights."""
        return Penalties(*(part[chosen] for part in self))

    @property
    def are_free(self) -> np.ndarray:
        """Which weights have no penalty, but that they perhaps may not be negative."""
        free: np.ndarray = (self.l2 == 0) & (self.up == 0)
        return free

    def slopes(self, w: np.ndarray) -> np.ndarray:
        """Return the slope of each weight's side."""
        slopes: np.ndarray = np.where(w < 0, self.down, self.up)
        return slopes

    def sizes(self, w: np.ndarray) -> np.ndarray:
        """Return the penalties but for l2."""
        sizes: np.ndarray = self.slopes(w) * np.abs(w)
        return sizes

    def value(self, w: np.ndarray) -> float:
        """Return the sum of the penalties."""
        return float(np.add.reduce(self.sizes(w) + self.l2 / 2 * np.square(w)))

    def violations(self, w: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Return how far minus a gradient, of losses and l2, is from the slopes at the weights.

        Of weights that are 0 it is negative if it is between them.
        """
        at_corner = np.maximum(gradient - self.down, -gradient - self.up)
        beside = np.abs(gradient + self.slopes(w) * np.sign(w))
        violations: np.ndarray = np.where(w == 0, at_corner, beside)
        return violations

    def reaches(self, u: np.ndarray, errors: np.ndarray | None = None) -> np.ndarray:
        """Return u in units of the slope of its side, which is not 0.

        With bounds of the errors of u, it is the largest that these allow.
        """
        size = 0.0 if errors is None else errors
        with np.errstate(divide="ignore", invalid="ignore"):
            reaches: np.ndarray = np.maximum((u + size) / self.up, (size - u) / self.down)
        return reaches

    def gaps(self, w: np.ndarray, u: np.ndarray, errors: np.ndarray | None = None) -> np.ndarray:
        """Return the Fenchel-Young gap of each weight.

        Of an l2 of 0 it is what it would be if nothing were beyond, and what is, as an error. With
        bounds of the errors of u, it is a bound.
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
    """Return features times the scale of each, in float64: an array or a CSR matrix.

    A weight's l2 is then divided by the square of the scale.
    """
    if not sparse.issparse(X):
        return X * scale
    X = X.astype(np.float64)
    X.data *= scale[X.indices]
    return X
