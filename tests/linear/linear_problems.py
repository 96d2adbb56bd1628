"""Problems for linear models, of each kind that a plan tells apart, and how they were solved."""

from __future__ import annotations

import itertools
import warnings
from typing import Any, NamedTuple

import numpy as np
from common.linear_losses import DEFINITIONS, estimator, targets
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from tfopt.linear_model import SDCAClassifier

__all__ = ["PROBLEMS", "Problem", "sequence"]


class Problem(NamedTuple):
    """A loss, the shape and the kind of the features, and options of the estimator."""

    loss: str
    shape: tuple[int, int]
    kind: str = "dense"
    classes: int = 2
    options: dict[str, Any] = {}
    warm: bool = False

    def data(self) -> tuple[Any, np.ndarray]:
        random = np.random.default_rng(5)
        n, d = self.shape
        if self.kind == "sparse":
            X = sparse.random(n, d, min(1.0, 8 / d), "csr", random_state=3)
            X.data = X.data + 0.5
        else:
            X = random.standard_normal((n, d)) * random.uniform(0.5, 2, d)
        if self.kind == "shifted":
            X = X + 30
        z = X @ random.standard_normal(d) / np.sqrt(d) + random.standard_normal(n)
        if self.loss in DEFINITIONS and DEFINITIONS[self.loss].labels != "classes":
            return X, targets(self.loss, z, random)
        edges = np.quantile(z, np.arange(1, self.classes) / self.classes)
        return X, np.digitize(z, edges)

    def fitted(self) -> Any:
        X, y = self.data()
        is_joint = self.loss not in DEFINITIONS
        model = (SDCAClassifier if is_joint else estimator)(self.loss, **self.options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, y)
            if self.warm:
                model.set_params(warm_start=True).fit(X, y)
        return model


def sequence(model: Any) -> str:
    """Return the solvers of a fit's problems with their numbers of iterations."""
    problems = []
    for history in model.history_:
        groups = itertools.groupby(record["solver"] for record in history)
        problems.append(", ".join(f"{name} {len(list(group))}" for name, group in groups))
    return "; ".join(problems)


def _problems() -> dict[str, Problem]:
    table: dict[str, Problem] = {}
    few, many, wide = (60, 4), (9000, 6), (80, 600)
    for loss in DEFINITIONS:
        for shape in (few, many):
            table[f"{loss} {shape}"] = Problem(loss, shape)
        table[f"{loss} sparse"] = Problem(loss, (400, 300), "sparse", options={"tol": 1e-6})
        table[f"{loss} l1"] = Problem(loss, (120, 8), options={"l1": 2.0, "max_iter": 400})
        blocks = {"num_loss_partitions": [30, 30], "max_iter": 60, "tol": 1e-3}
        table[f"{loss} blocks"] = Problem(loss, few, options=blocks)
    for loss in ("logistic", "squared", "hinge", "smooth_hinge"):
        table[f"{loss} wide"] = Problem(loss, wide, options={"max_iter": 300})
        table[f"{loss} warm"] = Problem(loss, (300, 10), options={"tol": 1e-7}, warm=True)
        table[f"{loss} shifted"] = Problem(loss, (200, 5), "shifted")
        table[f"{loss} strong"] = Problem(loss, (300, 40), options={"l2": 1e4})
        table[f"{loss} adaptive"] = Problem(loss, few, options={"adaptive": True, "max_iter": 30})
        parts = {"num_loss_partitions": 2, "max_iter": 30}
        table[f"{loss} parts"] = Problem(loss, (300, 5), options=parts)
        table[f"{loss} l1, wide sparse"] = Problem(
            loss, (300, 2000), "sparse", options={"l1": 0.3, "l2": 0.1, "max_iter": 300}
        )
        table[f"{loss} l1, warm"] = Problem(
            loss, (300, 900), "sparse", options={"l1": 0.5, "max_iter": 200}, warm=True
        )
        table[f"{loss} l1, blocks"] = Problem(
            loss, (90, 100), options={"l1": 1.0, "num_loss_partitions": [40, 50], "max_iter": 60}
        )
    for solver, loss in (
        ("sdca", "logistic"),
        ("newton-cholesky", "logistic"),
        ("newton-cg", "logistic"),
        ("cd", "logistic"),
        ("cd", "poisson"),
        ("interior-point", "hinge"),
        ("interior-point", "quantile"),
    ):
        table[f"{loss} by {solver}"] = Problem(loss, (200, 12), options={"solver": solver})
    table["logistic of many rows"] = Problem("logistic", (40_000, 5))
    table["logistic of many features"] = Problem("logistic", (1000, 330))
    table["squared of many features"] = Problem("squared", (1000, 330))
    table["lasso"] = Problem("squared", (200, 400), options={"l1": 20.0, "l2": 0.0})
    table["sparse logistic regression"] = Problem(
        "logistic", (200, 30), options={"l1": 3.0, "l2": 0.0, "tol": 1e-8}
    )
    for shape in ((150, 4), (300, 700)):
        for loss in ("logistic", "hinge"):
            table[f"{loss}, 3 classes, {shape[1]}"] = Problem(loss, shape, "sparse", 3)
        table[f"l1, 3 classes, {shape[1]}"] = Problem(
            "logistic", shape, "sparse", 3, {"l1": 0.2, "max_iter": 300}
        )
    table["multinomial"] = Problem("multinomial", (150, 6), classes=3)
    table["multinomial, warm"] = Problem("multinomial", (150, 6), classes=3, warm=True)
    table["multinomial, sparse"] = Problem("multinomial", (400, 900), "sparse", 4)
    table["multinomial of 2 classes"] = Problem("multinomial", (150, 6))
    return table


PROBLEMS = _problems()
