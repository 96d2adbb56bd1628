"""scikit-learn's own checks of an estimator; every option has an effect."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from tfopt import linear_model
from tfopt.linear_model import FTRLClassifier, FTRLRegressor, SDCAClassifier, SDCARegressor

#: Every loss, with default options. None of the checks is expected to fail.
DEFAULTS = [
    SDCAClassifier(),
    SDCAClassifier("hinge"),
    SDCAClassifier("smooth_hinge"),
    SDCAClassifier("squared_hinge"),
    SDCAClassifier("multinomial"),
    SDCARegressor(),
    SDCARegressor("poisson"),
    SDCARegressor("gamma"),
    SDCARegressor("tweedie"),
    SDCARegressor("huber"),
    SDCARegressor("quantile"),
    SDCARegressor("epsilon_insensitive"),
    SDCARegressor("squared_epsilon_insensitive"),
    *(FTRLClassifier(loss) for loss in FTRLClassifier._LOSSES),
    *(FTRLRegressor(loss) for loss in FTRLRegressor._LOSSES),
]
#: The checks that call `partial_fit` of estimators that have it.
OF_PARTIAL_FIT = (
    "check_fit_score_takes_y",
    "check_n_features_in_after_fitting",
    "check_estimators_partial_fit_n_features",
)
#: Options of FTRL, and the checks that fail with them, and why.
FTRL_OPTIONS: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"average": True}, {}),
    ({"average": 2}, {}),
    ({"tol": 1e-4, "max_iter": 50}, {}),
    (
        {"early_stopping": True, "validation_fraction": 0.5},
        {
            **dict.fromkeys(OF_PARTIAL_FIT, "partial_fit has no early stopping"),
            "check_sample_weight_equivalence_on_dense_data": "other samples are held out",
            "check_sample_weight_equivalence_on_sparse_data": "other samples are held out",
            "check_class_weight_classifiers": "it ends when few samples of one class are right",
        },
    ),
    (
        {"class_weight": "balanced"},
        dict.fromkeys(OF_PARTIAL_FIT, "partial_fit has not all samples"),
    ),
    ({"warm_start": True}, {"check_supervised_y_2d": "the second of two fits goes on"}),
]
WITH_OPTIONS = [
    kind(**options)
    for kind in (FTRLClassifier, FTRLRegressor)
    for options, _ in FTRL_OPTIONS
    if {*options} <= {*inspect.signature(kind).parameters}
] + [FTRLClassifier("hinge", average=True)]


def expected_to_fail(estimator: Any) -> dict[str, str]:
    """Return the checks that fail with the options of an estimator."""
    own = estimator.get_params()
    tables = (checks for options, checks in FTRL_OPTIONS if {**own, **options} == own)
    return {check: why for table in tables for check, why in table.items()}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(DEFAULTS + WITH_OPTIONS, expected_failed_checks=expected_to_fail)
def test_check(estimator: Any, check: Any) -> None:
    check(estimator)


def test_defaults_are_of_all_estimators_and_losses() -> None:
    # tests/linear/test_paths.py has those that choose a penalty
    kinds = (getattr(linear_model, name) for name in linear_model.__all__ if name[-2:] != "CV")
    assert {type(model) for model in DEFAULTS} == {kind for kind in kinds if hasattr(kind, "fit")}
    for kind in (SDCAClassifier, SDCARegressor):
        assert {m.loss for m in DEFAULTS if type(m) is kind} == {*kind._LOSSES}


# ---- options


def heard(record: dict[str, Any]) -> None:
    """Take note of nothing."""


#: Of each option, values to try instead of the default.
SDCA: dict[str, list[Any]] = {
    "l1": [0.1, 1.0],
    "l2": [0.1, 10.0],
    "C": [0.1, 10.0],
    "penalty_factor": [[0.5, 1.0, 2.0, 1.0]],
    "positive": [True],
    "fit_intercept": [False],
    "solver": ["sdca", "newton-cg", "cd"],  # on few features, "auto" is "newton-cholesky"
    "adaptive": [True],
    "num_loss_partitions": [2],
    "max_iter": [2],
    "tol": [0.5, 1e-3],
    "n_jobs": [1, -1],
    "random_state": [1],
    "warm_start": [True],
    "keep_duals": [False],
    "max_time": [1e-9],
    "verbose": [True],
    "callback": [heard],
}
OPTIONS: dict[type, dict[str, list[Any]]] = {
    SDCAClassifier: {
        **SDCA,
        "loss": ["hinge", "smooth_hinge", "squared_hinge"],
        "gamma": [0.5],
        "class_weight": ["balanced", {1: 2.0}],
    },
    SDCARegressor: {
        **SDCA,
        "loss": ["poisson", "huber", "quantile"],
        "epsilon": [0.5],
        "quantile": [0.9],
        "power": [1.2],
    },
    FTRLClassifier: {
        "learning_rate": [0.1],
        "beta": [1.0],
        "initial_accumulator": [1.0],
        "l1": [0.1],
        "l2": [0.1],
        "batch_size": [1],
        "max_iter": [2],
        "n_hashes": [64],
        "fit_intercept": [False],
        "average": [True],
        "early_stopping": [True],
        "validation_fraction": [0.3],
        "n_iter_no_change": [1],
        "tol": [0.02],
        "shuffle": [False],
        "random_state": [1],
        "warm_start": [True],
        "verbose": [True],
        "callback": [heard],
        "loss": ["hinge", "smooth_hinge", "squared_hinge"],
        "gamma": [0.5],
        "class_weight": ["balanced", {1: 2.0}],
    },
}
OPTIONS[FTRLRegressor] = {
    **{
        name: OPTIONS[FTRLClassifier][name]
        for name in inspect.signature(FTRLRegressor).parameters
        if name in OPTIONS[FTRLClassifier]
    },
    "loss": ["poisson", "huber", "quantile"],
    "epsilon": [0.5],
    "quantile": [0.9],
    "power": [1.2],
}
#: What changes no number, and why.
SAME = {
    "n_jobs": "the result is the same for any number of threads",
    "verbose": "shows a bar",
    "callback": "is told, and answers nothing here",
    "warm_start": "is for the second fit",
    "keep_duals": "is of dual_coef_",
}
#: Options with which two fits differ by more than rounding, and why.
APART = {
    "Linear tol=0.5": "a gap that is set is not refined further",
    "Linear tol=0.001": "a gap that is set is not refined further",
    "Linear max_iter=2": "there are not enough iterations",
    "Linear max_time=1e-09": "there is not enough time",
    "FTRL batch_size=1": "a sample of weight 2 makes one step, the same sample twice makes two",
    "FTRL early_stopping=True": "other samples are held out",
    "FTRL validation_fraction=0.3": "other samples are held out",
}
TRIED = [
    (kind, name, value)
    for kind, table in OPTIONS.items()
    for name in table
    for value in table[name]
]
each_option = pytest.mark.parametrize(
    ("kind", "name", "value"),
    TRIED,
    ids=[f"{kind.__name__}-{n}-{getattr(v, '__name__', v)}" for kind, n, v in TRIED],
)


def family_of(kind: type) -> str:
    return "FTRL" if kind.__name__.startswith("FTRL") else "Linear"


def model_of(kind: type, name: str, value: Any) -> Any:
    """Return an estimator with an option, and with what that is of no account without."""
    more = {
        "gamma": {"loss": "smooth_hinge"},
        "epsilon": {"loss": "squared_epsilon_insensitive"},
        "quantile": {"loss": "quantile"},
        "power": {"loss": "tweedie"},
    }.get(name, {})
    if issubclass(kind, (FTRLClassifier, FTRLRegressor)):
        more |= {
            "early_stopping": {"validation_fraction": 0.5},
            "validation_fraction": {"early_stopping": True},
            "n_iter_no_change": {"tol": 0.02},
        }.get(name, {})
    ends = ("tol", "max_iter", "max_time", "random_state")
    if kind in (SDCAClassifier, SDCARegressor) and name in ends:
        more = {"solver": "sdca"}  # Newton's method is done after a few steps
    return kind(**more, **{name: value})


@pytest.mark.parametrize("kind", OPTIONS)
def test_all_options_are_tried(kind: type) -> None:
    assert {*OPTIONS[kind]} == {*inspect.signature(kind).parameters}


@each_option
def test_weights_are_repetitions_with_every_option(kind: type, name: str, value: Any) -> None:
    if name == "penalty_factor":
        value = np.resize(value, 30)  # of as many features
    model = model_of(kind, name, value)
    if name == "n_hashes":
        pytest.skip("samples are dicts then")
    for sparse in ("dense", "sparse"):
        check = getattr(estimator_checks, f"check_sample_weight_equivalence_on_{sparse}_data")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            if f"{family_of(kind)} {name}={value}" in APART:
                with pytest.raises(AssertionError, match="is not equivalent"):
                    check(kind.__name__, model)
            else:
                check(kind.__name__, model)


random = np.random.default_rng(0)
X = random.standard_normal((60, 4)) * (random.uniform(size=(60, 4)) < 0.7)
Y = (X[:, 0] + random.standard_normal(60) > 0.3) + 1.0


def answers(model: Any, *more: Any, **others: Any) -> list[bytes]:
    """Return what a fit answers with."""
    rows: Any = X
    if getattr(model, "n_hashes", None):
        rows = [{str(k): float(x) for k, x in enumerate(row)} for row in X]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(rows, Y, *more, **others)
    found = (model.coef_, model.intercept_, model.n_iter_)
    return [np.asarray(part).tobytes() for part in found]


@each_option
def test_every_option_is_heard(
    kind: type, name: str, value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """It changes the answer, or does what `SAME` says."""
    model = model_of(kind, name, value)
    plain = clone(model).set_params(**{name: inspect.signature(kind).parameters[name].default})
    if name not in SAME:
        assert answers(model) != answers(plain)
        return
    told: list[Any] = []
    if name == "callback":
        model.set_params(callback=told.append)
    assert answers(model) == answers(plain)
    if name == "verbose":
        streams = kind in (FTRLClassifier, FTRLRegressor)
        assert ("loss=" if streams else "gap=") in capsys.readouterr().err
    if name == "callback" and hasattr(model, "history_"):
        assert told == model.history_[0]
    elif name == "callback":
        assert [record["iteration"] for record in told] == [*range(1, model.n_iter_ + 1)]
        assert told[-1]["loss"] == model.loss_ and told[-1]["samples"] == model.t_
    if name == "keep_duals":
        assert hasattr(plain, "dual_coef_") and not hasattr(model, "dual_coef_")
    if name == "warm_start":
        assert answers(model) != answers(plain)


@pytest.mark.parametrize("kind", OPTIONS)
def test_every_argument_of_fit_is_heard(kind: type) -> None:
    others = {"offset": np.arange(60) % 3}
    known = [*inspect.signature(kind.fit).parameters]
    assert known == ["self", "X", "y", "sample_weight", *others]
    assert answers(kind(), **others) != answers(kind())
    assert answers(kind(), np.arange(60) % 3) != answers(kind())
    global X, Y
    plain, before = answers(kind()), (X, Y)
    try:
        X = X * 2
        assert answers(kind()) != plain
        X, Y = before[0], before[1][::-1]
        assert answers(kind()) != plain
    finally:
        X, Y = before
