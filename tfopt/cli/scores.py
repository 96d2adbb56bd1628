"""How good predictions are: scikit-learn's metrics under the names that the commands print."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from sklearn import metrics


def score(loss: str, predictions: np.ndarray, targets: np.ndarray) -> dict[str, float | None]:
    """Compare predictions with the truth.

    Parameters
    ----------
    loss : str
        "logistic": predictions are probabilities, targets 0 or 1. "hinge" and "smooth_hinge":
        predictions are margins. "squared" and "poisson": any numbers.
    predictions : ndarray, shape (rows,) or, of more than two classes, (rows, classes)
    targets : ndarray, shape (rows,)
        Of more than two classes, the column of each row's own.

    Returns
    -------
    dict
        Name and value; None where the rows do not define one (AUC of a single class, R2 of a
        single row).
    """
    scores = score_of_sums(score_sums(loss, predictions, targets, float(np.mean(targets))))
    if "accuracy" in scores and predictions.ndim == 1:
        both = targets.min() != targets.max()
        scores["auc"] = float(metrics.roc_auc_score(targets, predictions)) if both else None
    return scores


def score_sums(
    loss: str, predictions: np.ndarray, targets: np.ndarray, mean: float
) -> dict[str, float]:
    """Return sums over rows that scores are made of, all but AUC, which needs all rows together.

    Parameters
    ----------
    loss, predictions, targets
        See `score`.
    mean : float
        Of the targets of all rows, wherever they are.
    """
    sums: dict[str, float] = {"rows": len(targets)}
    if loss not in ("logistic", "hinge", "smooth_hinge"):
        with np.errstate(over="ignore"):  # an RMSE of inf says enough
            residuals = targets - predictions
            sums["squares"] = np.square(residuals).sum()
            sums["distances"] = np.abs(residuals).sum()
            sums["spread"] = np.square(targets - mean).sum()
    else:
        several = predictions.ndim == 2
        threshold = 0.5 if loss == "logistic" else 0
        chosen = predictions.argmax(axis=1) if several else predictions > threshold
        sums["hits"] = float(np.sum(chosen == targets))
        if loss == "logistic":
            classes = range(predictions.shape[1] if several else 2)
            sums["log_loss"] = metrics.log_loss(
                targets, predictions, labels=classes, normalize=False
            )
    return {name: float(value) for name, value in sums.items()}


def score_of_sums(sums: Mapping[str, float]) -> dict[str, float | None]:
    """Return the scores that sums of all rows amount to."""
    n_rows = sums["rows"]
    if "hits" in sums:
        titles = {"accuracy": "hits", "log_loss": "log_loss"}
        return {title: sums[name] / n_rows for title, name in titles.items() if name in sums}
    return {
        "rmse": math.sqrt(sums["squares"] / n_rows),
        "mae": sums["distances"] / n_rows,
        "r2": _r2(sums) if n_rows > 1 else None,
    }


def _r2(sums: Mapping[str, float]) -> float:
    if sums["spread"] == 0:
        return float(sums["squares"] == 0)
    return 1 - sums["squares"] / sums["spread"]


_TITLES = {
    "accuracy": "accuracy",
    "log_loss": "log-loss",
    "auc": "AUC",
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R2",
}


def score_line(scores: dict[str, float | None]) -> str:
    """Return scores as one line of text."""
    return "  ".join(
        f"{_TITLES[name]} {'undefined' if value is None else format(value, '.6g')}"
        for name, value in scores.items()
    )
