"""`tfopt train --solver sdca`: the minimum of a penalized loss, and how near it was found."""

from __future__ import annotations

import dataclasses
import time
import warnings

from sklearn.exceptions import ConvergenceWarning

from tfopt.cli import losses
from tfopt.cli.data import Data, targets, two_classes
from tfopt.cli.errors import CommandError
from tfopt.cli.model import Model
from tfopt.cli.report import Certificate, Result
from tfopt.cli.scores import score
from tfopt.cli.settings import CLASSIFICATION, SdcaSettings
from tfopt.linear_model import SDCAClassifier, SDCARegressor


def fit(train: Data, test: Data | None, settings: SdcaSettings) -> Result:
    """Find the minimum and score the model.

    Parameters
    ----------
    train : Data
    test : Data or None
    settings : SdcaSettings

    Returns
    -------
    Result
        With a certificate.
    """
    n_rows, n_features = train.features.shape
    l2 = 1 / n_rows if settings.l2 is None else settings.l2
    classes = two_classes(train, settings.loss) if settings.loss in CLASSIFICATION else None
    parts = {"train": train} | ({"test": test.with_width(n_features)} if test else {})
    truth = {part: targets(data, classes) for part, data in parts.items()}
    kind = SDCAClassifier if classes else SDCARegressor
    estimator = kind(
        settings.loss,
        l1=settings.l1 * n_rows,
        l2=l2 * n_rows,
        tol=settings.tol,
        max_iter=settings.epochs,
        random_state=settings.seed,
    )
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the certificate says it
        try:
            estimator.fit(train.features, truth["train"])
        except ValueError as error:
            raise CommandError(f"{train.name}: {error}") from error
    seconds = time.perf_counter() - started
    model = Model(
        weights=estimator.coef_.ravel(),
        bias=estimator.intercept_.reshape(1),
        loss=settings.loss,
        classes=classes,
        zero_based=train.zero_based,
        optimizer={"name": "SDCA"},
        settings={**dataclasses.asdict(settings), "l2": l2},
    )
    loss = losses.BY_NAME[settings.loss]
    margins = {part: model.margins(data) for part, data in parts.items()}
    certificate = Certificate(
        objective=float(estimator.objective_.item()) / n_rows,
        gap=float(estimator.dual_gap_.item()) / n_rows,
        tol=settings.tol,
        iterations=int(estimator.n_iter_.item()),
    )
    return Result(
        model,
        {part: [loss.mean(margins[part], truth[part])] for part in parts},
        {part: score(settings.loss, loss.predict(margins[part]), truth[part]) for part in parts},
        {part: data.labels.size for part, data in parts.items()},
        seconds,
        certificate,
    )
