"""What a fit starts from: the samples, and perhaps an earlier fit."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np

from tfopt.kernels.linear import visits
from tfopt.linear_model._fit.coordinates import RowSpace
from tfopt.linear_model._fit.problem import Rows

__all__ = ["TrainingData", "WarmStart"]


@dataclasses.dataclass
class TrainingData:
    """The samples as the solvers take them, for any penalties.

    Attributes
    ----------
    rows : tuple of ndarray
        The features, minus `shift`.
    X_shape : tuple of int
    shift : ndarray, shape (n_features,), or None
    target : callable
        From the number of a problem to its labels, which are made when they are needed: those of
        many classes at once would take more memory than the rows.
    n_problems : int
    weights : ndarray, shape (n_samples,)
    n_threads : int
        How many threads to use at most.
    sum_of_squares : float or None
        That of the features, if it is known already.
    offset : ndarray, shape (n_samples,), or None
        What is added to the scores, of a loss that has no other targets for it.
    """

    rows: Rows
    X_shape: tuple[int, int]
    shift: np.ndarray | None
    target: Callable[[int], np.ndarray]
    n_problems: int
    weights: np.ndarray
    n_threads: int
    sum_of_squares: float | None = None
    offset: np.ndarray | None = None

    def workers_and_threads(self) -> tuple[int, int]:
        """Return how many problems to solve at a time, and on how many threads each."""
        workers = min(self.n_threads, self.n_problems)
        return workers, max(1, self.n_threads // workers)

    @functools.cached_property
    def squared_norms(self) -> np.ndarray:
        """Those of the rows, which only visits need."""
        return visits.squared_norms(self.rows[0], self.rows[2], self.rows[3])

    @functools.cached_property
    def row_space(self) -> RowSpace:
        """Coordinates of the rows, which serve all penalties."""
        return RowSpace(self.rows, self.n_threads)

    @property
    def mean_square(self) -> float:
        """The mean of `squared_norms`."""
        if self.sum_of_squares is None:
            return float(self.squared_norms.mean())
        return self.sum_of_squares / self.X_shape[0]

    def squares_overflow(self, l2: float) -> bool:
        """Whether a row's square divided by l2 is infinite."""
        if self.sum_of_squares is not None and math.isfinite(self.sum_of_squares / l2):
            return False
        return not math.isfinite(self.squared_norms.max(initial=0) / l2)


@dataclasses.dataclass(frozen=True)
class WarmStart:
    """An earlier fit that is thought to be near, for the shifted features.

    Attributes
    ----------
    w : ndarray, shape (n_problems, n_features)
    bias : ndarray, shape (n_problems,)
    duals : ndarray, shape (n_problems, n_samples), or None
        If they are known, and of the same samples.
    """

    w: np.ndarray
    bias: np.ndarray
    duals: np.ndarray | None
