"""The stopping rule of an FTRL fit: held-out samples, and the improvement of the loss."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit

from tfopt.linear_model.validation import check_count, check_number

__all__ = ["Improvement", "check_stopping", "held_out", "improvement_of"]

#: The default tolerance of early stopping.
DEFAULT_TOL = 1e-3


def check_stopping(estimator: Any) -> None:
    """Refuse options that are out of range."""
    check_count("n_iter_no_change", estimator.n_iter_no_change, 1)
    check_number("validation_fraction", estimator.validation_fraction, 0, open_end=True, high=1)
    if estimator.tol is not None:
        check_number("tol", estimator.tol, 0)


def held_out(estimator: Any, y: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of the samples to learn from, and of the samples for validation.

    scikit-learn's `SGDClassifier` and `SGDRegressor` choose the same with the same options.
    """
    kind = StratifiedShuffleSplit if is_classifier(estimator) else ShuffleSplit
    splitter = kind(
        n_splits=1,
        test_size=estimator.validation_fraction,
        random_state=estimator.random_state,
    )
    learned, validated = next(splitter.split(np.empty((y.size, 1)), y))
    for samples, what in ((learned, "learn from"), (validated, "validate with")):
        if not weights[samples].any():
            raise ValueError(
                f"early_stopping leaves no samples with weight to {what}: set another "
                "random_state or validation_fraction"
            )
    return np.sort(learned), np.sort(validated)


class Improvement:
    """Whether the loss, or the score of held-out samples, still improves.

    Parameters
    ----------
    what : {"loss", "score"}
    tol : float
        A smaller improvement does not count.
    patience : int
        The number of successive epochs without an improvement that end a fit.

    Attributes
    ----------
    least : float
        The smallest loss so far, or the negative of the highest score.
    without : int
        The number of epochs since the last improvement.
    """

    def __init__(self, what: str, tol: float, patience: int) -> None:
        self.what, self._tol, self._patience = what, tol, patience
        self.least, self.without = math.inf, 0

    def has_ended(self, record: dict[str, Any]) -> bool:
        """Take the record of an epoch; return whether the fit ends with it."""
        value = -record["score"] if self.what == "score" else record["loss"]
        self.without = self.without + 1 if value > self.least - self._tol else 0
        self.least = min(self.least, value)
        return self.without >= self._patience

    def warn(self, max_iter: int) -> None:
        """Warn, for the caller's caller, that the last epoch still improved the model."""
        warnings.warn(
            f"the {self.what} still improved after max_iter={max_iter} epochs: raise max_iter or "
            "tol",
            ConvergenceWarning,
            stacklevel=4,
        )


def improvement_of(estimator: Any) -> Improvement | None:
    """Return the stopping rule of an estimator's fit, or None if all epochs are made."""
    if estimator.tol is None and not estimator.early_stopping:
        return None
    what = "score" if estimator.early_stopping else "loss"
    tol = DEFAULT_TOL if estimator.tol is None else float(estimator.tol)
    return Improvement(what, tol, int(estimator.n_iter_no_change))
