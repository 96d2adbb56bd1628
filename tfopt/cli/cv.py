"""`tfopt cv`: choose the best of several penalties by cross-validation, and print a table."""

from __future__ import annotations

import argparse
import math
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, StratifiedKFold

from tfopt import threads
from tfopt.cli import sdca
from tfopt.cli.data import Data, class_weights, find_classes, labels_of
from tfopt.cli.files import (
    CommandError,
    check_writable,
    echo,
    note_bad_lines,
    print_json,
    show_label,
)
from tfopt.cli.models import write_model
from tfopt.cli.options import CLASSIFICATION
from tfopt.cli.readers import read_data, rows_of
from tfopt.cli.report import Progress, note_left_out, warn_unconverged
from tfopt.cli.rows import Place, examples_of
from tfopt.core.versions import versions
from tfopt.linear_model import LinearClassifierCV, LinearRegressorCV
from tfopt.linear_model.evaluation import Evaluation
from tfopt.linear_model.losses import loss_of

#: Values of C, if no penalties are given.
PATH = [10.0**k for k in range(-3, 4)]


def run(arguments: argparse.Namespace) -> int:
    """Run `tfopt cv`; return the exit code."""
    if arguments.model:
        check_writable(arguments.model, arguments.data)
    data = read_data(arguments.data, arguments.reading)
    note_bad_lines(arguments.data, data.n_skipped, arguments.quiet)
    note_left_out(arguments.data, data.columns, arguments.quiet)
    total = data.total_weight
    path = arguments.l2 or [1 / (C * total) for C in arguments.C or PATH]
    path = sorted(path, reverse=True)  # the largest penalty first: its fit is the easiest
    fits = _fits(data, path, arguments)
    lines = [_line(l2, total, [of_fold[k] for of_fold in fits]) for k, l2 in enumerate(path)]
    best = min(lines, key=lambda line: line["loss"])
    if arguments.model:
        settings = arguments.settings.replaced(l2=best["l2"])
        result = sdca.fit(Place(), {"train": rows_of(data)}, settings, quiet=True)
        write_model(arguments.model, result.model)
    if arguments.json:
        facts = {"command": "cv", "data": arguments.data, "rows": data.labels.size}
        facts |= {"features": data.features.shape[1], "bad_lines": data.n_skipped}
        for name in ("folds", "loss", "l1", "positive", "tol", "epochs", "seed", "model"):
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


#: How well a fit does on the rows held out, and its iterations and relative gap.
_Fit = tuple[Evaluation, int, float]


def _fits(data: Data, path: list[float], arguments: argparse.Namespace) -> list[dict[int, _Fit]]:
    """Return the fits of each fold by the numbers of their penalties."""
    classes = None
    if arguments.loss in CLASSIFICATION:
        classes = find_classes(data.name, data.labels, arguments.loss)
    X, y, weights, _ = examples_of(data, classes, None)
    labels = labels_of(classes, data.columns)
    if len(y) < arguments.folds:
        raise CommandError(f"{data.name}: has {len(y)} rows, too few for --folds {arguments.folds}")
    if classes is not None:
        counts = np.bincount(y.astype(np.intp))
        if counts.min() < 2:  # it could not be both learned and scored
            label = show_label(labels[counts.argmin()])
            raise CommandError(
                f"{data.name}: each class needs two rows, and that of the label {label} has one"
            )
    shuffle = {"shuffle": True, "random_state": arguments.seed}
    split: Any = (KFold if classes is None else StratifiedKFold)(arguments.folds, **shuffle)
    folds = list(split.split(X, y))
    fits: list[dict[int, _Fit]] = [{} for _ in folds]
    phi = loss_of(arguments.loss, arguments.settings.loss_options)
    options = arguments.settings.loss_options
    if arguments.class_weight is not None:
        options |= {"class_weight": class_weights(data.name, arguments.class_weight, labels)}
    total, kind = data.total_weight, LinearRegressorCV if classes is None else LinearClassifierCV
    choice: Any = kind(
        arguments.loss,
        l2s=[l2 * total for l2 in path],
        l1=arguments.l1 * total,
        positive=bool(arguments.positive),
        cv=folds,
        refit=False,
        tol=arguments.tol,
        max_iter=arguments.epochs,
        random_state=arguments.seed,
        n_jobs=-1,
        **options,
    )
    with (
        warnings.catch_warnings(),
        Progress(arguments.quiet, total=arguments.folds * len(path), unit=" fits") as progress,
    ):

        def told(model: Any, held: np.ndarray, k: int) -> None:
            sdca.check_labels(model, labels)
            fold = next(j for j, (_, test) in enumerate(folds) if test is held)
            with np.errstate(all="ignore"):  # an overflowing loss is infinite, and not the best
                z = X[held] @ np.atleast_2d(model.coef_).T + model.intercept_
                z = z if z.shape[1] > 1 else z[:, 0]
                z = z if data.offset is None else z + data.offset[held]
                found = Evaluation.of(phi, z, y[held], None if weights is None else weights[held])
            certificate = sdca.certificate_of(model, 1.0, labels, model.tol)
            fits[fold][k] = found, certificate.iterations, certificate.farthest.relative_gap
            line = f"fold {fold + 1:3}  l2 {path[k]:<10.4g}  loss {found.loss:.6g}"
            progress.show(line, fold=fold + 1, loss=f"{found.loss:.4g}")
            progress.advance()

        choice._after_fit = told
        warnings.simplefilter("ignore", ConvergenceWarning)  # the report says so
        warnings.simplefilter("ignore", UserWarning)  # of classes with few rows
        try:
            more = {} if data.offset is None else {"offset": data.offset}
            choice.fit(X, y, weights, **more)
        except ValueError as error:
            raise CommandError(f"{data.name}: {error}") from error
    return fits


def _line(l2: float, total: float, fits: list[_Fit]) -> dict[str, Any]:
    """Return what the folds have of a penalty in common."""
    losses = np.array([found.loss for found, *_ in fits])
    scores = [found.scores() for found, *_ in fits]
    known = {name: [each[name] for each in scores] for name in scores[0]}
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
        "iterations": sum(iterations for _, iterations, _ in fits),
        "relative_gap": max(gap for *_, gap in fits),
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
