"""What the margins of a linear model become by the link of its loss."""

from __future__ import annotations

import numpy as np

from tfopt.imports import imported

__all__ = ["probabilities", "response"]


def response(margins: np.ndarray, link: str | None) -> np.ndarray:
    """Return the expected label, the probability of 1 or the mean, or the margin without a link."""
    if link == "logit":
        expected: np.ndarray = imported("scipy.special").expit(margins)
        return expected
    return np.exp(margins) if link == "log" else margins


def probabilities(scores: np.ndarray) -> np.ndarray:
    """Return class probabilities: of more than two classes, one-versus-rest ones, normalized.

    Parameters
    ----------
    scores : ndarray, shape (n_samples, 1) or (n_samples, n_classes)

    Returns
    -------
    ndarray of float64, shape (n_samples, n_classes)
    """
    expit = imported("scipy.special").expit
    if scores.shape[1] == 1:
        return np.column_stack([expit(-scores[:, 0]), expit(scores[:, 0])])
    p = expit(scores)
    total = p.sum(axis=1, keepdims=True)
    even = np.full_like(p, 1 / p.shape[1])  # all probabilities underflowed
    shares: np.ndarray = np.divide(p, total, out=even, where=total > 0)
    return shares
