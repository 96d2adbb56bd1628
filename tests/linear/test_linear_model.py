"""The estimators of SDCA: what they promise beyond scikit-learn's own checks."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
import warnings
from typing import Any

import joblib
import numpy as np
import pytest
from common.linear_losses import (
    CORNERED,
    DEFINITIONS,
    FEW,
    SMOOTH,
    conjugate,
    estimator,
    phi,
    targets,
)
from joblib import parallel_config
from scipy import optimize, sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import tfopt
from tfopt.linear_model import SDCAClassifier, SDCARegressor
from tfopt.linear_model._fit import plan, row_visits
from tfopt.linear_model._fit.certificate import Certificate
from tfopt.linear_model._fit.monitor import SolverResult
from tfopt.linear_model._fit.problem import as_rows

each_loss = pytest.mark.parametrize("loss", FEW)


def data(loss: str, n: int = 120, d: int = 7, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, d)) * (random.uniform(size=(n, d)) < 0.5)
    X = X.astype(np.float32).astype(float)
    z = X @ random.standard_normal(d) + 0.5 + random.standard_normal(n)
    return X, targets(loss, z, random)


# ---- certificates


@each_loss
@pytest.mark.parametrize("l1", [0.0, 3.0])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("tol", [0.3, 1e-3, 1e-9])
@pytest.mark.parametrize("blocks", [None, [50, 1, 30, 39]])
def test_the_certificate_is_that_of_the_definitions(
    loss: str, l1: float, intercept: bool, tol: float, blocks: list[int] | None
) -> None:
    """The primal at the weights, the dual at the dual variables, and the optimum in between."""
    X, y = data(loss)
    c = np.random.default_rng(1).choice([0.0, 0.5, 1.0, 2.0], len(y))
    options: dict[str, Any] = {"l1": l1, "l2": 2.0, "fit_intercept": intercept, "max_iter": 20_000}
    parameter = 0.4
    model = estimator(loss, parameter, tol=tol, num_loss_partitions=blocks, **options).fit(X, y, c)
    w, b, a = model.coef_.ravel(), model.intercept_, model.dual_coef_.ravel()
    objective, gap = np.ravel(model.objective_)[0], np.ravel(model.dual_gap_)[0]
    primal = c @ phi(loss, X @ w + b, y, parameter) + l1 * np.abs(w).sum() + w @ w
    v = X.T @ (c * a) / 2.0
    S = np.sign(v) * np.maximum(np.abs(v) - l1 / 2.0, 0)
    dual = -(c @ conjugate(loss, a, y, parameter)) - S @ S
    assert objective == pytest.approx(primal, rel=1e-12)
    assert objective - gap == pytest.approx(dual, rel=1e-9, abs=1e-9)
    assert 0 <= gap <= tol * abs(objective)
    if intercept:
        assert abs(c @ a) <= 1e-12 * (c @ np.abs(a))
    else:
        assert b == 0
    best = estimator(loss, parameter, tol=1e-11, **options).fit(X, y, c)
    optimum = np.ravel(best.objective_)[0]
    slack = 1e-9 * abs(optimum)
    assert objective - gap - slack <= optimum <= objective + slack


@each_loss
def test_newton_and_visits_find_the_same(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = data(loss)
    newton = estimator(loss, tol=1e-11, max_iter=20_000).fit(X, y)
    monkeypatch.setattr(plan, "has_hessian", lambda problem: False)
    visits = estimator(loss, tol=1e-11, max_iter=20_000).fit(X, y)
    assert newton.objective_ == pytest.approx(visits.objective_, rel=1e-10)
    np.testing.assert_allclose(newton.coef_, visits.coef_, atol=1e-4)
    if loss in SMOOTH:
        assert newton.n_iter_[0] < visits.n_iter_[0]


def test_ill_conditioned_data_are_for_newton() -> None:
    """Raw numbers of several sizes, hardly penalized."""
    random = np.random.default_rng(0)
    X = random.standard_normal((3000, 6)) * [1, 10, 0.1, 1000, 1, 1] + [0, 5, 0, 1e4, 0, 0]
    y = np.sign(X[:, 0] + X[:, 1] / 10 - 0.5 + random.standard_normal(3000))
    model = SDCAClassifier(l2=1e-6, tol=1e-9, max_iter=60).fit(X, y)
    assert model.dual_gap_[0] <= 1e-9 * model.objective_[0]


def test_not_enough_iterations_warn() -> None:
    X, y = data("hinge")
    with pytest.warns(ConvergenceWarning, match=r"gap is 0\..* after max_iter=2"):
        model = SDCAClassifier("hinge", max_iter=2, tol=1e-9).fit(X, y)
    assert model.n_iter_[0] == 2 and model.dual_gap_[0] > 1e-9 * model.objective_[0]


@each_loss
def test_a_tol_of_0_goes_on_to_the_end(loss: str) -> None:
    X, y = data(loss)
    model = estimator(loss, tol=0.0, max_iter=200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of most, a little is left
        model.fit(X, y)
    assert np.ravel(model.dual_gap_)[0] <= 1e-6 * abs(np.ravel(model.objective_)[0])


# ---- what results depend on


@each_loss
@pytest.mark.parametrize("partitions", [None, 3])
def test_threads_change_no_bits(loss: str, partitions: int | None) -> None:
    X, y = data(loss, n=9000, d=20)
    if loss == "logistic":
        y = y + (X[:, 0] > 0.5)  # more classes: solved side by side
    fits = []
    for threads in (1, 2):
        tfopt.threads.set_num_threads(threads)
        for n_jobs in (None, 1, -1, -2):
            model = estimator(
                loss, num_loss_partitions=partitions, n_jobs=n_jobs, tol=1e-2, max_iter=2000
            ).fit(sparse.csr_matrix(X), y)
            fits.append((model.coef_.tobytes(), model.dual_coef_.tobytes()))
    assert len({*fits}) == 1


def test_seeds_change_results_within_the_gap() -> None:
    X, y = data("hinge")
    one, again, other = (
        SDCAClassifier("hinge", solver="sdca", tol=1e-6, random_state=seed, max_iter=20_000).fit(
            X, y
        )
        for seed in (0, 0, 1)
    )
    assert one.coef_.tobytes() == again.coef_.tobytes() != other.coef_.tobytes()
    assert abs(one.objective_ - other.objective_) <= max(one.dual_gap_, other.dual_gap_)


@each_loss
def test_storage_changes_no_bits(loss: str) -> None:
    """Types of values and of indices, read-only memory; a dense array sums in another order."""
    X, y = data(loss)
    csr = sparse.csr_matrix(X)
    fits = []
    for values in (np.float64, np.float32):
        for index in (np.int32, np.int64):
            stored = csr.astype(values)
            stored.indices = stored.indices.astype(index)
            stored.indptr = stored.indptr.astype(index)
            for part in (stored.data, stored.indices, stored.indptr):
                part.flags.writeable = False
            fits.append(estimator(loss, max_iter=20_000).fit(stored, y).coef_)
    assert len({coef.tobytes() for coef in fits}) == 1
    exact = {"tol": 1e-10, "max_iter": 20_000}
    dense = [X, X.astype(np.float32), np.asfortranarray(X)]
    dense[0].flags.writeable = False
    a, b, c = (estimator(loss, **exact).fit(stored, y) for stored in dense)
    assert a.coef_.tobytes() == b.coef_.tobytes() == c.coef_.tobytes()
    assert a.objective_ == pytest.approx(estimator(loss, **exact).fit(csr, y).objective_, rel=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_are_read_where_they_are(dtype: type) -> None:
    X = data("squared")[0].astype(dtype)
    assert as_rows(X)[3] is X
    csr = sparse.csr_matrix(X)
    values, indices, indptr, _ = as_rows(csr)
    assert np.shares_memory(values, csr.data) and np.shares_memory(indices, csr.indices)
    assert np.shares_memory(indptr, csr.indptr)


def test_a_feature_twice_in_a_row_counts_as_the_sum() -> None:
    twice = sparse.csr_matrix((np.ones(4), [0, 0, 1, 1], [0, 2, 4]), shape=(2, 2))
    once = twice.copy()
    once.sum_duplicates()
    fits = [SDCAClassifier(tol=1e-10).fit(X, [0, 1]).coef_.tobytes() for X in (twice, once)]
    assert fits[0] == fits[1] and twice.nnz == 4


@each_loss
def test_weights_are_repetitions(loss: str) -> None:
    X, y = data(loss)
    times = np.random.default_rng(0).integers(0, 4, len(y))
    exact = {"tol": 1e-10, "max_iter": 20_000}
    weighted = estimator(loss, **exact).fit(X, y, times)
    repeated = estimator(loss, **exact).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-9)


@pytest.mark.parametrize("blocks", [None, [50, 70]])
def test_balanced_classes_count_weights(blocks: list[int] | None) -> None:
    """So that a weight of 2 is a sample twice here, too."""
    X, _ = data("logistic")
    y = np.digitize(X[:, 0] + X[:, 1], [-0.5, 0.7])
    times = np.random.default_rng(0).integers(0, 4, len(y))
    exact = {"tol": 1e-12, "class_weight": "balanced", "num_loss_partitions": blocks}
    one = SDCAClassifier(**exact).fit(X, y, times)
    again = SDCAClassifier(**exact)
    if blocks:
        again.set_params(num_loss_partitions=[times[:50].sum(), times[50:].sum()])
    again.fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    np.testing.assert_allclose(one.coef_, again.coef_, atol=1e-6)
    sums = np.bincount(y, times)
    by_hand = SDCAClassifier(
        tol=1e-12, class_weight=dict(enumerate(sums.sum() / (3 * sums))), num_loss_partitions=blocks
    ).fit(X, y, times)
    assert one.coef_.tobytes() == by_hand.coef_.tobytes()


def test_class_weights_multiply_the_samples() -> None:
    X, y = data("logistic")
    exact = {"tol": 1e-12}
    one = SDCAClassifier(class_weight={-1: 3.0, 1: 0.5}, **exact).fit(X, y)
    other = SDCAClassifier(**exact).fit(X, y, np.where(y < 0, 3.0, 0.5))
    assert one.coef_.tobytes() == other.coef_.tobytes()


def test_more_classes_are_each_one_from_the_rest() -> None:
    X, _ = data("logistic", n=300)
    y = np.array(["a", "b", "c"])[np.digitize(X @ np.arange(7), [-3, 3])]
    model = SDCAClassifier().fit(X, y)
    assert model.coef_.shape == (3, 7) and model.dual_coef_.shape == (3, 300)
    for k, name in enumerate("abc"):
        alone = SDCAClassifier().fit(X, y == name)
        np.testing.assert_allclose(model.coef_[k], alone.coef_[0], rtol=1e-9)
        np.testing.assert_allclose(model.intercept_[k], alone.intercept_[0], rtol=1e-9)
        np.testing.assert_allclose(model.dual_coef_[k], alone.dual_coef_[0], rtol=1e-7)
        assert model.n_iter_[k] == alone.n_iter_[0]
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert (model.classes_[p.argmax(axis=1)] == model.predict(X)).all()
    assert model.score(X, y) > 0.8


@pytest.mark.parametrize("options", [{"adaptive": True}, {"num_loss_partitions": 4}])
@each_loss
def test_other_orders_find_the_same(loss: str, options: dict[str, Any]) -> None:
    X, y = data(loss)
    exact = {"tol": 1e-9, "max_iter": 20_000, "l1": 0.5}  # l1: no Newton
    one = estimator(loss, **exact).fit(X, y)
    other = estimator(loss, **options, **exact).fit(X, y)
    assert one.objective_ == pytest.approx(other.objective_, rel=2e-9)
    assert one.coef_.tobytes() != other.coef_.tobytes()


@each_loss
def test_warm_starts_go_on_from_the_dual_variables(loss: str) -> None:
    X, y = data(loss)
    options = {"tol": 1e-6, "l1": 0.5, "solver": "sdca", "max_iter": 20_000}
    model = estimator(loss, warm_start=True, **options).fit(X, y)
    cold = model.n_iter_[0]
    model.set_params(tol=2e-6).fit(X, y)
    assert model.n_iter_[0] <= 2 < cold
    if loss in CORNERED:  # whose dual variables the weights do not say
        with pytest.raises(ValueError, match="it had 120 samples and this one has 119"):
            model.fit(X[1:], y[1:])
    else:
        model.set_params(tol=1e-3).fit(X[1:], y[1:])
        assert model.n_iter_[0] < cold and model.dual_coef_.shape[-1] == 119


# ---- what may be given


@pytest.mark.parametrize("stored", [np.asarray, sparse.csr_matrix])
@each_loss
def test_empty_rows_and_columns(loss: str, stored: Any) -> None:
    X, y = data(loss)
    X[:10] = 0
    X[:, 3] = 0
    model = estimator(loss, max_iter=20_000, l1=0.1).fit(stored(X), y)
    assert np.ravel(model.coef_)[3] == 0
    predicted = model.predict(stored(np.zeros((1, 7))))[0]
    links = {"numbers": lambda b: b, "counts": np.exp, "amounts": np.exp, "classes": np.sign}
    expected = links[DEFINITIONS[loss].labels](model.intercept_)
    assert predicted == pytest.approx(np.ravel(expected)[0])


def _best(loss: str, y: np.ndarray, parameter: float) -> float:
    """Return the prediction that is best for all labels."""
    best = optimize.minimize_scalar(lambda b: phi(loss, b, y, parameter).mean(), tol=1e-12)
    return float(best.x)


@each_loss
def test_features_that_are_all_zero_leave_the_intercept(loss: str) -> None:
    _, y = data(loss)
    assert DEFINITIONS[loss].labels != "classes" or (y > 0).mean() > 0.5
    model = estimator(loss).fit(np.zeros((120, 2)), y)
    assert not np.any(model.coef_)
    share = (y > 0).mean()
    found = np.ravel(model.intercept_)[0]
    if loss in ("quantile", "epsilon_insensitive"):  # any of an interval
        mean = [phi(loss, b, y, model._parameter()).mean() for b in (found - 1e-6, found + 1e-6)]
        assert phi(loss, found, y, model._parameter()).mean() <= min(mean) + 1e-6
        return
    expected = {
        "logistic": lambda: np.log(share / (1 - share)),
        "poisson": lambda: np.log(y.mean()),
        "gamma": lambda: np.log(y.mean()),
        "tweedie": lambda: np.log(y.mean()),
        "hinge": lambda: 1.0,
        "smooth_hinge": lambda: 1 - (1 - share) / share,
        "squared_hinge": lambda: 2 * share - 1,
    }.get(loss, lambda: _best(loss, y, model._parameter()))()
    assert found == pytest.approx(expected, abs=1e-6)


X3, Y3 = np.array([[1.0], [2.0], [3.0]]), np.array([0, 1, 1])


@pytest.mark.parametrize(
    ("model", "X", "y", "weight", "message"),
    [
        (SDCAClassifier(), [[np.nan], [1.0], [2.0]], Y3, None, "NaN"),
        (SDCAClassifier(), [[np.inf], [1.0], [2.0]], Y3, None, "infinity"),
        (SDCAClassifier(), X3 * 1e200, Y3, None, "overflow: scale the features"),
        (SDCAClassifier(l2=1e-20), X3 * 1e150, Y3, None, "overflow: scale the features"),
        (SDCAClassifier(), X3, [0, 1], None, "inconsistent numbers of samples"),
        (
            SDCAClassifier(),
            X3,
            [1, 1, 1],
            None,
            "at least 2 classes with weight, got one class: \\[1\\]",
        ),
        (
            SDCAClassifier(),
            X3,
            Y3,
            [0, 1, 1],
            "at least 2 classes with weight, got one class: \\[1\\]",
        ),
        (SDCAClassifier(), X3, [0.5, 1.2, 3.4], None, "Unknown label type"),
        (SDCAClassifier(), X3, Y3, [1, -1, 1], "Negative values in data passed"),
        (SDCAClassifier(), X3, Y3, [0, 0, 0], "zero"),
        (SDCAClassifier(), X3, Y3, [np.nan, 1, 1], "NaN"),
        (SDCAClassifier("hinge", l2=0.0), X3, Y3, None, "l2=0 needs l1 > 0"),
        (SDCAClassifier(l2=0.0), X3, Y3, None, "these weights separate the classes"),
        (SDCAClassifier(l2=np.inf), X3, Y3, None, "l2 must be a finite number"),
        (SDCAClassifier(l1=-1.0), X3, Y3, None, "l1 must be a finite number at least 0"),
        (SDCAClassifier(C=0.0), X3, Y3, None, "C must be a finite number above 0"),
        (SDCAClassifier(C=2.0, l2=3.0), X3, Y3, None, "C is 1 / l2"),
        (SDCAClassifier(gamma=2.0), X3, Y3, None, "gamma=2.0 does not apply to loss='logistic'"),
        (SDCAClassifier(tol=-1.0), X3, Y3, None, "tol must be"),
        (SDCAClassifier(max_iter=0), X3, Y3, None, "max_iter must be an integer of at least 1"),
        (SDCAClassifier(n_jobs=0), X3, Y3, None, "n_jobs must be"),
        (SDCAClassifier(num_loss_partitions=0), X3, Y3, None, "num_loss_partitions must be"),
        (SDCAClassifier(num_loss_partitions=2, adaptive=True), X3, Y3, None, "adaptive visits"),
        (SDCAClassifier("squared"), X3, Y3, None, "loss must be one of .*'smooth_hinge'"),
        (SDCARegressor("hinge"), X3, Y3, None, "loss must be one of .*'squared'"),
        (SDCARegressor("poisson"), X3, [1, -1, 2], None, "non-negative targets"),
        (SDCARegressor("poisson"), X3, [0, 0, 0], None, "minus infinity"),
        (SDCARegressor(), X3, [1, np.inf, 2], None, "infinity"),
    ],
)
def test_refusals(model: Any, X: Any, y: Any, weight: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, weight)


def test_c_is_the_inverse_of_l2() -> None:
    X, y = data("logistic")
    fits = [SDCAClassifier(**o).fit(X, y).coef_.tobytes() for o in ({"C": 4.0}, {"l2": 0.25})]
    assert fits[0] == fits[1]


def test_probabilities_are_for_the_logistic_loss() -> None:
    X, y = data("logistic")
    model = SDCAClassifier(tol=1e-10).fit(X, y)
    z = model.decision_function(X)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-z)))
    np.testing.assert_array_equal(model.predict_log_proba(X), np.log(model.predict_proba(X)))
    assert not hasattr(SDCAClassifier("hinge"), "predict_proba")


# ---- what one sees


def test_the_history_and_its_callback() -> None:
    X, y = data("hinge")
    seen: list[dict[str, Any]] = []
    model = SDCAClassifier("hinge", max_iter=20_000, callback=seen.append).fit(X, y)
    (history,) = model.history_
    assert seen == history and len(history) == model.n_iter_[0]
    assert [record["iteration"] for record in history] == [*range(1, len(history) + 1)]
    last = history[-1]
    assert last["certified"] and last["objective"] == model.objective_[0]
    assert last["gap"] * last["objective"] == pytest.approx(model.dual_gap_[0])
    assert all(np.isnan(r["objective"]) for r in history if not r["certified"])


@pytest.mark.parametrize("options", [{}, {"adaptive": True}, {"num_loss_partitions": [100, 200]}])
@pytest.mark.parametrize("backend", [None, "loky", "multiprocessing"])
def test_records_of_several_classes(options: dict[str, Any], backend: str | None) -> None:
    """Each says whose it is, and they come one at a time, whatever joblib is told to run on."""
    X, _ = data("logistic", n=300)
    y = np.digitize(X @ np.arange(7), np.linspace(-8, 8, 19))
    seen: list[dict[str, Any]] = []
    busy = threading.Lock()

    def callback(record: dict[str, Any]) -> None:
        assert busy.acquire(blocking=False)
        time.sleep(1e-4)  # others have their turn
        seen.append(record)
        busy.release()

    tfopt.threads.set_num_threads(3)
    context = parallel_config(backend) if backend else contextlib.nullcontext()
    model = SDCAClassifier("hinge", max_iter=12, n_jobs=3, callback=callback, **options)
    with warnings.catch_warnings(), context:
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    assert len(model.history_) == len(model.classes_) > 8
    for k, history in enumerate(model.history_):
        assert [record for record in seen if record["problem"] == k] == history
        assert [record["iteration"] for record in history] == [*range(1, model.n_iter_[k] + 1)]


@each_loss
@pytest.mark.parametrize("blocks", [None, [50, 70]])
@pytest.mark.parametrize("yes", [True, np.True_])
def test_a_callback_may_stop_the_fit(loss: str, blocks: list[int] | None, yes: Any) -> None:
    """With the last certificate, and without a warning: it was asked to."""
    X, y = data(loss)
    for stop in (1, 2, 3, 7):
        seen: list[dict[str, Any]] = []

        def callback(record: dict[str, Any], seen: Any = seen, stop: int = stop) -> Any:
            seen.append(record)
            return yes if len(seen) >= stop else len(seen)  # but for True, no answer is one

        options = {"tol": 0.0, "max_iter": 50, "num_loss_partitions": blocks}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = estimator(loss, callback=callback, **options).fit(X, y)
        assert seen == model.history_[0] and seen[-1]["certified"]
        at_once = seen[stop - 1]["certified"]
        assert len(seen) == model.n_iter_[0] == stop + (not at_once)


def test_a_callback_stops_all_classes() -> None:
    X, z = data("squared", n=300)
    y = np.digitize(z, [-1.0, 0.0, 1.0])
    model = SDCAClassifier("hinge", tol=0.0, callback=lambda record: record["iteration"] == 5)
    model.fit(X, y)
    assert (model.n_iter_ <= 6).all() and np.isfinite(model.dual_gap_).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "or scale the features"),
        ({"l1": 1.0}, "or raise l2, to which"),
        ({"num_loss_partitions": [50, 70]}, "or scale the features"),
        ({"num_loss_partitions": [50, 70], "l1": 1.0}, "fewer blocks, best of all one"),
    ],
)
def test_a_warning_says_what_may_help(options: dict[str, Any], message: str) -> None:
    X, y = data("hinge")
    with pytest.warns(ConvergenceWarning, match=message) as caught:
        SDCAClassifier("hinge", max_iter=2, tol=1e-9, **options).fit(X, y)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("gap", [1.01e-3, np.inf, np.nan])
def test_whatever_is_not_known_to_be_near_warns(gap: float) -> None:
    nothing = np.zeros(0)
    points = [Certificate(nothing, 0.0, 1.0, each) for each in (0.0, gap)]
    model = SDCAClassifier(tol=1e-3, max_iter=7)
    with pytest.warns(ConvergenceWarning, match="after max_iter=7"):
        model._warn_unconverged([SolverResult(point, 7, []) for point in points])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model._warn_unconverged(
            [SolverResult(points[0], 7, []), SolverResult(points[1], 6, [])]
        )  # stopped


@each_loss
def test_small_data_are_solved_further(loss: str) -> None:
    """By Newton's method to the last digits. A tol that is asked for, and max_iter, are obeyed."""
    X, y = data(loss)
    for l1 in (0.0, 1.0):
        fits = [estimator(loss, l1=l1, random_state=seed).fit(X, y) for seed in (0, 1)]
        if loss != "hinge" and not l1:
            np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, rtol=1e-6, atol=1e-7)
        loose = estimator(loss, l1=l1, tol=1e-4).fit(X, y)
        assert fits[0].dual_gap_ <= max(loose.dual_gap_ / 10, 1e-13 * loose.objective_)
        if loose.dual_gap_ <= 1.01 * 2.0**-48 * loose.objective_:  # nothing is left to polish
            assert loss in ("squared", "huber") and loose.n_iter_[0] <= fits[0].n_iter_[0]
            continue
        assert loose.n_iter_[0] < fits[0].n_iter_[0]
        few = estimator(loss, l1=l1, max_iter=int(loose.n_iter_[0]) + 2).fit(X, y)
        assert loose.n_iter_[0] < few.n_iter_[0] <= loose.n_iter_[0] + 2


def test_large_data_are_solved_as_far_as_is_asked_for() -> None:
    X, y = data("logistic", n=30_000, d=20)
    for options in ({}, {"l1": 1.0}):
        default, asked = (SDCAClassifier(tol=tol, **options).fit(X, y) for tol in (None, 1e-4))
        assert default.coef_.tobytes() == asked.coef_.tobytes()


def test_threads_are_asked_for_in_scikit_learns_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfopt.kernels.platform.runtime.get_threads", lambda: 5)
    cpus = joblib.cpu_count()
    for n_jobs, expected in ((None, 1), (1, 1), (3, 3), (-1, min(cpus, 5)), (99, 5), (-99, 1)):
        assert SDCAClassifier(n_jobs=n_jobs)._n_threads() == expected
    assert SDCAClassifier(n_jobs=-2)._n_threads() == max(1, min(cpus - 1, 5))
    with parallel_config(n_jobs=2):
        assert SDCAClassifier()._n_threads() == 2


def test_a_bar_if_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = data("hinge")
    SDCAClassifier("hinge", max_iter=20_000).fit(X, y)
    assert capsys.readouterr().err == ""
    SDCAClassifier("hinge", max_iter=20_000, verbose=True).fit(X, y)
    assert "gap=" in capsys.readouterr().err


def test_a_plot_of_the_history() -> None:
    import matplotlib

    matplotlib.use("Agg")
    X, y = data("hinge")
    model = SDCAClassifier("hinge", max_iter=20_000).fit(X, y)
    axes = model.plot_history()
    assert axes.get_ylabel() == "relative duality gap" and axes.get_yscale() == "log"
    assert len(axes.lines[0].get_xdata()) == model.n_iter_[0]
    matplotlib.pyplot.close("all")


def test_without_scikit_learn_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['sklearn'] = None; import tfopt; import tfopt.linear_model"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "tfopt.linear_model needs scikit-learn: pip install scikit-learn" in done.stderr


@each_loss
@pytest.mark.parametrize("intercept", [False, True])
def test_rest_changes_no_minimum(
    loss: str, intercept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each certificate bounds how far its objective is from that of a fit that visits everyone."""
    X, y = data(loss)
    model = estimator(loss, fit_intercept=intercept, solver="sdca", tol=1e-7, max_iter=20_000)
    resting = clone(model).fit(X, y)
    monkeypatch.setattr(row_visits.visits, "awake", lambda idle, sweep: np.arange(len(idle)))
    busy = clone(model).fit(X, y)
    for one in (resting, busy):
        assert np.max(one.dual_gap_ / one.objective_) <= 1e-7
    apart = np.abs(resting.objective_ - busy.objective_)
    assert np.all(apart <= np.maximum(resting.dual_gap_, busy.dual_gap_) + 1e-13 * busy.objective_)
