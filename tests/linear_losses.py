"""Losses of linear models, from the least they can be, and their conjugates by the definitions."""

from __future__ import annotations

import numpy as np
from scipy.special import xlogy

__all__ = ["conjugate", "phi"]


def phi(loss: str, z: np.ndarray, y: np.ndarray, gamma: float) -> np.ndarray:
    u = np.maximum(0, 1 - y * z)
    return {
        "logistic": lambda: np.logaddexp(0, -y * z),
        "hinge": lambda: u,
        "smooth_hinge": lambda: np.where(u >= gamma, u - gamma / 2, u * u / (2 * gamma)),
        "squared": lambda: (z - y) ** 2 / 2,
        "poisson": lambda: np.exp(z) - y * z + xlogy(y, y) - y,
    }[loss]()


def conjugate(loss: str, a: np.ndarray, y: np.ndarray, gamma: float) -> np.ndarray:
    """phi*(-a)"""
    b = y * a

    def entropy(t: np.ndarray) -> np.ndarray:
        return np.where(t > 0, t * np.log(np.where(t > 0, t, 1)), 0)

    if loss in ("logistic", "hinge", "smooth_hinge"):
        assert ((b >= 0) & (b <= 1)).all()
    if loss == "poisson":
        assert (y >= a).all()
    return {
        "logistic": lambda: entropy(b) + entropy(1 - b),
        "hinge": lambda: -b,
        "smooth_hinge": lambda: -b + gamma * b * b / 2,
        "squared": lambda: a * a / 2 - a * y,
        "poisson": lambda: entropy(y - a) - (y - a) - xlogy(y, y) + y,
    }[loss]()
