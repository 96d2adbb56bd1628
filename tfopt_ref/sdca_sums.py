"""Sums over dense rows, in an order that does not depend on threads.

The rows are cut into shares of neighbours; each is added up by itself, and then the shares in turn.
"""

from __future__ import annotations

import itertools

import numpy as np

__all__ = ["lane_predictions", "lane_sums", "moments", "newton_system"]

#: The most shares of a Hessian and of moments; a share of moments has so many rows, at least.
HESSIANS, MOMENTS = 8, 16
#: The products of so many rows are added up before they are added to the others.
PANEL = 128


def newton_system(
    X: np.ndarray, slopes: np.ndarray, bends: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums of slope * x and of bend * x x^T, x with a last feature of 1.

    Of the second, the lower triangle counts.
    """
    A = np.column_stack([X, np.ones(len(X))]).astype(np.float64)
    n_shares = max(1, min(HESSIANS, len(A) // (4 * A.shape[1])))
    sums = np.zeros((A.shape[1] + 1, A.shape[1]))
    for rows in shares(len(A), n_shares):
        counted = [i for i in rows if slopes[i] != 0 or bends[i] != 0]
        share = np.zeros_like(sums)
        for first in range(0, len(counted), PANEL):
            panel = np.zeros_like(sums)
            for i in counted[first : first + PANEL]:
                panel += np.outer(np.append(bends[i] * A[i], slopes[i]), A[i])
            share += panel
        sums += share
    lower = np.tril(sums[:-1])
    return sums[-1], lower + np.tril(lower, -1).T


def moments(X: np.ndarray) -> np.ndarray:
    """Return the sum of each column, and that of its squares."""
    sums = np.zeros((2, X.shape[1]))
    for rows in shares(len(X), max(1, min(MOMENTS, len(X) // MOMENTS))):
        share = np.zeros_like(sums)
        for i in rows:
            x = X[i].astype(np.float64)
            share += [x, x * x]
        sums += share
    return sums


def lane_predictions(X: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return X w, summed over the features in their order."""
    sums = np.zeros((len(X), w.shape[1]))
    for x, each in zip(X.T.astype(np.float64), w, strict=True):
        sums += np.outer(x, each)
    return sums


def lane_sums(X: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Return the sums of x times a row of factors, panel by panel."""
    sums = np.zeros((X.shape[1], factors.shape[1]))
    for first in range(0, len(X), PANEL):
        panel = np.zeros_like(sums)
        for x, each in zip(X[first : first + PANEL], factors[first : first + PANEL], strict=True):
            panel += np.outer(x.astype(np.float64), each)
        sums += panel
    return sums


def shares(n: int, n_shares: int) -> list[range]:
    """Cut so many rows into shares."""
    ends = [n * s // n_shares for s in range(n_shares + 1)]
    return [range(*pair) for pair in itertools.pairwise(ends)]
