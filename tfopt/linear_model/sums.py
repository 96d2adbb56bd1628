"""Sums that no library's threads take part in.

BLAS adds up in an order that depends on its number of threads, and wakes them for products that
are shorter than the waking.
"""

from __future__ import annotations

import numpy as np

__all__ = ["total"]


def total(weight: np.ndarray, values: np.ndarray) -> float:
    """Return the sum of weight * value."""
    return float(np.sum(weight * values))
