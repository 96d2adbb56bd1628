"""The margins, predictions and scores of a linear model on data."""

from __future__ import annotations

import math

import numpy as np
from scipy import sparse
from scipy.special import softmax

from tfopt.cli.data import Data, targets
from tfopt.core.links import probabilities
from tfopt.linear_model.evaluation import Evaluation
from tfopt.linear_model.stored_model import StoredModel


def margins(model: StoredModel, data: Data) -> np.ndarray:
    """Return w·x + b of every row; features without a weight are ignored.

    The shape is (rows,), or (rows, classes) for more than two classes.
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
        if data.offset is not None:
            result += data.offset
    return result


def refuse_infinite(values: np.ndarray, data: Data) -> None:
    """Refuse predictions that are not finite."""
    wrong = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
    if wrong.size:
        raise data.row_error(wrong[0], "the model's prediction is not finite")


def predicted(model: StoredModel, margins: np.ndarray) -> np.ndarray:
    """Return the prediction for each row: a probability, a margin or a value.

    More than two classes have a column each; probabilities are normalized.
    """
    if margins.ndim > 1 and model.phi.link is not None:
        return softmax(margins, axis=1) if model.phi.is_joint else probabilities(margins)
    return model.phi.inverse_link(margins)


def evaluated(data: Data, model: StoredModel) -> Evaluation:
    """Return the values from which the loss and the scores of rows are computed.

    Predictions that are not finite are refused, unless the loss is not finite either.
    """
    values = margins(model, data)
    found = Evaluation.of(model.phi, values, targets(data, model.classes), data.weights)
    if math.isfinite(found.loss):
        refuse_infinite(values, data)
    return found


_TITLES = {
    "accuracy": "accuracy",
    "log_loss": "log-loss",
    "auc": "AUC",
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R2",
    "d2": "D2",
}


def score_line(scores: dict[str, float | None]) -> str:
    """Return scores as one line of text."""
    return "  ".join(
        f"{_TITLES[name]} {'undefined' if value is None else format(value, '.6g')}"
        for name, value in scores.items()
    )
