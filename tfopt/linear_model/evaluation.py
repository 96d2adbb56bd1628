"""The evaluation of linear models: losses and scores from sums over blocks of rows.

Rows are given by their predictions z = x . w + b. So an estimator, a fold, a file and the blocks of
a cluster all compute a score from the same numbers.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import log_expit, logsumexp
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.utils import gen_batches
from sklearn.utils.extmath import safe_sparse_dot

from tfopt.linear_model.constant_model import Constant, Counts
from tfopt.linear_model.loss_record import PointwiseLoss, weighted_sum
from tfopt.linear_model.losses import LOSSES

__all__ = ["Deviance", "Evaluation", "explained", "mean_losses", "row_losses"]

#: The number of scores that are computed at a time, to stay in the cache.
PIECE = 2**18
#: The smallest probability in the log loss, as in `sklearn.metrics.log_loss`.
_EPS = float(np.finfo(np.float64).eps)


def row_losses(phi: PointwiseLoss, z: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the loss of each row, summed over problems.

    Parameters
    ----------
    phi : PointwiseLoss
    z : ndarray, shape (..., n_problems, n_rows)
    targets : ndarray, shape (n_problems, n_rows)
        -1 or 1 for losses of classes.

    Returns
    -------
    ndarray, shape (..., n_rows)
    """
    if phi.is_joint and len(targets) > 1:
        losses: np.ndarray = logsumexp(z, axis=-2) - (z * (targets > 0)).sum(axis=-2)
        return losses
    return np.asarray(phi.value(z, targets).sum(axis=-2))


@dataclasses.dataclass(frozen=True)
class Deviance:
    """The losses of regression above the least possible ones; those of blocks are added.

    Attributes
    ----------
    phi : PointwiseLoss
    n_rows : int
    loss : float
        The weighted sum of the losses.
    targets : Constant or Counts
        The targets, for the loss of the best constant.
    """

    phi: PointwiseLoss
    n_rows: int
    loss: float
    targets: Any

    @classmethod
    def of(cls, phi: PointwiseLoss, z: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Deviance:
        """Return the deviance of predictions z, given targets and weights of shape (n_rows,)."""
        with np.errstate(over="ignore"):
            loss = weighted_sum(weights, phi.value(z, y) - phi.least(y))
        constant: Any = (
            Constant.of(phi, y, weights) if phi.best_is_mean else Counts.of(y, weights[None])
        )
        return cls(phi, len(y), loss, constant)

    def __add__(self, other: Deviance) -> Deviance:
        n_rows, loss = self.n_rows + other.n_rows, self.loss + other.loss
        return Deviance(self.phi, n_rows, loss, self.targets + other.targets)

    @property
    def explained(self) -> float | None:
        """D squared: 1 - the loss divided by the loss of the best constant.

        If all targets are equal, it is 1 for exact predictions and 0 otherwise. It is None for less
        than two rows.
        """
        if self.n_rows < 2:
            return None
        least = self.targets.least_loss(self.phi)
        return 1 - self.loss / least if least else float(self.loss <= 0)


def explained(deviances: Sequence[Deviance]) -> float:
    """Return the mean D squared of several targets; for one row NaN, with a warning."""
    shares = [each.explained for each in deviances]
    if None in shares:
        warnings.warn(
            "D squared is not defined for less than two samples",
            UndefinedMetricWarning,
            stacklevel=3,
        )
        return math.nan
    return float(np.mean(np.array(shares, np.float64)))


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The sums from which losses and scores are computed; those of blocks are added.

    Attributes
    ----------
    n_rows : int
    weight : float
    sums : dict
        The sum of the losses as "loss", and the sums for each score by its name.
    """

    n_rows: int
    weight: float
    sums: dict[str, Any]

    @classmethod
    def of(
        cls,
        phi: PointwiseLoss,
        z: np.ndarray,
        targets: np.ndarray,
        weights: np.ndarray | None = None,
    ) -> Evaluation:
        """Return the evaluation of predictions.

        Parameters
        ----------
        phi : PointwiseLoss
        z : ndarray, shape (n_rows,) or, for more than two classes, (n_rows, n_classes)
        targets : ndarray, shape (n_rows,)
            The index of each row's class, or its value.
        weights : ndarray, shape (n_rows,), optional
        """
        w = np.ones(len(targets)) if weights is None else weights
        columns, sums = np.atleast_2d(z.T), dict[str, Any]()
        with np.errstate(over="ignore", invalid="ignore"):  # a loss may overflow
            if phi.is_classification:
                classes = np.arange(len(columns))[:, None] if z.ndim > 1 else 1
                signs = np.where(targets == classes, 1.0, -1.0).reshape(columns.shape)
                sums["loss"] = weighted_sum(w, row_losses(phi, columns, signs))
                sums |= _of_classes(phi, columns, targets, w)
            else:
                values = phi.inverse_link(z)
                sums["loss"] = weighted_sum(w, phi.value(z, targets))
                sums["mae"] = weighted_sum(w, np.abs(targets - values))
                sums["r2"] = Deviance.of(LOSSES["squared"], values, targets, w)
                sums["rmse"] = 2 * sums["r2"].loss
                if not phi.is_quadratic:
                    sums["d2"] = Deviance.of(phi, z, targets, w)
        return cls(len(targets), float(w.sum()), sums)

    def __add__(self, other: Evaluation) -> Evaluation:
        sums = {name: each + other.sums[name] for name, each in self.sums.items()}
        return Evaluation(self.n_rows + other.n_rows, self.weight + other.weight, sums)

    @property
    def loss(self) -> float:
        """The mean loss, summed over the problems of several classes; 0 if all weights are 0."""
        return float(self.sums["loss"] / self.weight) if self.weight else 0.0

    def scores(self) -> dict[str, float | None]:
        """Return the scores by name; None for a score that the rows do not define.

        Classes have "accuracy", "log_loss" if there are probabilities, and "auc" if there are two.
        Values have "rmse", "mae" and "r2", and the "d2" of a loss other than the squared one.
        """
        return {
            name: of_sum(self.sums[name], self.weight) if self.weight else None
            for name, of_sum in _SCORES.items()
            if name in self.sums
        }


def _mean(total: float, weight: float) -> float:
    return total / weight


#: Functions that compute scores, of classes and then of values, from their sums and the weight.
_SCORES: dict[str, Callable[[Any, float], float | None]] = {
    "accuracy": _mean,
    "log_loss": _mean,
    "auc": lambda ranks, _: ranks.area_under_curve(),
    "rmse": lambda squares, weight: math.sqrt(squares / weight),
    "mae": _mean,
    "r2": lambda deviance, _: deviance.explained,
    "d2": lambda deviance, _: deviance.explained,
}


def _of_classes(
    phi: PointwiseLoss, z: np.ndarray, targets: np.ndarray, w: np.ndarray
) -> dict[str, Any]:
    """Return the sums for scores of classes, given predictions of shape (n_problems, n_rows)."""
    if len(z) == 1:
        positive = targets > 0
        sums: dict[str, Any] = {"accuracy": weighted_sum(w, (z[0] > 0) == positive)}
        sums["auc"] = Counts.of(z[0], np.array([w * ~positive, w * positive]))
        logs = log_expit(np.where(positive, z[0], -z[0]))
    else:
        codes = targets.astype(np.intp)
        sums = {"accuracy": weighted_sum(w, z.argmax(axis=0) == codes)}
        logs = log_expit(z) if phi.link == "logit" else z
        logs = np.take_along_axis(logs, codes[None], 0)[0] - logsumexp(logs, axis=0)
    if phi.link is not None:
        sums["log_loss"] = weighted_sum(w, np.clip(-logs, _EPS, -math.log(_EPS)))
    return sums


def _scores(
    X: Any, coefs: np.ndarray, intercepts: np.ndarray
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield slices of the samples with x . w + b, of shape (n_models, n_problems, n_rows)."""
    weights = coefs.reshape(-1, coefs.shape[-1])
    size = max(1, PIECE // len(weights))
    for rows in gen_batches(X.shape[0], size):
        taken = X[rows].T if sparse.issparse(X) else X[rows].T.astype(np.float64, copy=False)
        scores = safe_sparse_dot(weights, taken, dense_output=True)
        yield rows, scores.reshape(*intercepts.shape, -1) + intercepts[..., None]


def _targets(y: np.ndarray, classes: np.ndarray | None) -> np.ndarray:
    """Return the labels of each problem: 1 for its class and -1 for others; values stay."""
    if classes is None:
        return y[None]
    positive = classes[1:] if len(classes) == 2 else classes
    return np.where(y == positive[:, None], 1.0, -1.0)


def mean_losses(
    X: Any,
    y: np.ndarray,
    weights: np.ndarray,
    coefs: np.ndarray,
    intercepts: np.ndarray,
    phi: PointwiseLoss,
    classes: np.ndarray | None = None,
    offset: np.ndarray | None = None,
) -> np.ndarray:
    """Return the mean losses of models, each summed over its problems.

    Samples of classes that the models do not know are left out.

    Parameters
    ----------
    X : array or CSR matrix, shape (n_samples, n_features)
    y, weights : ndarray, shape (n_samples,)
    coefs : ndarray, shape (n_models, n_problems, n_features)
        Two classes have one problem; more have one for each class.
    intercepts : ndarray, shape (n_models, n_problems)
    phi : PointwiseLoss
    classes : ndarray, shape (n_classes,), or None
    offset : ndarray, shape (n_samples,), or None
        The numbers added to the scores.

    Returns
    -------
    ndarray, shape (n_models,)
        0 if no sample with a known class has weight.
    """
    targets, sums = _targets(y, classes), np.zeros(len(coefs))
    if classes is not None:
        weights = weights * np.isin(y, classes)
    total = weights.sum()
    if not total:
        return sums
    with np.errstate(over="ignore"):  # a loss that overflows is never the best
        for rows, z in _scores(X, coefs, intercepts):
            z = z if offset is None else z + offset[rows]
            signs = targets[:, rows]
            sums += row_losses(phi, z, signs) @ weights[rows]
    means: np.ndarray = sums / total
    return means
