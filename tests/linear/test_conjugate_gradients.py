"""Products with a Hessian, the direction they lead to, and fits of many features."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from common.sdca_cases import EXAMPLE, LOSSES, Problem, problem_of, problems
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import tfopt
from tfopt.kernels.linear import hessian_products, second_order, visits
from tfopt.linear_model import SDCAClassifier, SDCARegressor
from tfopt.linear_model._fit import conjugate_gradients, work
from tfopt.linear_model._fit.design import MemoryDesign
from tfopt.linear_model._fit.plan import Plan
from tfopt.linear_model._fit.problem import Problem as Prepared
from tfopt.linear_model.losses import loss_named as record_named

SMOOTH = ("logistic_loss", "squared_loss", "smooth_hinge_loss", "poisson_loss")


def with_ones(problem: Problem) -> np.ndarray:
    """Return the rows as an array, with a last feature of 1."""
    n = len(problem.examples)
    X = np.zeros((n, problem.n_weights + 1))
    for i in range(n):
        part = slice(problem.indptr[i], problem.indptr[i + 1])
        X[i, problem.indices[part]] = problem.data[part]
    X[:, problem.n_weights - problem.dense.shape[1] : -1] += problem.dense
    X[:, -1] = 1
    return X


def bends_of(problem: Problem) -> np.ndarray:
    return np.random.default_rng(0).choice([0.0, 0.25, 1.0], len(problem.examples))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("index", ["int32", "int64"])
@given(data=st.data())
def test_products_are_those_with_the_matrix(dtype: str, index: str, data: Any) -> None:
    problem = data.draw(problems("logistic_loss", dtype, index))
    X, bends = with_ones(problem), bends_of(problem)
    s = np.random.default_rng(1).standard_normal(X.shape[1])
    size = np.abs(X).T @ (bends * (np.abs(X) @ np.abs(s)))
    for shares in (0, 1, 3):
        found = hessian_products.product(*problem.rows, bends, s, 0, shares)
        assert (np.abs(found - X.T @ (bends * (X @ s))) <= 1e-14 * size).all()
    found = hessian_products.diagonal(*problem.rows, bends, problem.n_weights)
    np.testing.assert_allclose(found, bends @ X**2, rtol=1e-13)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("index", ["int32", "int64"])
@given(data=st.data())
def test_a_tangent_is_what_several_looks_find(loss: str, dtype: str, index: str, data: Any) -> None:
    """Bit for bit where nothing is added up."""
    made = data.draw(problems(loss, dtype, index))
    given = Prepared(made.rows, made.n_weights, record_named(loss, 0.6), 0.0, 1.0, True, 1)
    w, bias = np.random.default_rng(1).standard_normal(made.n_weights) / 4, 0.3
    losses, wx, slopes, bends, gradient, second = hessian_products.tangent(
        *made.rows, made.examples, w, bias, loss, 0.6
    )
    assert wx.tobytes() == given.predictions(w).tobytes()
    pair = given.derivatives(made.examples, wx, bias)
    assert (slopes.tobytes(), bends.tobytes()) == (pair[0].tobytes(), pair[1].tobytes())
    assert losses == pytest.approx(
        given.gaps(made.examples, np.zeros(len(wx)), wx, bias)[0], rel=1e-14
    )
    X = with_ones(made)
    size = 1e-14 * np.abs(X).T @ np.abs(slopes)
    assert (np.abs(gradient - X.T @ slopes) <= size).all()
    diagonal = hessian_products.diagonal(*made.rows, bends, made.n_weights)
    np.testing.assert_allclose(second, diagonal, rtol=1e-14)


@pytest.mark.parametrize("n", [1, 511, 512, 513, 1024, 5000])
@pytest.mark.parametrize("threads", [1, 3])
def test_gaps_are_sums_over_all_examples(n: int, threads: int) -> None:
    """Of whole blocks, of a part of one, and of those without weight none."""
    random = np.random.default_rng(n)
    examples = np.zeros(n, EXAMPLE)
    examples["y"], examples["weight"] = random.standard_normal(n), random.integers(0, 3, n)
    a, z = random.standard_normal(n), random.standard_normal(n) + 0.25
    y, weight = examples["y"], examples["weight"]
    losses = (weight * (z - y) ** 2 / 2).sum()
    gap = (weight * ((z - y) ** 2 / 2 + a * (a / 2 - y) + a * z)).sum()
    found = second_order.gaps(examples, a, z - 0.25, 0.25, "squared_loss", 0.0, threads)
    assert found == pytest.approx((losses, gap), rel=1e-12)


@pytest.mark.parametrize("loss", SMOOTH)
@given(data=st.data())
def test_what_a_step_predicts_is_on_the_tangents_it_started_from(loss: str, data: Any) -> None:
    made = data.draw(problems(loss, "float64", "int32"))
    given = Prepared(made.rows, made.n_weights, record_named(loss, 0.6), 0.0, 1.0, True, 1)
    random, examples = np.random.default_rng(2), made.examples
    z, near = random.standard_normal(len(examples)), 1e-3 * random.standard_normal(len(examples))
    before = second_order.tangents(examples, z, 0.1, loss, 0.6)
    last = before[1], before[2], near + 0.01
    losses, slopes, bends, a, gap = second_order.tangents(examples, z + near, 0.11, loss, 0.6, last)
    assert losses == given.gaps(examples, a, z + near, 0.11)[0]
    pair = given.derivatives(examples, z + near, 0.11)
    assert (slopes.tobytes(), bends.tobytes()) == (pair[0].tobytes(), pair[1].tobytes())
    there, weight = examples["weight"] > 0, examples["weight"]
    expected = -(before[1] + before[2] * (near + 0.01))[there] / weight[there]
    np.testing.assert_array_equal(a[there], expected)
    np.testing.assert_array_equal(a[~there], examples["a"][~there])
    exact = given.gaps(examples, a, z + near, 0.11)[1]
    if loss != "smooth_hinge_loss":  # may cross a corner
        assert gap == pytest.approx(exact, rel=0.2, abs=1e-13 * (1 + losses))


@pytest.mark.parametrize("loss", [loss for loss in SMOOTH if loss != "smooth_hinge_loss"])
@pytest.mark.parametrize("size", [1e-3, 0.1])
def test_the_gap_of_a_step_is_that_of_parabolas(loss: str, size: float) -> None:
    """Of those that have the curvatures at its end."""
    made, random = problem_of(loss, 5, n=40), np.random.default_rng(3)
    z, near = random.standard_normal(40), size * random.standard_normal(40)
    before = second_order.tangents(made.examples, z, 0.0, loss, 0.6)
    last = before[1], before[2], near
    _, slopes, bends, a, gap = second_order.tangents(made.examples, z + near, 0.0, loss, 0.6, last)
    weight = made.examples["weight"]
    some = weight > 0
    errors = (slopes + weight * a)[some]
    parabolas = (errors**2 / (2 * bends[some])).sum()
    assert gap == pytest.approx(parabolas, rel=1e-6, abs=1e-25)


def direction_of(objective: Prepared, bends: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Return what conjugate gradients find, with products by the rows."""
    design = MemoryDesign(
        objective,
        [np.zeros(len(bends), visits.EXAMPLE)],
        Plan("sdca", "newton-cg"),
        lambda k: bends,
    )
    design.states[0] = design.states[0]._replace(hess_pointwise=bends)
    diagonal = hessian_products.diagonal(*objective.rows, bends, objective.n_weights)
    return conjugate_gradients.conjugate_gradient_directions(
        objective, {0: diagonal}, {0: gradient}, design.hessian_products, {}
    )[0]


def wide(n: int = 4000) -> Problem:
    """Return a problem that is worth several shares and threads."""
    return problem_of("logistic_loss", 1, n=n, n_sparse=700, longest=60)


def test_threads_change_no_bits() -> None:
    problem = wide()
    bends, s = bends_of(problem), np.random.default_rng(1).standard_normal(problem.n_weights + 1)
    answers = []
    for threads in (1, 2, 3, 5):
        tfopt.threads.set_num_threads(threads)
        product = hessian_products.product(*problem.rows, bends, s)
        diagonal = hessian_products.diagonal(*problem.rows, bends, problem.n_weights)
        losses, *arrays = hessian_products.tangent(
            *problem.rows, problem.examples, s[:-1], s[-1], "logistic_loss", 1.0
        )
        answers.append((losses, *(array.tobytes() for array in (product, diagonal, *arrays))))
    assert len({*answers}) == 1
    X = with_ones(problem)
    expected = X.T @ (bends * (X @ s))
    np.testing.assert_allclose(product, expected, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("share", [0.5, 1e-3, 1e-12])
def test_the_direction_is_newtons_as_far_as_asked(
    intercept: bool, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = wide(600)
    bends = bends_of(made)
    problem = Prepared(
        rows=made.rows,
        n_weights=made.n_weights,
        phi=record_named("logistic_loss"),
        l1=0.0,
        l2=0.1,
        intercept=intercept,
        threads=0,
    )
    gradient = np.random.default_rng(2).standard_normal(made.n_weights + 1)
    if not intercept:
        gradient[-1] = 0
    H = second_order.newton_system(*made.rows, bends, bends, made.n_weights)[1]
    H[np.diag_indices(made.n_weights)] += 0.1
    scale = np.diagonal(H)
    monkeypatch.setattr(conjugate_gradients, "CG_TOLERANCE", share)
    step = direction_of(problem, bends, gradient)
    left = H @ step + gradient
    if not intercept:
        assert step[-1] == 0
        left[-1] = 0
    assert left @ (left / scale) <= 1.01 * share**2 * gradient @ (gradient / scale)
    assert gradient @ step < 0
    if share == 1e-12:
        free = slice(None) if intercept else slice(-1)
        newtons = np.linalg.solve(H[free, free], -gradient[free])
        np.testing.assert_allclose(step[free], newtons, atol=1e-9 * np.abs(newtons).max())


def test_a_direction_that_is_cut_short_goes_down(monkeypatch: pytest.MonkeyPatch) -> None:
    made = wide(600)
    problem = Prepared(made.rows, made.n_weights, record_named("logistic_loss"), 0.0, 1e-6, True, 0)
    gradient = np.random.default_rng(2).standard_normal(made.n_weights + 1)
    monkeypatch.setattr(conjugate_gradients, "CG_TOLERANCE", 0)
    descents = []
    for most in (1, 2, 5, 20):
        monkeypatch.setattr(conjugate_gradients, "MAX_PRODUCTS", most)
        step = direction_of(problem, bends_of(made), gradient)
        descents.append(gradient @ step)
    assert (np.diff([0.0, *descents]) < 0).all()


# ---- fits


def ill_conditioned(loss: str) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    X = random.standard_normal((400, 30)) @ np.diag(np.logspace(0, -2, 30))
    X *= random.uniform(size=X.shape) < 0.5
    z = 3 * X @ random.standard_normal(30) + random.standard_normal(400)
    if loss == "squared":
        return X, z
    return X, random.poisson(np.exp(z / 4)).astype(float) if loss == "poisson" else np.sign(z)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", [name.removesuffix("_loss") for name in SMOOTH])
def test_more_features_than_a_matrix_has(loss: str, intercept: bool) -> None:
    """Of empty ones: the minimum is that without them, which the matrix leads to."""
    X, y = ill_conditioned(loss)
    kind = SDCARegressor if loss in ("squared", "poisson") else SDCAClassifier
    options: dict[str, Any] = {"l2": 1e-4, "tol": 1e-10, "fit_intercept": intercept}
    few = kind(loss, **options).fit(sparse.csr_matrix(X), y)
    padded = sparse.csr_matrix(X)
    padded.resize(400, work.MOST_WEIGHTS + 100)
    many = kind(loss, **options).fit(padded, y)
    assert many.n_iter_[0] < 60
    assert many.dual_gap_ <= 1e-10 * np.abs(many.objective_)
    assert many.objective_ == pytest.approx(few.objective_, rel=2e-10)
    coef = np.ravel(many.coef_)
    assert not coef[30:].any()
    np.testing.assert_allclose(coef[:30], np.ravel(few.coef_), atol=1e-3 * np.abs(coef).max())


def test_threads_change_no_bits_of_a_fit() -> None:
    random = np.random.default_rng(0)
    X = sparse.random(3000, 800, 0.04, format="csr", random_state=0)
    X = X @ sparse.diags(np.logspace(0, -2, 800))
    y = np.sign(X @ random.standard_normal(800) + 0.02 * random.standard_normal(3000))
    answers = []
    for threads in (1, 2, 3):
        tfopt.threads.set_num_threads(threads)
        model = SDCAClassifier(l2=1e-3, tol=1e-9).fit(X, y)
        answers.append(model.coef_.tobytes() + model.dual_coef_.tobytes())
    assert len({*answers}) == 1
    assert model.n_iter_[0] < 60


@pytest.mark.parametrize(("d", "share"), [(20, 1.0), (450, 0.3), (1001, 0.0)])
def test_the_matrix_is_made_where_it_is_less_work(
    d: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each step but the last; in few of them, as a preconditioner; or in none."""
    made: list[int] = []
    system = second_order.newton_system
    monkeypatch.setattr(
        second_order, "newton_system", lambda *given: made.append(1) or system(*given)
    )
    random = np.random.default_rng(0)
    X = random.standard_normal((1000, d)) * np.logspace(0, -2, d)
    y = np.sign(X @ random.standard_normal(d) + random.logistic(size=1000))
    model = SDCAClassifier(l2=1e-3, tol=1e-9, max_iter=60).fit(X, y)
    assert model.dual_gap_[0] <= 1e-9 * model.objective_[0]
    most = share * (model.n_iter_[0] - 1)
    assert len(made) == most if share in (0, 1) else 0 < len(made) <= most


@pytest.mark.parametrize(("correlation", "l2"), [(0.0, 300.0), (0.95, 1.0)])
def test_a_hessian_is_formed_where_products_have_cost_as_much(
    correlation: float, l2: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For correlated features, which then take fewer products; others do not take so many."""
    X = np.random.default_rng(0).standard_normal((1500, 300))
    for j in range(1, 300):
        X[:, j] = correlation * X[:, j - 1] + np.sqrt(1 - correlation**2) * X[:, j]
    y = X[:, :9].sum(axis=1) + 3 * np.random.default_rng(1).standard_normal(1500) > 0
    counts = []
    for share in (work.SHARE_OF_HESSIAN, math.inf):
        monkeypatch.setattr(work, "SHARE_OF_HESSIAN", share)
        count = {"hessian_products": 0, "hessians_of": 0}
        for name in count:
            found = vars(MemoryDesign)[name]

            def counted(
                self: Any, of: Any, found: Any = found, name: str = name, count: Any = count
            ) -> Any:
                count[name] += len(of)
                return found(self, of)

            monkeypatch.setattr(MemoryDesign, name, counted)
        model = SDCAClassifier(solver="newton-cg", l2=l2, tol=1e-6).fit(X, y)
        assert model.dual_gap_[0] <= 1e-6 * model.objective_[0]
        counts.append(count)
        monkeypatch.undo()
    (products, formed), (all_products, none) = (each.values() for each in counts)
    assert none == 0
    assert (formed > 0) == (correlation > 0)
    assert 2 * products < all_products if formed else products == all_products
