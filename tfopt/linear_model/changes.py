"""Changes of weights as they travel: where few have changed, those alone."""

from __future__ import annotations

import dataclasses

import numpy as np

__all__ = ["Change"]

#: Above this share of all weights, a vector of all is the shorter message, or about as short.
FEW = 0.25


@dataclasses.dataclass(frozen=True)
class Change:
    """A vector, perhaps as its non-zeros.

    Attributes
    ----------
    size : int
    indices : ndarray of int64 or None
        Ascending; None if `values` are all there are.
    values : ndarray of float64
    """

    size: int
    indices: np.ndarray | None
    values: np.ndarray

    @classmethod
    def of(cls, vector: np.ndarray) -> Change:
        """Return a vector as a change."""
        if np.count_nonzero(vector) > FEW * vector.size:
            return cls(vector.size, None, vector)
        indices = np.flatnonzero(vector)
        return cls(vector.size, indices, vector[indices])

    def __add__(self, other: Change) -> Change:
        if self.indices is None or other.indices is None:
            return Change(self.size, None, self.dense() + other.dense())
        indices = np.union1d(self.indices, other.indices)
        values = np.zeros(indices.size)
        values[np.searchsorted(indices, self.indices)] = self.values
        values[np.searchsorted(indices, other.indices)] += other.values
        total = Change(self.size, indices, values)
        return Change(self.size, None, total.dense()) if indices.size > FEW * self.size else total

    def dense(self) -> np.ndarray:
        """Return all of the vector."""
        if self.indices is None:
            return self.values
        vector = np.zeros(self.size)
        vector[self.indices] = self.values
        return vector
