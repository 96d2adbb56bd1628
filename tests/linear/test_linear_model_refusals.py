"""What estimators refuse, and that a call which fails leaves the last fit as it was."""

from __future__ import annotations

import copy
import functools
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from tfopt import linear_model
from tfopt.errors import InvalidArgumentError, NotFiniteError
from tfopt.kernels.linear.ftrl import learn
from tfopt.linear_model import (
    FTRLClassifier,
    FTRLRegressor,
    SDCAClassifier,
    SDCARegressor,
    ftrl_base,
)

random = np.random.default_rng(0)
X = random.standard_normal((40, 5)) * (random.uniform(size=(40, 5)) < 0.6)
Y = {"classes": np.arange(40) % 3, "counts": random.poisson(3.0, 40).astype(float)}
Y["amounts"] = Y["counts"] + 0.5

#: Each estimator with each loss, and what it learns.
ESTIMATORS: dict[str, tuple[Any, str]] = {
    "logistic": (SDCAClassifier("logistic"), "classes"),
    "hinge": (SDCAClassifier("hinge"), "classes"),
    "smooth_hinge": (SDCAClassifier("smooth_hinge"), "classes"),
    "squared_hinge": (SDCAClassifier("squared_hinge"), "classes"),
    "blocks": (SDCAClassifier(num_loss_partitions=[15, 25]), "classes"),
    "squared": (SDCARegressor("squared"), "counts"),
    "poisson": (SDCARegressor("poisson"), "counts"),
    "gamma": (SDCARegressor("gamma"), "amounts"),
    "tweedie": (SDCARegressor("tweedie"), "counts"),
    "huber": (SDCARegressor("huber"), "counts"),
    "quantile": (SDCARegressor("quantile"), "counts"),
    "epsilon_insensitive": (SDCARegressor("epsilon_insensitive"), "counts"),
    "squared_epsilon_insensitive": (SDCARegressor("squared_epsilon_insensitive"), "counts"),
    "blocks of counts": (SDCARegressor("poisson", num_loss_partitions=[15, 25]), "counts"),
    "FTRL": (FTRLClassifier(), "classes"),
    "FTRL squared": (FTRLRegressor("squared"), "counts"),
    "FTRL poisson": (FTRLRegressor("poisson"), "counts"),
}
each_estimator = pytest.mark.parametrize("which", ESTIMATORS)


def test_the_table_has_all_estimators() -> None:
    # tests/linear/test_paths.py has those that choose a penalty
    kinds = (getattr(linear_model, name) for name in linear_model.__all__ if name[-2:] != "CV")
    tested = {type(model) for model, _ in ESTIMATORS.values()}
    assert tested == {kind for kind in kinds if hasattr(kind, "fit")}


@functools.cache
def _fitted(name: str) -> bytes:
    model, kind = ESTIMATORS[name]
    return pickle.dumps(copy.deepcopy(model).fit(X, Y[kind]))


def fitted(name: str) -> tuple[Any, np.ndarray]:
    """Return an estimator that has been fitted, and the labels that it was fitted to."""
    return pickle.loads(_fitted(name)), Y[ESTIMATORS[name][1]]


def state(model: Any) -> bytes:
    """Return all attributes' bytes, but for options that were set on purpose."""
    options = model.get_params()
    return pickle.dumps([(k, v) for k, v in sorted(vars(model).items()) if k not in options])


def with_fault(format: str, name: str, change: Any) -> Any:
    """Return X, stored sparse, with a fault in one of its arrays."""
    broken = sparse.csr_array(X).asformat(format, copy=True)
    part = getattr(broken, name).copy()
    found = change(part)
    setattr(broken, name, part if found is None else found)
    return broken


def set_to(place: int, value: int) -> Any:
    def change(part: np.ndarray) -> None:
        part[place] = value

    return change


FAULTS = {
    "too large": ("indices", set_to(-1, 10**6)),
    "one too large": ("indices", set_to(3, 40)),
    "negative": ("indices", set_to(0, -5)),
    "the end too far": ("indptr", set_to(-1, 10**6)),
    "a row too long": ("indptr", set_to(2, 10**6)),
    "falling": ("indptr", set_to(2, 0)),
    "the beginning": ("indptr", set_to(0, -1)),
    "too few rows": ("indptr", lambda part: part[:-1]),
    "too few indices": ("indices", lambda part: part[:-9]),
    "too few values": ("data", lambda part: part[:-9]),
}


@each_estimator
@pytest.mark.parametrize("format", ["csr", "csc"])
@pytest.mark.parametrize(("name", "change"), FAULTS.values(), ids=FAULTS)
def test_sparse_matrices_whose_arrays_do_not_fit(
    which: str, format: str, name: str, change: Any
) -> None:
    model, y = fitted(which)
    before = state(model)
    calls = [model.fit, model.predict, model.score]
    calls += [
        getattr(model, name)
        for name in ("partial_fit", "decision_function", "predict_proba", "predict_log_proba")
        if hasattr(model, name)
    ]
    for call in calls:
        given = (y,) if call.__name__ in ("fit", "partial_fit", "score") else ()
        with pytest.raises(InvalidArgumentError, match=r"X\.(indices|indptr|data)"):
            call(with_fault(format, name, change), *given)
        assert state(model) == before


@each_estimator
@pytest.mark.parametrize("name", ["row", "col"])
def test_coordinates_outside_of_the_matrix(which: str, name: str) -> None:
    model, y = fitted(which)
    for change in (set_to(0, -1), set_to(0, 10**6)):
        with pytest.raises(InvalidArgumentError, match=rf"X\.{name}"):
            model.fit(with_fault("coo", name, change), y)


# ---- all or nothing


def weights(value: float) -> dict[str, Any]:
    return {"sample_weight": np.where(np.arange(40) == 7, value, 1.0)}


NAN, INF = (np.where(np.arange(40)[:, None] == 7, value, X) for value in (np.nan, np.inf))

#: Not in blocks, which another message is about.
WHOLE = {"num_loss_partitions": None}
#: Of all estimators: what changes of the call, and what it says then.
ANY: dict[str, tuple[dict[str, Any], str]] = {
    "NaN": ({"X": NAN}, "NaN"),
    "infinite": ({"X": INF}, "infinity"),
    "three dimensions": ({"X": X[None]}, "Found array with dim 3"),
    "no samples": ({"X": X[:0], "y": []}, "minimum of 1 is required"),
    "fewer labels": ({"y": np.arange(39) % 3}, "inconsistent numbers of samples"),
    "labels are NaN": ({"y": np.full(40, np.nan)}, "NaN"),
    "weights are NaN": (weights(np.nan), "NaN"),
    "weights are infinite": (weights(np.inf), "infinity"),
    "weights are negative": (weights(-1.0), "Negative values in data passed to `sample_weight`"),
    "weights are all 0": ({"sample_weight": np.zeros(40)}, "zero for all samples"),
    "weights' sum": ({"sample_weight": np.full(40, 1e308)}, "sum of all samples' weights overfl"),
    "weights have columns": ({"sample_weight": np.ones((40, 1))}, "one-dimensional"),
    "fewer weights": ({"sample_weight": np.ones(39)}, "inconsistent numbers of samples"),
    "max_iter": ({"max_iter": 0}, "max_iter must be an integer of at least 1"),
    "l1": ({"l1": -1.0}, "l1 must be a finite number at least 0"),
    "l1 is NaN": ({"l1": np.nan}, "l1 must be a finite number at least 0"),
    "l2": ({"l2": -1.0}, "l2 must be a finite number"),
    "random_state": ({"random_state": "yes"}, "cannot be used to seed"),
}
SDCA: dict[str, tuple[dict[str, Any], str]] = {
    "loss": ({"loss": "log_loss"}, "loss must be one of"),
    "l2 is 0": ({"l2": 0.0, "l1": 0.0, "solver": "sdca"}, "l2=0 needs "),
    "C": ({"C": 0.0}, "C must be a finite number above 0"),
    "C is tiny": ({"C": 1e-320}, "1 / C overflows"),
    "C and l2": ({"C": 2.0, "l2": 1.0}, "C is 1 / l2: set only one of them"),
    "l1 / l2": ({"l1": 1.0, "l2": 1e-320}, "l1 / l2 overflows"),
    "tol": ({"tol": -1.0}, "tol must be a finite number at least 0"),
    "n_jobs": ({"n_jobs": 0}, "n_jobs must be a nonzero integer"),
    "n_jobs is a half": ({"n_jobs": 0.5}, "n_jobs must be a nonzero integer"),
    "features of 1e200": ({"X": X * 1e200}, "overflow: scale the features"),
    "adaptive": ({"adaptive": True, "num_loss_partitions": 2}, "adaptive visits need"),
    "solver": ({"solver": "lbfgs"}, "solver must be one of"),
    "visits in blocks": (
        {"solver": "sdca", "num_loss_partitions": [15, 25]},
        "does not apply to fixed blocks",
    ),
    "adaptive steps": (
        {"solver": "newton-cg", "adaptive": True, **WHOLE},
        "does not visit samples",
    ),
    "steps in parts": (
        {"solver": "newton-cholesky", "num_loss_partitions": 1},
        "does not visit samples",
    ),
    "steps with l1": ({"solver": "newton-cg", "l1": 1.0, **WHOLE}, "needs l1=0, not l1=1.0"),
    "no parts": ({"num_loss_partitions": 0}, "num_loss_partitions must be"),
    "no rows": ({"num_loss_partitions": [0, 40]}, "each of num_loss_partitions must be"),
    "other rows": ({"num_loss_partitions": [20, 21]}, "must add up to the number of samples, 40"),
}
CLASSES: dict[str, tuple[dict[str, Any], str]] = {
    "one class": ({"y": np.ones(40)}, "at least 2 classes"),
    "numbers": ({"y": np.linspace(0, 1, 40)}, "Unknown label type"),
}
SDCA_CLASSES: dict[str, tuple[dict[str, Any], str]] = {
    "gamma": ({"loss": "smooth_hinge", "gamma": 0.0}, "gamma must be"),
    "gamma of none": ({"loss": "hinge", "gamma": 0.5}, "does not apply to loss='hinge'"),
    "steps for a hinge": ({"solver": "newton-cg", "loss": "hinge", **WHOLE}, "needs a smooth loss"),
    "corners of a smooth loss": (
        {"solver": "interior-point", "loss": "logistic", **WHOLE},
        "needs a loss with a corner, not loss='logistic'",
    ),
    "a class's weight is negative": ({"class_weight": {0: -1.0}}, "class_weight must have finite"),
    "a class's weight is NaN": ({"class_weight": {0: np.nan}}, "class_weight must have finite"),
    "a class's weight is infinite": ({"class_weight": {0: np.inf}}, "class_weight must have fini"),
    "classes' weights' sum": ({"class_weight": {0: 1e308}}, "weights overflows"),
    "classes have no weight": ({"class_weight": {0: 0, 1: 0, 2: 0}}, "zero for all samples"),
    "one class has weight": ({"class_weight": {0: 0.0, 1: 0.0}}, "at least 2 classes with weight"),
    "a word for classes' weights": ({"class_weight": "even"}, "class_weight"),
}
SDCA_COUNTS: dict[str, tuple[dict[str, Any], str]] = {
    "targets of 1e200": ({"y": Y["counts"] * 1e200, "loss": "squared"}, "scale y"),
    "targets of 1e307": ({"y": Y["counts"] * 1e307, "loss": "poisson"}, "scale y"),
    "epsilon of none": ({"loss": "squared", "epsilon": 0.1}, "does not apply to loss='squared'"),
    "epsilon of a quantile": (
        {"loss": "quantile", "epsilon": 0.1},
        "epsilon=0.1 does not apply to loss='quantile': it is for loss='huber' or",
    ),
    "quantile of none": ({"loss": "poisson", "quantile": 0.7}, "it is for loss='quantile'"),
    "epsilon below 0": (
        {"loss": "squared_epsilon_insensitive", "epsilon": -0.1},
        "epsilon must be a finite number at least 0",
    ),
    "epsilon of the loss without a square below 0": (
        {"loss": "epsilon_insensitive", "epsilon": -0.1},
        "epsilon must be a finite number at least 0",
    ),
    "epsilon is NaN": (
        {"loss": "squared_epsilon_insensitive", "epsilon": np.nan},
        "epsilon must be a finite number at least 0",
    ),
    "epsilon is 0": (
        {"loss": "huber", "epsilon": 0.0},
        "epsilon must be a finite number above 0",
    ),
    "quantile is 0": (
        {"loss": "quantile", "quantile": 0.0},
        "quantile must be a finite number above 0 and below 1",
    ),
    "quantile is 1": (
        {"loss": "quantile", "quantile": 1},
        "quantile must be a finite number above 0 and below 1",
    ),
    "power of none": ({"loss": "gamma", "power": 1.2}, "it is for loss='tweedie'"),
    "power of a count": (
        {"loss": "tweedie", "power": 1},
        "power must be a finite number above 1 and below 2, not 1",
    ),
    "power of an amount": ({"loss": "tweedie", "power": 2.0}, "above 1 and below 2, not 2.0"),
    "negative claims": ({"y": Y["counts"] - 3, "loss": "tweedie"}, "non-negative targets"),
    "all claims are 0": ({"y": Y["counts"] * 0, "loss": "tweedie"}, "minus infinity"),
    "steps for a quantile": (
        {"loss": "quantile", "solver": "cd", **WHOLE},
        "needs a smooth loss, not loss='quantile'",
    ),
    "negative counts": ({"y": Y["counts"] - 3, "loss": "poisson"}, "non-negative targets"),
    "an amount is 0": ({"y": Y["counts"] * (Y["counts"] > 2), "loss": "gamma"}, "positive targets"),
    "all counts are 0": ({"y": Y["counts"] * 0, "loss": "poisson"}, "minus infinity"),
}
FTRL: dict[str, tuple[dict[str, Any], str]] = {
    "learning_rate": ({"learning_rate": 0.0}, "learning_rate must be"),
    "initial_accumulator": ({"initial_accumulator": -1.0}, "initial_accumulator must be"),
    "batch_size": ({"batch_size": 0}, "batch_size must be"),
    "n_hashes": ({"n_hashes": 0}, "n_hashes must be"),
    "features of 1e200": ({"X": X * 1e200}, "no longer finite"),
}


def refusals() -> Any:
    for name, (_, kind) in ESTIMATORS.items():
        is_sdca, of_classes = name[:4] != "FTRL", kind == "classes"
        table = ANY | (SDCA if is_sdca else FTRL) | (CLASSES if of_classes else {})
        if is_sdca:
            table = table | (SDCA_CLASSES if of_classes else SDCA_COUNTS)
        for what, (changes, message) in table.items():
            yield pytest.param(name, changes, message, id=f"{name}: {what}")


@pytest.mark.parametrize(("which", "changes", "message"), [*refusals()])
def test_a_refused_fit_leaves_the_last(which: str, changes: dict[str, Any], message: str) -> None:
    """And one that was to be the first leaves nothing at all."""
    model, y = fitted(which)
    changes = dict(changes)
    call = {"X": X, "y": y} | {
        name: changes.pop(name) for name in ("X", "y", "sample_weight") if name in changes
    }
    unfitted = copy.deepcopy(ESTIMATORS[which][0]).set_params(**changes)
    attributes = dict(vars(unfitted))
    options = model.get_params()
    before, predicted = state(model), model.predict(X)
    model.set_params(**changes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for one in (model, unfitted):
            with pytest.raises(ValueError, match=message):
                one.fit(**call)
    assert state(model) == before
    assert vars(unfitted) == attributes
    np.testing.assert_array_equal(model.set_params(**options).predict(X), predicted)
    with pytest.raises(NotFittedError):
        unfitted.predict(X)


@pytest.mark.parametrize("name", ["FTRL", "FTRL squared", "FTRL poisson"])
def test_a_refused_piece_of_a_stream_leaves_what_was_learned(name: str) -> None:
    model, y = fitted(name)
    pieces = {
        "no longer finite": (X * 1e200, y),
        "NaN": (NAN, y),
        "inconsistent": (X, y[:-1]),
        "expecting 5 features": (X[:, :4], y),
    }
    if name == "FTRL":
        pieces["labels that are not in classes"] = (X, y + 1)
    for message, (features, labels) in pieces.items():
        before = state(model)
        with pytest.raises(ValueError, match=message):
            model.partial_fit(features, labels)
        assert state(model) == before
    other = copy.deepcopy(ESTIMATORS[name][0]).fit(X, y)
    assert state(model.partial_fit(X, y)) == state(other.partial_fit(X, y))


@pytest.mark.parametrize("name", ["FTRL", "FTRL squared"])
@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.parametrize("after", [False, True])
def test_an_interrupted_fit_leaves_what_was_learned(
    name: str, epoch: int, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, y = fitted(name)
    model.set_params(batch_size=8, max_iter=3).fit(X, y)
    before, calls = state(model), []

    def interrupted(*arguments: Any) -> bool:
        calls.append(1)
        if len(calls) > epoch and not after:
            raise KeyboardInterrupt
        learned = learn(*arguments)
        if len(calls) > epoch:
            raise KeyboardInterrupt
        return learned

    monkeypatch.setattr(ftrl_base, "learn", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert state(model) == before


@pytest.mark.parametrize("name", ["FTRL", "FTRL squared"])
def test_an_interrupted_piece_of_a_stream_is_learned_or_not(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, y = fitted(name)
    whole = copy.deepcopy(model).partial_fit(X, y)
    before = state(model)

    def raise_before(*arguments: Any) -> bool:
        raise KeyboardInterrupt

    def raise_after(*arguments: Any) -> bool:
        learn(*arguments)
        raise KeyboardInterrupt

    for function, expected in ((raise_before, before), (raise_after, state(whole))):
        monkeypatch.setattr(ftrl_base, "learn", function)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(X, y)
        assert state(model) == expected
    first = copy.deepcopy(ESTIMATORS[name][0])
    options = {"classes": np.unique(y)} if name == "FTRL" else {}
    with pytest.raises(KeyboardInterrupt):
        first.partial_fit(X, y, **options)
    assert "_state" not in vars(first)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("options", [{}, {"num_loss_partitions": [15, 25]}, {"n_jobs": 1}])
@pytest.mark.parametrize("kind", ["classes", "counts"])
def test_a_callback_that_raises_leaves_the_last_fit(
    error: type, options: dict[str, Any], kind: str
) -> None:
    def callback(record: dict[str, Any]) -> None:
        raise error("enough")

    model = (SDCAClassifier if kind == "classes" else SDCARegressor)(**options).fit(X, Y[kind])
    before = state(model)
    with pytest.raises(error, match="enough"):
        model.set_params(callback=callback).fit(X * 2, (Y[kind] > 1).astype(float))
    assert state(model) == before


def test_a_warning_that_is_an_error_leaves_the_last_fit() -> None:
    model = SDCAClassifier("hinge").fit(X, Y["classes"])
    before = state(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConvergenceWarning):
            model.set_params(max_iter=1, tol=1e-9).fit(X, Y["classes"])
    assert state(model) == before


# ---- numbers that overflow on the way


@pytest.mark.parametrize("partitions", [3, [100, 200]])
def test_an_infinite_objective_is_refused(partitions: Any) -> None:
    random = np.random.default_rng(0)
    big = sparse.csr_matrix(1e9 * random.standard_normal((300, 40)))
    y = random.poisson(2.0, 300)
    options = {"fit_intercept": False, "max_iter": 1, "num_loss_partitions": partitions}
    model = SDCARegressor("poisson", **options)
    with pytest.raises(NotFiniteError, match="objective is infinite at every iterate"):
        model.fit(big, y)


def test_nothing_that_is_not_finite_is_ever_returned() -> None:
    """Features, targets and weights of all sizes: a fit is refused, warns, or is what it says."""
    refused = 0
    for seed in range(60):
        random = np.random.default_rng(seed)
        big = random.standard_normal((30, 4)) * 10.0 ** random.uniform(-100, 153)
        weight = random.choice([0.0, 1.0, 2.0], 30) * 10.0 ** random.uniform(-300, 300)
        loss = ("logistic", "hinge", "smooth_hinge", "squared", "poisson")[seed % 5]
        options: dict[str, Any] = {
            "l1": random.choice([0.0, 0.1]),
            "l2": 10.0 ** random.uniform(-20, 5),
            "fit_intercept": bool(seed % 2),
            "max_iter": 15,
            "num_loss_partitions": [None, [10, 20]][seed // 2 % 2],
        }
        if seed % 5 < 3:
            model, y = SDCAClassifier(loss, **options), random.integers(0, 2 + seed % 2, 30)
        else:
            model = SDCARegressor(loss, **options)
            y = random.poisson(3.0, 30) * 10.0 ** random.uniform(-10, 150)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                model.fit(big, y, weight)
            except ValueError:
                refused += 1
                assert not hasattr(model, "coef_")
                continue
        assert {w.category for w in caught} <= {ConvergenceWarning}
        for name in ("coef_", "intercept_", "objective_"):
            assert np.isfinite(getattr(model, name)).all()
        near = np.all(np.ravel(model.dual_gap_) <= 1e-4 * np.ravel(model.objective_))
        assert near or caught
    assert 5 < refused < 55


def test_rows_without_weight_change_nothing() -> None:
    """Not even one whose prediction is far above all others: the intercept does not see it."""
    heavy, light = np.array([[0.0], [1.0], [2.0]]), np.array([[2000.0]])
    y = np.array([1.0, 3.0, 8.0])
    for blocks in (None, [1, 3]):
        model = SDCARegressor("poisson", l2=1e-3, tol=1e-9, num_loss_partitions=blocks)
        model.fit(np.vstack([light, heavy]), np.append(0, y), [0, 1, 1, 1])
        alone = SDCARegressor("poisson", l2=1e-3, tol=1e-9).fit(heavy, y)
        assert model.coef_ == pytest.approx(alone.coef_, rel=1e-3)
        assert model.objective_ == pytest.approx(alone.objective_, rel=1e-8)


# ---- warm starts


@pytest.mark.parametrize("blocks", [None, [15, 25]])
@pytest.mark.parametrize(
    ("rows", "columns", "labels", "message"),
    [
        (39, 5, 3, "last fit's samples, it had 40 samples and this one has 39"),
        (40, 4, 3, "it had 5 features and this one has 4"),
        (40, 5, 4, "it had 3 problems, one for each class, and this one has 4"),
    ],
)
def test_a_warm_start_is_from_a_fit_of_the_same_shape(
    blocks: list[int] | None, rows: int, columns: int, labels: int, message: str
) -> None:
    model = SDCAClassifier("hinge", warm_start=True, num_loss_partitions=blocks, max_iter=20_000)
    model.fit(X + 10, Y["classes"])  # centred
    before = state(model)
    if blocks:
        model.set_params(num_loss_partitions=[15, rows - 15])
    with pytest.raises(InvalidArgumentError, match=message):
        model.fit(X[:rows, :columns], np.arange(rows) % labels)
    assert state(model) == before
