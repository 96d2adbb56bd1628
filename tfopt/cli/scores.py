"""How good predictions are: scikit-learn's metrics under the names that the commands print."""

from __future__ import annotations

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
    scores: dict[str, float | None]
    if predictions.ndim == 2:
        scores = {"accuracy": metrics.accuracy_score(targets, predictions.argmax(axis=1))}
        if loss == "logistic":
            columns = range(predictions.shape[1])
            scores["log_loss"] = metrics.log_loss(targets, predictions, labels=columns)
    elif loss == "logistic":
        both = targets.min() != targets.max()
        scores = {
            "accuracy": metrics.accuracy_score(targets, predictions > 0.5),
            "log_loss": metrics.log_loss(targets, predictions, labels=[0, 1]),
            "auc": metrics.roc_auc_score(targets, predictions) if both else None,
        }
    elif loss in ("hinge", "smooth_hinge"):
        both = targets.min() != targets.max()
        scores = {
            "accuracy": metrics.accuracy_score(targets, predictions > 0),
            "auc": metrics.roc_auc_score(targets, predictions) if both else None,
        }
    else:
        with np.errstate(over="ignore"):  # an RMSE of inf says enough
            scores = {
                "rmse": metrics.root_mean_squared_error(targets, predictions),
                "mae": metrics.mean_absolute_error(targets, predictions),
                "r2": metrics.r2_score(targets, predictions) if targets.size > 1 else None,
            }
    return {name: value if value is None else float(value) for name, value in scores.items()}


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
