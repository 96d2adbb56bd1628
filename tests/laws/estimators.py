"""Estimators certify their fits, for all forms of the same data and all ways to a model.

Programs fit any estimator with any of its losses, penalties and solvers to data in any form and
dtype, with labels and weights of any kind; recompute its certificate; go one way that gives a model
again, such as a file or a warm start; and fit an equivalent problem. What the documentation says to
be refused is refused, and then the model is as it was.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from common.linear_losses import CORNERED

from laws.estimator_data import FEATURES, FORMS, LABELS, WEIGHTS
from laws.estimator_run import CHANGES, WAYS
from laws.law import Draw, Law
from tfopt import linear_model

__all__ = ["LAW"]

PENALTIES = {
    "l2": (0.0, 1.0),
    "strong l2": (0.0, 64.0),
    "weak l2": (0.0, 2.0**-10),
    "both": (0.5, 1.0),
    "l1": (0.5, 0.0),
    "strong both": (2.0**10, 2.0),
}
#: Weights and features of so few samples with weight that folds may have none.
FEW = ("some 0", "wide")
#: The ways that models of the multinomial loss do not go, and those that take long.
NOT_MULTINOMIAL = ("blocks", "chosen", "groups")
SOLVERS = ("auto", "sdca", "newton-cholesky", "newton-cg", "cd", "interior-point")


def _models() -> dict[str, tuple[str, str]]:
    """Return the estimators with their losses, by name."""
    models = {}
    for name in linear_model.__all__:
        kind = getattr(linear_model, name)
        if not (isinstance(kind, type) and hasattr(kind, "fit")):
            continue
        if "loss" not in inspect.signature(kind).parameters:
            losses = ["logistic"]
        else:
            losses = [*getattr(getattr(kind, "_kind", kind), "_LOSSES", ("squared", "poisson"))]
        models |= {f"{name} {loss}": (name, loss) for loss in losses}
    return models


MODELS = _models()
FACTORS: dict[str, tuple[str, ...]] = {
    "model": tuple(MODELS),
    "penalty": tuple(PENALTIES),
    "solver": SOLVERS,
    "intercept": ("yes", "no"),
    "form": tuple(FORMS),
    "dtype": ("float64", "float32", "int64"),
    "features": tuple(FEATURES),
    "labels": tuple(LABELS),
    "classes": ("two", "three"),
    "weights": tuple(WEIGHTS),
    "numbers": ("float", "np.float64", "np.float32"),
    "way": tuple(WAYS),
    "change": tuple(CHANGES),
}


def _refusal(levels: Mapping[str, str]) -> str:
    """Return why a fit is refused, or nothing."""
    name, loss = MODELS[levels["model"]]
    l1, l2 = PENALTIES[levels["penalty"]]
    solver, cornered = levels["solver"], loss in CORNERED
    if name.startswith("FTRL"):
        return ""
    if loss == "multinomial" and levels["classes"] == "three":
        if solver not in ("auto", "newton-cg", "cd"):
            return "the multinomial loss is for Newton's method and coordinate descent"
        loss = "logistic"
    if solver in ("newton-cholesky", "newton-cg") and l1:
        return "this solver is for l1 = 0"
    if solver in ("newton-cholesky", "newton-cg", "cd") and cornered:
        return "this solver is for smooth losses"
    if solver == "interior-point" and not cornered:
        return "this solver is for losses with a corner"
    if not l2 and solver not in ("auto", "interior-point" if cornered else "cd"):
        return "without l2 there is coordinate descent, or the interior point for corners, alone"
    return ""


def _possible(levels: Mapping[str, str]) -> bool:
    way, change, model = (levels.get(name) for name in ("way", "change", "model"))
    if levels.get("labels") == "bool" and levels.get("classes") == "three":
        return False
    if model is not None:
        name, loss = MODELS[model]
        needs = {*WAYS.get(way or "", ()), *CHANGES.get(change or "", ())}
        has = {
            "classes" if "Classifier" in name else "numbers",
            "FTRL" if name.startswith("FTRL") else "SDCA",
            "chooses" if name.endswith("CV") else "fits",
            loss,
        }
        if "numbers" in has and (
            levels.get("labels", "small") != "small" or levels.get("classes", "two") != "two"
        ):
            return False
        if "FTRL" in has and levels.get("solver", "auto") != "auto":
            return False
        if "chooses" in has and (levels.get("weights"), levels.get("features")) == FEW:
            return False  # a class of a fold may have no weight
        if name == "FTRLRegressor" and levels.get("features") in ("large", "shifted"):
            return False  # its steps overflow
        if not needs <= has:
            return False
        if loss == "multinomial" and way in NOT_MULTINOMIAL:
            return False
        if "chooses" in has and levels.get("penalty", "l2") in ("l1",):
            return False
    if way in ("blocks", "cli") and (
        levels.get("solver", "auto") != "auto" or levels.get("penalty", "l2") == "l1"
    ):
        return False
    if way == "cli" and (
        levels.get("labels", "small") not in ("small", "signs", "unsigned", "float")
        or levels.get("weights", "none") != "none"
        or levels.get("intercept", "yes") != "yes"
    ):
        return False
    if change == "renamed" and levels.get("labels") in ("bool", "text", "objects"):
        return False
    return not (change == "repeated" and levels.get("weights", "none") in ("some 0", "many"))


def _program(draw: Draw) -> str:
    levels = draw.levels
    name, loss = MODELS[levels["model"]]
    l1, l2 = PENALTIES[levels["penalty"]]
    refusal = _refusal(levels)
    start = f"""\
import warnings

from laws.estimator_run import EstimatorRun

warnings.simplefilter("ignore")
run = EstimatorRun(
    {name!r},
    loss={loss!r},
    l1={l1},
    l2={l2},
    solver={levels["solver"]!r},
    intercept={levels["intercept"] == "yes"},
    form={levels["form"]!r},
    dtype={levels["dtype"]!r},
    features={levels["features"]!r},
    labels={levels["labels"]!r},
    n_classes={2 if levels["classes"] == "two" else 3},
    weights={levels["weights"]!r},
    numbers={levels["numbers"]!r},
    seed={draw.seed},
)
"""
    if refusal:
        return f"{start}run.is_refused()  # {refusal}\n"
    return f"""{start}\
run.fit()
run.certify()
run.predict()
run.go({levels["way"]!r})
run.change({levels["change"]!r})
"""


LAW = Law("estimators", FACTORS, _program, _possible, further=30)
