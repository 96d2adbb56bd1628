"""`tfopt train --solver sdca`: fits with a certified duality gap, in this process or elsewhere."""

from __future__ import annotations

import dataclasses
import time
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from tfopt.cli.data import find_classes
from tfopt.cli.output import CommandError
from tfopt.cli.report import Certificate, Progress, Result, note_model_size
from tfopt.cli.rows import Executor, Rows
from tfopt.cli.settings import CLASSIFICATION, SdcaSettings
from tfopt.linear_model.stored_model import Columns, StoredModel


def fit(executor: Executor, parts: dict[str, Rows], settings: SdcaSettings, quiet: bool) -> Result:
    """Fit a model to the part "train", and score it on all parts; the result has a certificate."""
    train = parts["train"]
    if train.in_parts:
        settings = dataclasses.replace(settings, blocks=len(train.lengths))
    classes = None
    if settings.loss in CLASSIFICATION:
        classes = find_classes(train.name, train.labels, settings.loss)
    note_model_size(train.n_features, quiet)
    total = train.total_weight
    l2 = 1 / total if settings.l2 is None else settings.l2
    started = time.perf_counter()
    with warnings.catch_warnings(), Progress(quiet, unit=" iterations") as progress:

        def show(record: dict[str, Any]) -> None:
            line = f"iteration {record['iteration']:4}  gap {record['gap']:.3g}"
            progress.show(line if record["certified"] else "", gap=f"{record['gap']:.1e}")
            progress.advance()

        # the report says so; and with many classes, each may have only one row
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        options = {  # the estimators penalize the sum of the losses instead of their mean
            "loss": settings.loss,
            "l1": settings.l1 * total,
            "l2": l2 * total,
            "fit_intercept": settings.bias is None,
            "tol": settings.tol,
            "max_iter": settings.epochs,
            "random_state": settings.seed,
            "callback": show,
        }
        name = "SDCARegressor" if classes is None else "SDCAClassifier"
        try:
            estimator = executor.fit(name, options, train, classes, settings)
        except ValueError as error:
            raise CommandError(f"{train.name}: {error}") from error
    seconds = time.perf_counter() - started
    weights, bias = _weights_and_bias(estimator, train.n_features, settings)
    model = StoredModel(
        weights=weights,
        bias=bias,
        loss=settings.loss,
        classes=classes,
        zero_based=train.zero_based,
        optimizer={"name": "SDCA"},
        settings=dataclasses.replace(settings, l2=l2).as_dict(),
        columns=train.columns or Columns(),
    )
    with np.errstate(all="ignore"):  # an overflowing loss is refused below
        measured = {part: rows.evaluate(model) for part, rows in parts.items()}
    for part, (loss, _) in measured.items():
        if not np.isfinite(loss):
            raise CommandError(f"the {part} loss is not finite: scale the features or raise --l2")
    return Result(
        model,
        {part: [loss] for part, (loss, _) in measured.items()},
        {part: scores for part, (_, scores) in measured.items()},
        parts,
        seconds,
        _certificate(estimator, total, model.labels, settings.tol),
        [
            [(each["iteration"], each["gap"]) for each in history if each["certified"]]
            for history in estimator.history_
        ],
    )


def _weights_and_bias(
    estimator: Any, n_features: int, settings: SdcaSettings
) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and bias in the form of a model."""
    coef = np.atleast_2d(estimator.coef_)
    bias = np.array(estimator.intercept_).reshape(-1)
    if settings.bias_feature is not None:
        bias = coef[:, -1] * settings.bias_feature
    weights = coef[:, :n_features]
    return (weights if len(weights) > 1 else weights[0]).copy(), bias


def _certificate(
    estimator: Any, total_weight: float, classes: tuple[Any, ...] | None, tol: float
) -> Certificate:
    """Return the certificate of the estimator, for the mean of the losses."""
    columns = (
        np.ravel(values).tolist()
        for values in (
            estimator.objective_ / total_weight,
            estimator.dual_gap_ / total_weight,
            estimator.n_iter_,
        )
    )
    of_classes = [
        Certificate(objective, gap, tol, n_iter)
        for objective, gap, n_iter in zip(*columns, strict=True)
    ]
    if len(of_classes) == 1:
        return of_classes[0]
    assert classes is not None
    return Certificate(
        sum(each.objective for each in of_classes),
        sum(each.gap for each in of_classes),
        tol,
        sum(each.iterations for each in of_classes),
        dict(zip(classes, of_classes, strict=True)),
    )
