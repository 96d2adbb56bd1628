"""Fits with a certified duality gap, anywhere, and `tfopt cv`."""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, StratifiedKFold

from tfopt import threads
from tfopt.cli.data import Data, class_weights, find_classes, labels_of
from tfopt.cli.files import CommandError, check_writable, echo, print_json, show_label
from tfopt.cli.models import write_model
from tfopt.cli.options import CLASSIFICATION
from tfopt.cli.readers import read_data, rows_of
from tfopt.cli.report import (
    Certificate,
    Progress,
    Result,
    note_bad_lines,
    note_left_out,
    note_model_size,
    warn_unconverged,
)
from tfopt.cli.rows import Executor, Rows, examples_of
from tfopt.cli.settings import Settings
from tfopt.core.versions import versions
from tfopt.linear_model import SDCAClassifier, SDCARegressor
from tfopt.linear_model.evaluation import Evaluation
from tfopt.linear_model.loss_record import PointwiseLoss
from tfopt.linear_model.losses import loss_of
from tfopt.linear_model.paths import WarmFits
from tfopt.linear_model.stored_model import Columns, StoredModel


def fit(executor: Executor, parts: dict[str, Rows], settings: Settings, quiet: bool) -> Result:
    """Fit a model to the part "train", and score it on all parts; the result has a certificate."""
    train = parts["train"]
    if train.in_parts:
        settings = settings.replaced(blocks=len(train.lengths))
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
            **settings.loss_options,
        }
        labels = labels_of(classes, train.columns)
        if settings.class_weight is not None:
            options["class_weight"] = class_weights(train.name, settings.class_weight, labels)
        if settings.solver != "auto":  # which estimators of a cluster always are
            options["solver"] = settings.solver
        name = "SDCARegressor" if classes is None else "SDCAClassifier"
        try:
            estimator = executor.fit(name, options, train, classes, settings)
            _check_labels(estimator, labels)
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
        _certificate(estimator, total, model.labels, settings.tol),
        [
            [(each["iteration"], each["gap"]) for each in history if each["certified"]]
            for history in estimator.history_
        ],
    )


def _check_labels(estimator: Any, labels: tuple[Any, ...]) -> None:
    """Refuse a fit that has left out labels whose rows have no weight."""
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


# ---- cross-validation

#: Values of C, if no penalties are given.
PATH = [10.0**k for k in range(-3, 4)]


class _Fit(NamedTuple):
    """One penalty on one fold."""

    loss: float
    scores: dict[str, float | None]
    iterations: int
    gap: float


def cross_validate(arguments: argparse.Namespace) -> int:
    """Run `tfopt cv`: fits of a path of penalties on all folds but one, scored on that one."""
    if arguments.model:
        check_writable(arguments.model, arguments.data)
    data = read_data(arguments.data, arguments.reading)
    note_bad_lines(arguments.data, data.n_skipped, arguments.quiet)
    note_left_out(arguments.data, data.columns, arguments.quiet)
    total = data.total_weight
    path = arguments.l2 or [1 / (C * total) for C in arguments.C or PATH]
    path = sorted(path, reverse=True)  # the largest penalty first: its fit is the easiest
    folds = list(_folds(data, path, arguments))
    lines = [_line(l2, total, [fits[k] for fits in folds]) for k, l2 in enumerate(path)]
    best = min(lines, key=lambda line: line["loss"])
    if arguments.model:
        settings = arguments.settings.replaced(l2=best["l2"])
        result = fit(Executor(), {"train": rows_of(data)}, settings, quiet=True)
        write_model(arguments.model, result.model)
    if arguments.json:
        facts = {"command": "cv", "data": arguments.data, "rows": data.labels.size}
        facts |= {"features": data.features.shape[1], "bad_lines": data.n_skipped}
        for name in ("folds", "loss", "l1", "tol", "epochs", "seed", "model"):
            facts[name] = getattr(arguments, name)
        facts |= arguments.settings.loss_options
        facts |= {"threads": threads.get_num_threads(), "path": lines, "best": best}
        print_json(facts | {"versions": versions()})
    else:
        _print_table(lines, best)
        if arguments.model:
            echo(f"model  {arguments.model}")
    gap = max(line["relative_gap"] for line in lines)
    return warn_unconverged(gap, arguments.tol, arguments.epochs, "the largest gap")


def _folds(data: Data, path: list[float], arguments: argparse.Namespace) -> Iterator[list[_Fit]]:
    """Yield the fits of each fold, in the order of the path."""
    classes = None
    if arguments.loss in CLASSIFICATION:
        classes = find_classes(data.name, data.labels, arguments.loss)
    X, y, weights = examples_of(data, classes, None)
    if len(y) < arguments.folds:
        raise CommandError(f"{data.name}: has {len(y)} rows, too few for --folds {arguments.folds}")
    if classes is not None:
        counts = np.bincount(y.astype(np.intp))
        if counts.min() < 2:  # it could not be both learned and scored
            label = show_label(labels_of(classes, data.columns)[counts.argmin()])
            raise CommandError(
                f"{data.name}: each class needs two rows, and that of the label {label} has one"
            )
    shuffle = {"shuffle": True, "random_state": arguments.seed}
    split: Any = (KFold if classes is None else StratifiedKFold)(arguments.folds, **shuffle)
    kind: Any = SDCARegressor if classes is None else SDCAClassifier
    parameters = arguments.settings.loss_options
    labels = labels_of(classes, data.columns)
    if arguments.class_weight is not None:
        weights_of_classes = class_weights(data.name, arguments.class_weight, labels)
        parameters = parameters | {"class_weight": weights_of_classes}
    loss = loss_of(arguments.loss, arguments.settings.loss_options)
    penalties = np.full(len(path), arguments.l1), np.array(path)
    with (
        warnings.catch_warnings(),
        Progress(arguments.quiet, total=arguments.folds * len(path), unit=" fits") as progress,
    ):
        warnings.simplefilter("ignore", ConvergenceWarning)  # the report says so
        warnings.simplefilter("ignore", UserWarning)  # of classes with few rows
        try:
            for number, (fitted, held) in enumerate(split.split(X, y), start=1):
                w, w_held = (None if weights is None else weights[k] for k in (fitted, held))
                total = len(fitted) if w is None else float(w.sum())
                estimator = kind(
                    arguments.loss,
                    tol=arguments.tol,
                    max_iter=arguments.epochs,
                    random_state=arguments.seed,
                    n_jobs=-1,
                    **parameters,
                )
                l1s, l2s = (total * each for each in penalties)
                warm = WarmFits(estimator, X[fitted], y[fitted], w, l1s, l2s)
                fits = []
                for k in warm.order:  # that of the path
                    warm.fit(k)
                    _check_labels(estimator, labels)
                    fits.append(_judged(estimator, loss, X[held], y[held], w_held))
                    loss_shown = f"{fits[-1].loss:.6g}"
                    line = f"fold {number:3}  l2 {path[k]:<10.4g}  loss {loss_shown}"
                    progress.show(line, fold=number, loss=loss_shown)
                    progress.advance()
                yield fits
        except ValueError as error:
            raise CommandError(f"{data.name}: {error}") from error


def _judged(
    estimator: Any, loss: PointwiseLoss, X: Any, y: np.ndarray, weights: np.ndarray | None
) -> _Fit:
    """Score a fit on rows that it has not seen."""
    with np.errstate(all="ignore"):  # an overflowing loss is infinite, and not the best
        margins = X @ np.atleast_2d(estimator.coef_).T + estimator.intercept_
        margins = margins if margins.shape[1] > 1 else margins[:, 0]
        found = Evaluation.of(loss, margins, y, weights)
    numbers = tuple(range(np.size(estimator.n_iter_)))
    certificate = _certificate(estimator, 1.0, numbers, estimator.tol)
    return _Fit(
        found.loss, found.scores(), certificate.iterations, certificate.farthest.relative_gap
    )


def _line(l2: float, total: float, fits: list[_Fit]) -> dict[str, Any]:
    """Return what the folds have of a penalty in common."""
    losses = np.array([fit.loss for fit in fits])
    names = fits[0].scores
    known = {name: [fit.scores[name] for fit in fits] for name in names}
    return {
        "l2": l2,
        "C": 1 / (l2 * total),
        "loss": float(losses.mean()),
        "standard_error": float(losses.std(ddof=1) / math.sqrt(len(fits))),
        "loss_per_fold": losses.tolist(),
        "scores": {
            name: None if None in values else float(np.mean(np.array(values, float)))
            for name, values in known.items()
        },
        "iterations": sum(fit.iterations for fit in fits),
        "relative_gap": max(fit.gap for fit in fits),
    }


def _print_table(lines: list[dict[str, Any]], best: dict[str, Any]) -> None:
    scores = [name for name in best["scores"] if name != "log_loss"]
    titles = ["l2", "C", "loss", "s.e.", *scores, "iterations"]
    echo("  ".join(f"{title:>11}" for title in titles).rstrip())
    for line in lines:
        values = [line["l2"], line["C"], line["loss"], line["standard_error"]]
        values += [line["scores"][name] for name in scores]
        shown = ["undefined" if value is None else f"{value:.6g}" for value in values]
        cells = [*shown, str(line["iterations"])]
        mark = "  <- best" if line is best else ""
        echo("  ".join(f"{cell:>11}" for cell in cells) + mark)
