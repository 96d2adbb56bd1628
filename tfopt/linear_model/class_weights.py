"""The factors of sample weights by class."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.class_weight import compute_class_weight

from tfopt.errors import InvalidArgumentError
from tfopt.linear_model.validation import check_total

__all__ = ["class_factors"]


def class_factors(class_weight: Any, classes: np.ndarray, sums: np.ndarray) -> np.ndarray | None:
    """Return the factors of the option `class_weight`, or None if there are none.

    Parameters
    ----------
    class_weight : dict, "balanced" or None
    classes : ndarray, shape (n_classes,)
    sums : ndarray, shape (n_classes,)
        The total weight of each class.
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, str) and class_weight == "balanced":
        present = sums > 0
        each = np.zeros(sums.size)
        each[present] = sums.sum() / (present.sum() * sums[present])
        return each
    each = compute_class_weight(class_weight, classes=classes, y=classes)
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(np.sum(each * sums))
    if not (each >= 0).all() or not np.isfinite(each).all():
        raise InvalidArgumentError(
            "class_weight must have finite numbers of at least 0, not "
            f"{dict(zip(classes.tolist(), each.tolist(), strict=True))}"
        )
    check_total(total)
    return np.asarray(each)
