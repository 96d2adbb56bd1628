"""Margins of a linear model, its loss as a function of them, and scores of its predictions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse
from sklearn import metrics

from tfopt.cli.data import Data
from tfopt.cli.files import CommandError
from tfopt.linear_model.losses import LOSSES, loss_named
from tfopt.linear_model.predictions import probabilities
from tfopt.linear_model.stored_model import StoredModel


class ModelLoss:
    """The loss of a model: one of the library's, or the sum of those of its classes.

    The model's settings may have its parameter.
    """

    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        self._loss = LOSSES[name]
        option = self._loss.option
        value = None if option is None else settings.get(option.name)
        if option is not None and value is not None:
            try:
                self._loss = loss_named(self._loss.kernel, option.checked(value))
            except ValueError as error:
                raise CommandError(f"the model's settings: {error}") from error

    def mean(
        self, margins: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None
    ) -> float:
        """Return the mean loss, weighted if there are weights.

        Margins have the shape (rows,) or, of more than two classes, (rows, classes); targets are
        the index of each row's class, or its label.
        """
        if margins.ndim > 1:
            return sum(
                self.mean(of_class, (targets == k).astype(np.float64), weights)
                for k, of_class in enumerate(margins.T)
            )
        y = 2 * targets - 1 if self._loss.is_classification else targets
        rows = self._loss.value(margins, y)
        return float(np.mean(rows) if weights is None else np.average(rows, weights=weights))

    def predict(self, margins: np.ndarray) -> np.ndarray:
        """Return the prediction for each row: a probability, a margin or a value.

        Of more than two classes a column for each; probabilities are normalized.
        """
        if margins.ndim > 1 and self._loss.link == "logit":
            return probabilities(margins)
        return self._loss.inverse_link(margins)


def margins(model: StoredModel, data: Data) -> np.ndarray:
    """Return w·x + b of every row; features without a weight are ignored.

    Their shape is (rows,) or, of more than two classes, (rows, classes).
    """
    X = data.features_for(model.n_features, model.settings.get("hash") is not None)
    with np.errstate(over="ignore", invalid="ignore"):
        result: np.ndarray
        if sparse.issparse(X):
            result = X @ model.weights.T
        else:  # row by row: a product of BLAS would depend on the other rows of a block
            products = [np.einsum("ij,j->i", X, row) for row in np.atleast_2d(model.weights)]
            result = products[0] if model.weights.ndim == 1 else np.stack(products, axis=1)
        result += model.bias
    return result


def refuse_infinite(values: np.ndarray, data: Data) -> None:
    """Refuse predictions that are not finite."""
    wrong = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
    if wrong.size:
        raise data.row_error(wrong[0], "the model's prediction is not finite")


def score(
    loss: str, predictions: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None
) -> dict[str, float | None]:
    """Compare predictions with the truth.

    Parameters
    ----------
    loss : str
        "logistic": predictions are probabilities, targets 0 or 1. Of other losses of classes they
        are margins, of losses of regression any numbers.
    predictions : ndarray, shape (rows,) or, of more than two classes, (rows, classes)
    targets : ndarray, shape (rows,)
        With more than two classes, the column of each row's class.
    weights : ndarray, shape (rows,), optional

    Returns
    -------
    dict
        Name and value; None where the rows do not define one (AUC of a single class, R2 of a
        single row).
    """
    mean = float(np.average(targets, weights=weights))
    scores = score_from_sums(score_sums(loss, predictions, targets, mean, weights))
    if "accuracy" in scores and predictions.ndim == 1:
        has_both_classes = targets.min() != targets.max()
        scores["auc"] = (
            float(metrics.roc_auc_score(targets, predictions, sample_weight=weights))
            if has_both_classes
            else None
        )
    return scores


def score_sums(
    loss: str,
    predictions: np.ndarray,
    targets: np.ndarray,
    mean: float,
    weights: np.ndarray | None = None,
) -> dict[str, float]:
    """Return the sums over rows that scores are computed from, except AUC, which needs all rows.

    `mean` is the mean target of all rows, in all blocks; for the others see `score`.
    """
    w = 1.0 if weights is None else weights
    rows = len(targets)
    sums: dict[str, float] = {"rows": rows, "weight": rows if weights is None else weights.sum()}
    has_probabilities = LOSSES[loss].link == "logit"
    if not LOSSES[loss].is_classification:
        with np.errstate(over="ignore"):  # an RMSE of inf says enough
            residuals = targets - predictions
            sums["squares"] = (w * np.square(residuals)).sum()
            sums["distances"] = (w * np.abs(residuals)).sum()
            sums["spread"] = (w * np.square(targets - mean)).sum()
    else:
        is_multiclass = predictions.ndim == 2
        threshold = 0.5 if has_probabilities else 0
        chosen = predictions.argmax(axis=1) if is_multiclass else predictions > threshold
        sums["hits"] = float(np.sum(w * (chosen == targets)))
        if has_probabilities and is_multiclass:
            classes = range(predictions.shape[1])
            sums["log_loss"] = metrics.log_loss(
                targets, predictions, labels=classes, normalize=False, sample_weight=weights
            )
        elif has_probabilities:  # the same for two classes, in a third of the time
            p = np.where(targets == 1, predictions, 1 - predictions)
            least = np.finfo(p.dtype).eps
            sums["log_loss"] = (w * -np.log(np.clip(p, least, 1 - least))).sum()
    return {name: float(value) for name, value in sums.items()}


def score_from_sums(sums: Mapping[str, float]) -> dict[str, float | None]:
    """Return the scores, given the sums over all rows."""
    total = sums["weight"]
    if "hits" in sums:
        titles = {"accuracy": "hits", "log_loss": "log_loss"}
        return {title: sums[name] / total for title, name in titles.items() if name in sums}
    return {
        "rmse": math.sqrt(sums["squares"] / total),
        "mae": sums["distances"] / total,
        "r2": _r2(sums) if sums["rows"] > 1 else None,
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
