"""Columns of the rows, and the working sets of features for steps with l1."""

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
    """Access to columns of a problem's rows; a CSR matrix is converted once."""

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
    """Return the features whose weights a step may move, ascending.

    These are the nonzero weights, and the zero weights that violate the optimality conditions most;
    the latter get at least a quarter of the places if there are enough. Of too many nonzero weights
    those with the largest violations are kept. Ties are broken by the order of the features. All
    features are returned if there are at most twice as many as places.

    Parameters
    ----------
    w, gradient : ndarray, shape (n_weights,)
        The weights, and the gradient of the losses and the l2 penalty.
    penalties : Penalties
    size : int
        The number of features to return.
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
    """Return the indices of the n largest values; the first of equal ones."""
    least = np.partition(values, values.size - n)[values.size - n] if n else math.inf
    above, equal = np.flatnonzero(values > least), np.flatnonzero(values == least)
    return np.concatenate([above, equal[: n - above.size]])
