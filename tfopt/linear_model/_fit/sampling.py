"""The same problem for a sample of the rows, whose minimum is where Newton's method may begin."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from tfopt.kernels.arrays import csr
from tfopt.linear_model._fit.problem import InitialPoint, Problem, Rows, as_rows

__all__ = ["rows_at", "sample_rows", "sampled"]

#: The golden ratio's share of 2**32: its multiples are spread evenly.
GOLDEN = 0x9E3779B1


def sample_rows(n_rows: int, size: int) -> np.ndarray:
    """Return the numbers of rows, one of each of `size` ranges: not at the same place in each.

    Data may be periodic.
    """
    k = np.arange(size)
    return k * (n_rows // size) + (k * GOLDEN % 2**32 * (n_rows // size) >> 32)


def sampled(
    objective: Problem, initial: InitialPoint, size: int
) -> tuple[Problem, InitialPoint] | None:
    """Return the problem for a sample of the rows.

    Returns
    -------
    tuple or None
        The objective, whose penalty has the sample's share of the weight; and the initial point.
        None if the labels in the sample are all the same.
    """
    at = sample_rows(len(initial.y), size)
    y, weight = initial.y[at], initial.weight[at]
    labels = y[weight > 0]
    if labels.size == 0 or labels.min() == labels.max():
        return None
    share = float(weight.sum() / initial.weight.sum())
    return objective._replace(
        rows=rows_at(objective, at), l2=share * objective.l2
    ), initial._replace(
        y=y, weight=weight, curvature=lambda: initial.curvature()[at], a=initial.a[at]
    )


def rows_at(objective: Problem, at: np.ndarray) -> Rows:
    """Return some of the rows."""
    data, indices, indptr, dense = objective.rows
    if not data.size:
        return as_rows(dense[at])
    taken = csr.take(data, indices, indptr.astype(np.int64), at, objective.n_weights)
    return as_rows(sparse.csr_array(taken, (at.size, objective.n_weights)))
