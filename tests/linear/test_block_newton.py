"""Newton's method over blocks: where it leads, what its bits depend on, and how it ends."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from common.linear_losses import FEW_SMOOTH, conjugate, estimator, targets
from common.sdca_cases import problem_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import tfopt
from tfopt.linear_model._blocks import blocks
from tfopt.linear_model._blocks.execution import ThreadExecutor
from tfopt.linear_model._fit import conjugate_gradients, newton, plan
from tfopt.linear_model._fit.features import working_set
from tfopt.linear_model._fit.penalty import Penalties
from tfopt.linear_model._fit.problem import Problem, sample_rows
from tfopt.linear_model._fit.rows import RowState
from tfopt.linear_model.losses import LOSSES
from tfopt.linear_model.losses import loss_named as record_named

ROWS = [300, 1, 150, 249, 300]

each_loss = pytest.mark.parametrize("loss", FEW_SMOOTH)
each_kind = pytest.mark.parametrize("kind", ["csr", "dense"])


def data(loss: str, kind: str = "dense") -> tuple[Any, np.ndarray, np.ndarray]:
    """Return features of several sizes that resemble each other, labels and weights."""
    random, d = np.random.default_rng(4), 12
    X = random.standard_normal((sum(ROWS), d)) @ random.standard_normal((d, d))
    X *= np.logspace(-1.5, 0, d) * (random.uniform(size=X.shape) < 0.7)
    z = X @ random.standard_normal(d) + 0.5 + random.standard_normal(len(X))
    y = {"poisson": targets("poisson", z / 2, random)}.get(loss, targets(loss, z, random))
    weight = random.choice([0.0, 0.5, 1.0, 2.0], len(X))
    return sparse.csr_matrix(X) if kind == "csr" else X, y, weight


def fit(loss: str, rows: tuple[Any, Any, Any], **options: Any) -> Any:
    options = {"num_loss_partitions": ROWS, "l2": 0.01, "max_iter": 300} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator(loss, **options).fit(*rows)


def relative_gap(model: Any) -> float:
    return float(np.max(np.ravel(model.dual_gap_) / np.abs(np.ravel(model.objective_))))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what blocks are asked for."""
    names: list[str] = []
    ask = ThreadExecutor.map_reduce

    def note(self: Any, function: Any, *arguments: Any) -> Any:
        names.append(function.__name__.removesuffix("_with_hessians"))
        return ask(self, function, *arguments)

    monkeypatch.setattr(ThreadExecutor, "map_reduce", note)
    return names


@pytest.fixture
def by_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have directions found by products with Hessians, as with many weights."""
    monkeypatch.setattr(plan, "MOST_WEIGHTS_IN_BLOCKS", 0)


@each_loss
@each_kind
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("most_weights", [0, 64])
def test_it_finds_the_minimum_in_a_few_steps(
    loss: str,
    kind: str,
    intercept: bool,
    most_weights: int,
    asked: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan, "MOST_WEIGHTS_IN_BLOCKS", most_weights)
    rows = data(loss, kind)
    model = fit(loss, rows, tol=1e-10, fit_intercept=intercept)
    assert "linearize" in asked and ("hessian_products" in asked) == (most_weights == 0)
    assert ("visit" in asked) == (kind == "csr" or LOSSES[loss].is_linear_far)
    assert relative_gap(model) <= 1e-10
    assert model.n_iter_[0] < 40
    alone = fit(loss, rows, tol=1e-10, fit_intercept=intercept, num_loss_partitions=None)
    assert model.objective_ == pytest.approx(alone.objective_, rel=1e-9)


def test_not_where_the_loss_has_corners(asked: list[str], by_products: None) -> None:
    """If the Hessian is too large to be formed."""
    for l1 in (0.0, 0.5):
        fit("hinge", data("hinge"), l1=l1, max_iter=12)
    assert "visit" in asked and "linearize" not in asked and "apply" not in asked


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_sparse_solutions_of_few_features_are_found_in_a_few_steps(
    loss: str, intercept: bool
) -> None:
    """Where blocks have many more rows than there are features, each visits its way to a minimum of
    its own, so that hundreds of epochs did not end."""
    random = np.random.default_rng(0)
    X = random.standard_normal((4000, 10))
    z = X @ random.standard_normal(10) + 0.5 + random.logistic(size=len(X))
    rows = X, z if loss == "squared" else np.sign(z), None
    options = {"l1": 30.0, "l2": 1.0, "fit_intercept": intercept, "tol": 1e-6}
    model = fit(loss, rows, num_loss_partitions=[500] * 8, max_iter=30, **options)
    assert relative_gap(model) <= 1e-6
    assert model.solver_ == ["cd"]
    whole = fit(loss, rows, num_loss_partitions=None, max_iter=1000, **options)
    assert model.objective_ == pytest.approx(whole.objective_, rel=2e-6)


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32), size=st.integers(1, 12))
def test_working_sets_have_those_that_violate_the_optimality_conditions_most(
    seed: int, size: int
) -> None:
    """Of the weights that are not 0, which have three places of four, and of the others."""
    random = np.random.default_rng(seed)
    w, gradient = random.integers(-2, 3, (2, 10)) * random.choice([0.0, 1.0, 0.5], (2, 10))
    found = working_set(w, gradient, Penalties.of(10, 0.7, 0.0), size)
    assert found.tolist() == sorted({*found.tolist()})
    assert len(found) == (10 if size >= 5 else size)
    violations = np.where(w != 0, np.abs(gradient + 0.7 * np.sign(w)), np.abs(gradient) - 0.7)
    inside = np.isin(np.arange(10), found)
    for some in (w != 0, w == 0):
        if (inside & some).any() and (~inside & some).any():
            assert violations[inside & some].min() >= violations[~inside & some].max()
    active = int((inside & (w != 0)).sum())
    places = max(size - size // 4, size - int((w == 0).sum()))
    assert size >= 5 or active == min(int((w != 0).sum()), places)


def test_sparse_solutions_of_many_features_are_found_in_a_few_steps(asked: list[str]) -> None:
    random = np.random.default_rng(0)
    X = random.standard_normal((40_000, 200))
    y = np.sign(X[:, :20] @ random.standard_normal(20) + 0.5 + random.logistic(size=len(X)))
    options = {"l1": 300.0, "l2": 1.0, "tol": 1e-4, "max_iter": 30}
    model = fit("logistic", (X, y, None), num_loss_partitions=[5000] * 8, **options)
    assert relative_gap(model) <= 1e-4 and model.solver_ == ["cd"]
    assert "hessians_of" in asked and "visit" not in asked
    assert np.count_nonzero(model.coef_) <= 20


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_working_sets_go_through_all_weights(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More weights than are moved at a time are not 0."""
    monkeypatch.setattr(plan, "MOST_WEIGHTS_IN_BLOCKS", 0)
    monkeypatch.setattr(newton, "SMALLEST_SET", 1)
    monkeypatch.setattr(newton, "LARGEST_SET", 4)
    for loss in ("logistic", "squared"):
        rows = data(loss, kind)
        model = fit(loss, rows, l1=0.05, tol=1e-8, max_iter=500)
        assert np.count_nonzero(model.coef_) > 4 and relative_gap(model) <= 1e-8
        whole = fit(loss, rows, l1=0.05, tol=1e-9, num_loss_partitions=None, max_iter=5000)
        assert model.objective_ == pytest.approx(whole.objective_, rel=2e-8)


@each_loss
@pytest.mark.parametrize("most_weights", [0, 64])
def test_threads_change_no_bits(
    loss: str, most_weights: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "MOST_WEIGHTS_IN_BLOCKS", most_weights)
    fits = []
    for threads in (1, 2, 3):
        tfopt.threads.set_num_threads(threads)
        model = fit(loss, data(loss), tol=1e-9)
        fits.append(model.coef_.tobytes() + model.dual_coef_.tobytes())
    assert len({*fits}) == 1


@pytest.mark.parametrize("most_weights", [0, 64])
def test_each_class_has_steps_of_its_own(
    most_weights: int, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bits as alone, but rounds are for all."""
    monkeypatch.setattr(plan, "MOST_WEIGHTS_IN_BLOCKS", most_weights)
    X, z, weight = data("squared")
    y = np.digitize(z, [-1.0, 1.0])
    model = fit("logistic", (X, y, weight), tol=1e-8)
    assert relative_gap(model) <= 1e-8
    assert ("hessian_products" in asked) == (most_weights == 0)
    together, alone = asked.copy(), []
    for k in range(3):
        asked.clear()
        one = fit("logistic", (X, y == k, weight), tol=1e-8)
        assert model.coef_[k].tobytes() == one.coef_[0].tobytes()
        assert model.n_iter_[k] == one.n_iter_[0]
        alone.append(asked.count("linearize"))
    assert together.count("linearize") < sum(alone)


@each_loss
@pytest.mark.parametrize("good_steps", [0, 2, 9])
@pytest.mark.parametrize("lower", ["always", "after a refusal", "twice"])
@pytest.mark.parametrize("kind", ["csr", "dense"])
def test_the_best_certificate_is_kept_wherever_it_ends(
    loss: str,
    good_steps: int,
    lower: str,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    by_products: None,
) -> None:
    """Of the history, with the dual variables that belong to it, though later steps go astray.

    Blocks look at points, too, that are refused.
    """
    tfopt.threads.set_num_threads(1)
    X, y, weight = data(loss, kind)
    direction = conjugate_gradients.conjugate_gradients
    for most in range(2, 9):
        verdicts = {
            "always": itertools.repeat(True),
            "after a refusal": itertools.cycle([False, True]),
            "twice": itertools.chain([True, True], itertools.repeat(False)),
        }[lower]
        monkeypatch.setattr(newton, "armijo_holds", lambda *_, verdicts=verdicts: next(verdicts))
        calls = itertools.count()

        def astray(*given: Any, calls: Any = calls, **more: Any) -> Any:
            return direction(*given, **more) * (1 if next(calls) < good_steps else -3)

        monkeypatch.setattr(conjugate_gradients, "conjugate_gradients", astray)
        model = fit(loss, (X, y, weight), max_iter=most, tol=1e-13, fit_intercept=False, l2=2.0)
        (gap,), (objective,) = np.ravel(model.dual_gap_), np.ravel(model.objective_)
        history = model.history_[0]
        gaps = [record["gap"] * record["objective"] for record in history if record["certified"]]
        assert model.n_iter_[0] == len(history) == most
        assert gap == pytest.approx(min(gaps), rel=1e-12)
        a = np.ravel(model.dual_coef_)
        v = X.T @ (weight * a) / 2.0
        dual = -(weight @ conjugate(loss, a, y, model._parameter())) - v @ v
        assert objective - gap == pytest.approx(dual, rel=1e-9)


@each_loss
def test_where_it_ends_without_success_visits_go_on(
    loss: str, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newton, "armijo_holds", lambda *_: False)
    model = fit(loss, data(loss), tol=1e-5, max_iter=20_000, l2=20.0)
    failed = len(asked) - asked[::-1].index("linearize")
    assert "visit" in asked[failed:]
    assert relative_gap(model) <= 1e-5


def test_a_hessian_that_rounding_makes_singular_is_multiplied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Instead of solved with; here and without blocks."""
    monkeypatch.setattr(newton, "solve_newton_system", lambda *_: None)
    for rows in (ROWS, None):
        model = fit("logistic", data("logistic"), tol=1e-10, num_loss_partitions=rows)
        assert relative_gap(model) <= 1e-10
        assert model.n_iter_[0] < 60


def test_steps_that_are_too_long_are_halved(asked: list[str], by_products: None) -> None:
    """From far away the first step of the Poisson loss overflows."""
    X, _, weight = data("poisson")
    X = 40 * X / np.abs(X).max()
    y = np.where(X[:, -1] > 5, 100.0, 0.0)
    model = fit("poisson", (X, y, weight), tol=1e-9, max_iter=2000, l2=1e-3)
    assert relative_gap(model) <= 1e-9
    assert asked.count("linearize") > model.n_iter_[0]


@pytest.mark.parametrize("intercept", [False, True])
def test_a_warm_start_that_is_infinitely_far_away_is_left(intercept: bool) -> None:
    """There the losses overflow, and a relative gap would be nothing."""
    X, y, weight = data("poisson")
    warm = fit("poisson", (X, y, weight), warm_start=True, fit_intercept=intercept)
    warm.set_params(tol=1e-9).fit(1e3 * X, y, weight)
    cold = fit("poisson", (1e3 * X, y, weight), tol=1e-9, fit_intercept=intercept)
    assert relative_gap(warm) <= 1e-9
    assert warm.objective_ == pytest.approx(cold.objective_, rel=2e-9)


@each_loss
@each_kind
@pytest.mark.parametrize("intercept", [False, True])
def test_a_warm_start_is_where_the_last_fit_ended(loss: str, kind: str, intercept: bool) -> None:
    options = {"tol": 1e-9, "warm_start": True, "fit_intercept": intercept}
    model = fit(loss, data(loss, kind), **options)
    cold, found = model.n_iter_[0], model.objective_
    model.fit(*data(loss, kind))
    assert model.n_iter_[0] < cold
    assert model.objective_ == pytest.approx(found, rel=2e-9)


@given(n=st.integers(1, 10**6), size=st.integers(1, 1000))
def test_a_sample_has_a_row_of_each_range(n: int, size: int) -> None:
    """With the minimum for a sample of the rows Newton's method may begin."""
    size = min(n, size)
    found, width = sample_rows(n, size), n // size
    assert (found // width == np.arange(size)).all()
    if width > 50 and size > 300:  # whatever the period of the data
        assert all(len({*(found % period).tolist()}) == period for period in (2, 3, 7, 16))


def test_a_block_does_not_change() -> None:
    """Repeated requests have the same answer."""
    given = problem_of("logistic_loss", 1, n=40)
    problem = Problem(given.rows, given.n_weights, record_named("logistic_loss"), 0.0, 2.0, True, 1)
    block = blocks.BlockState(0, problem, 7, (RowState.initial(given.examples),))
    w = np.linspace(-1, 1, given.n_weights)
    linearize, request = blocks.Method("linearize_with_hessians"), ({0: (w, 0.1)}, False)
    after, first = linearize(block, request)
    _, again = linearize(block, request)
    assert str(first) == str(again)
    assert after.states[0].a is block.states[0].a  # visits go on from there, if they have to
    assert not block.states[0].hess_pointwise.size and after.states[0].hess_pointwise.any()
    vector = np.append(w, 1.0)
    multiply = blocks.Method("hessian_products")
    products = [multiply(after, ({0: vector},))[1][0].tobytes() for _ in range(2)]
    assert products[0] == products[1]
