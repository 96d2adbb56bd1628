"""Fewer rows than features: the same problem in coordinates of the space that the rows span.

With X^T = Q R, the weights w = Q u have the predictions X w = R^T u and the length of u, and what
is orthogonal to Q changes no prediction. So without l1 the rows R^T have the minimum of the rows X,
and the same best dual variables.
"""

from __future__ import annotations

import numpy as np

from tfopt_ref.sdca_certificate import Problem

__all__ = ["in_coordinates"]


def in_coordinates(problem: Problem) -> tuple[Problem, np.ndarray]:
    """Return the problem in coordinates, and Q: w = Q u are the weights."""
    Q, R = np.linalg.qr(np.asarray(problem.X, np.float64).T)
    return problem._replace(X=np.ascontiguousarray(R.T)), Q
