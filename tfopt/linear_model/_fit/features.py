"""Columns of the rows, and the sets of features over which steps with l1 go."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
from scipy import sparse

from tfopt.linear_model._fit.penalty import Penalties
from tfopt.linear_model._fit.problem import Problem, Rows, as_rows
from tfopt.linear_model.validation import checked_sparse

__all__ = ["Features", "working_set"]


class Features:
    """The rows of a problem, of which columns are taken; CSR matrices are converted once."""

    def __init__(self, problem: Problem):
        self._n, self._rows = problem.n_weights, problem.rows
        self._dense = problem.rows[3] if problem.rows[3].shape[1] else None
        self._columns: Any = None
        self._lock = threading.Lock()

    def take(self, features: np.ndarray) -> Any:
        """Return columns: an array, or a CSC matrix."""
        if self._dense is not None:
            return self._dense if features.size == self._n else self._dense[:, features]
        with self._lock:  # classes are solved in parallel
            if self._columns is None:
                *entries, dense = self._rows
                rows = sparse.csr_array(tuple(entries), shape=(len(dense), self._n))
                self._columns = checked_sparse(rows, own=True).tocsc()
        return self._columns if features.size == self._n else self._columns[:, features]

    def rows(self, features: np.ndarray) -> Rows:
        """Return the rows of these columns, as the kernels take them."""
        if features.size == self._n:
            return self._rows
        taken = self.take(features)
        return as_rows(taken.tocsr() if sparse.issparse(taken) else np.ascontiguousarray(taken))

    def columns(self, features: np.ndarray) -> Rows:
        """Return these columns, as the kernels take rows."""
        taken = self.take(features)
        return as_rows(
            sparse.csr_array(taken.T) if sparse.issparse(taken) else np.ascontiguousarray(taken.T)
        )


def working_set(w: np.ndarray, gradient: np.ndarray, penalties: Penalties, size: int) -> np.ndarray:
    """Return the features whose weights are to be moved, ascending.

    These are the nonzero weights and, of the others, those that violate the optimality conditions
    most: at least a quarter. If they are too many, those with the largest violations are kept; ties
    are broken by the order of the features. All, if there are less than twice as many.

    Parameters
    ----------
    w, gradient : ndarray, shape (n_weights,)
        The gradient is of the losses and l2.
    penalties : Penalties
    size : int
        How many.
    """
    if w.size <= 2 * size:
        return np.arange(w.size)
    active, others = np.flatnonzero(w), np.flatnonzero(w == 0)
    n_active = min(active.size, max(size - size // 4, size - others.size))
    violations = penalties.violations(w, gradient)
    if n_active < active.size:
        active = active[_largest(violations[active], n_active)]
    others = others[_largest(violations[others], size - n_active)]
    return np.sort(np.concatenate([active, others]))


def _largest(values: np.ndarray, n: int) -> np.ndarray:
    """Return the places of the n largest values; of equal ones the first."""
    least = np.partition(values, values.size - n)[values.size - n] if n else math.inf
    above, equal = np.flatnonzero(values > least), np.flatnonzero(values == least)
    return np.concatenate([above, equal[: n - above.size]])
