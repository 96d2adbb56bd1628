"""`tfopt train --solver sdca`: the minimum of a penalized loss, and how near it was found."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from tfopt import linear_model
from tfopt.cli.data import Data, classes_of, targets
from tfopt.cli.errors import CommandError
from tfopt.cli.losses import loss_of
from tfopt.cli.model import Model
from tfopt.cli.report import Certificate, Result
from tfopt.cli.scores import score
from tfopt.cli.settings import CLASSIFICATION, SdcaSettings

#: From an estimator's name, its parameters, X, y and the rows of each block to it, fitted.
Solver: TypeAlias = Callable[[str, dict[str, Any], Any, np.ndarray, Any], Any]


def here(name: str, options: dict[str, Any], X: Any, y: np.ndarray, rows: list[int] | None) -> Any:
    """Return an estimator, fitted in this process."""
    return getattr(linear_model, name)(num_loss_partitions=rows, **options).fit(X, y)


def fit(train: Data, test: Data | None, settings: SdcaSettings, solver: Solver = here) -> Result:
    """Find the minimum and score the model.

    Parameters
    ----------
    train : Data
    test : Data or None
    settings : SdcaSettings
    solver : callable, optional
        What fits on a cluster.

    Returns
    -------
    Result
        With a certificate.
    """
    n_rows, n_features = train.features.shape
    if settings.l2 is None:
        settings = dataclasses.replace(settings, l2=1 / n_rows)
    classes = classes_of(train, settings.loss) if settings.loss in CLASSIFICATION else None
    parts = {"train": train} | ({"test": test.with_width(n_features)} if test else {})
    truth = {part: targets(data, classes) for part, data in parts.items()}
    started = time.perf_counter()
    estimator = solved(train, truth["train"], settings, solver)
    seconds = time.perf_counter() - started
    weights, bias = weights_of(estimator, n_features, settings)
    model = Model(
        weights=weights,
        bias=bias,
        loss=settings.loss,
        classes=classes,
        zero_based=train.zero_based,
        optimizer={"name": "SDCA"},
        settings=dataclasses.asdict(settings),
    )
    loss = loss_of(settings.loss, classes)
    margins = {part: model.margins(data) for part, data in parts.items()}
    return Result(
        model,
        {part: [loss.mean(margins[part], truth[part])] for part in parts},
        {part: score(settings.loss, loss.predict(margins[part]), truth[part]) for part in parts},
        {part: data.labels.size for part, data in parts.items()},
        seconds,
        certificate(estimator, n_rows, classes, settings.tol),
    )


def solved(train: Data, truth: np.ndarray, settings: SdcaSettings, solver: Solver) -> Any:
    """Return the estimator, fitted: it penalizes the sum of the losses instead of their mean."""
    assert settings.l2 is not None
    X, n_rows = train.features, train.labels.size
    if settings.bias is not None and settings.bias > 0:
        X = sparse.hstack([X, np.full((n_rows, 1), settings.bias)], format="csr")
    name = "SDCAClassifier" if settings.loss in CLASSIFICATION else "SDCARegressor"
    options = {
        "loss": settings.loss,
        "l1": settings.l1 * n_rows,
        "l2": settings.l2 * n_rows,
        "fit_intercept": settings.bias is None,
        "tol": settings.tol,
        "max_iter": settings.epochs,
        "random_state": settings.seed,
    }
    rows = None if settings.blocks is None else rows_of_blocks(n_rows, settings.blocks)
    with warnings.catch_warnings():
        # the certificate says it; and of many classes, each may have but a row
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        try:
            return solver(name, options, X, truth, rows)
        except ValueError as error:
            raise CommandError(f"{train.name}: {error}") from error


def rows_of_blocks(n_rows: int, n_blocks: int) -> list[int]:
    """Return as equal numbers as there are, none of them 0, the larger ones first."""
    each, more = divmod(n_rows, n_blocks)
    return [each + (k < more) for k in range(min(n_blocks, n_rows))]


def weights_of(
    estimator: Any, n_features: int, settings: SdcaSettings
) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and bias as a model keeps them."""
    coef = np.atleast_2d(estimator.coef_)
    bias = np.array(estimator.intercept_).reshape(-1)
    if settings.bias is not None and settings.bias > 0:
        bias = coef[:, -1] * settings.bias
    weights = coef[:, :n_features]
    return (weights if len(weights) > 1 else weights[0]).copy(), bias


def certificate(
    estimator: Any, n_rows: int, classes: tuple[float, ...] | None, tol: float
) -> Certificate:
    """Return what the estimator proves, for the mean of the losses."""
    objectives, gaps = (
        np.ravel(values) / n_rows for values in (estimator.objective_, estimator.dual_gap_)
    )
    each = [
        Certificate(objective, gap, tol, n_iter)
        for objective, gap, n_iter in zip(
            objectives.tolist(), gaps.tolist(), estimator.n_iter_.tolist(), strict=True
        )
    ]
    if len(each) == 1:
        return each[0]
    assert classes is not None
    return Certificate(
        sum(one.objective for one in each),
        sum(one.gap for one in each),
        tol,
        sum(one.iterations for one in each),
        dict(zip(classes, each, strict=True)),
    )
