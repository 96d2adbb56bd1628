"""Fits with a certified duality gap, in this process or on a cluster."""

from __future__ import annotations

import math
import time
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from tfopt.cli.data import class_weights, find_classes, labels_of
from tfopt.cli.files import CommandError, show_label
from tfopt.cli.options import CLASSIFICATION
from tfopt.cli.report import (
    Certificate,
    Progress,
    Result,
    note_model_size,
)
from tfopt.cli.rows import Place, Rows
from tfopt.cli.settings import Settings
from tfopt.linear_model.stored_model import Columns, StoredModel

_BAR = "{desc} {percentage:3.0f}%|{bar}| {elapsed}{postfix}"


class _Way:
    """The way from the first gap to the tolerance, on a scale of logarithms, in percent.

    With several classes, which take turns, it is that of the one that has come furthest.
    """

    def __init__(self, tol: float) -> None:
        self._tol, self._first, self._done = tol, 0.0, 0.0

    def further(self, gap: float) -> float:
        """Return the progress that an iteration's gap adds."""
        if not self._first:
            self._first = min(max(gap, self._tol * 10), 1e300)
        far = math.log(self._first / self._tol)
        done = 100 * min(math.log(self._first / max(gap, self._tol)) / far, 1.0)
        before, self._done = self._done, max(done, self._done)
        return self._done - before


def fit(place: Place, parts: dict[str, Rows], settings: Settings, quiet: bool) -> Result:
    """Fit a model to the "train" rows, and score it on all rows; the result has a certificate."""
    train = parts["train"]
    lengths = train.block_lengths(settings.blocks)
    if lengths == list(train.lengths):
        settings = settings.replaced(blocks=len(lengths))
    classes = None
    if settings.loss in CLASSIFICATION:
        classes = find_classes(train.name, train.labels, settings.loss)
    note_model_size(train.n_features, quiet)
    total = train.total_weight
    l2 = 1 / total if settings.l2 is None else settings.l2
    started = time.perf_counter()
    with warnings.catch_warnings(), Progress(quiet, total=100, bar_format=_BAR) as progress:
        way = _Way(settings.tol)

        def show(record: dict[str, Any]) -> None:
            line = f"iteration {record['iteration']:4}  gap {record['gap']:.3g}"
            number = record["iteration"]
            gap = f"{record['gap']:.1e}"
            progress.show(line if record["certified"] else "", iteration=number, gap=gap)
            progress.advance(way.further(record["gap"]))

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
            **settings.loss_options,
        }
        labels = labels_of(classes, train.columns)
        if settings.class_weight is not None:
            options["class_weight"] = class_weights(train.name, settings.class_weight, labels)
        if settings.solver != "auto":  # which estimators of a cluster always are
            options["solver"] = settings.solver
        if settings.positive:  # which those do not have
            options["positive"] = True
        name = "SDCARegressor" if classes is None else "SDCAClassifier"
        try:
            estimator = place.fit(name, options, train, classes, settings, lengths)
            check_labels(estimator, labels)
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
        settings=settings.replaced(l2=l2).as_dict(),
        columns=train.columns or Columns(),
    )
    with np.errstate(all="ignore"):  # an overflowing loss is refused below
        measured = {part: rows.evaluate(model) for part, rows in parts.items()}
    for part, (loss, _) in measured.items():
        if not np.isfinite(loss):
            raise CommandError(f"the {part} loss is not finite: scale the features or raise --l2")
    return Result(
        model,
        {part: loss for part, (loss, _) in measured.items()},
        {part: scores for part, (_, scores) in measured.items()},
        {part: rows.n_rows for part, rows in parts.items()},
        {part: rows.n_skipped for part, rows in parts.items()},
        seconds,
        certificate_of(estimator, total, model.labels, settings.tol),
        [
            [(each["iteration"], each["gap"]) for each in history if each["certified"]]
            for history in estimator.history_
        ],
    )


def check_labels(estimator: Any, labels: tuple[Any, ...]) -> None:
    """Refuse a fit that left out labels because their rows have no weight."""
    lost = np.setdiff1d(np.arange(len(labels)), getattr(estimator, "classes_", []))
    if lost.size:
        raise ValueError(
            f"no row of the label {show_label(labels[lost[0]])} has weight: leave these rows out"
        )


def _weights_and_bias(
    estimator: Any, n_features: int, settings: Settings
) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and bias in the form of a model."""
    coef = np.atleast_2d(estimator.coef_)
    bias = np.array(estimator.intercept_).reshape(-1)
    if settings.bias_feature is not None:
        bias = coef[:, -1] * settings.bias_feature
    weights = coef[:, :n_features]
    return (weights if len(weights) > 1 else weights[0]).copy(), bias


def certificate_of(
    estimator: Any, total_weight: float, classes: tuple[Any, ...] | None, tol: float
) -> Certificate:
    """Return the certificate of the estimator, in terms of the mean loss."""
    columns = (
        np.ravel(values).tolist()
        for values in (
            estimator.objective_ / total_weight,
            estimator.dual_gap_ / total_weight,
            estimator.n_iter_,
        )
    )
    of_classes = [
        Certificate(
            objective, gap, tol, n_iter, tuple(dict.fromkeys(each["reason"] for each in history))
        )
        for objective, gap, n_iter, history in zip(*columns, estimator.history_, strict=True)
    ]
    if len(of_classes) == 1:
        return of_classes[0]
    assert classes is not None
    return Certificate(
        sum(each.objective for each in of_classes),
        sum(each.gap for each in of_classes),
        tol,
        sum(each.iterations for each in of_classes),
        classes=dict(zip(classes, of_classes, strict=True)),
    )
