"""The interior-point method for losses with corners: its steps, its minimum, and how it ends."""

from __future__ import annotations

import functools
import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from certified import check
from common.linear_losses import CORNERED, estimator
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

import tfopt
from tfopt.kernels.linear import interior_point as kernels
from tfopt.kernels.linear import second_order
from tfopt.kernels.linear.second_order import solve
from tfopt.linear_model import SDCAClassifier
from tfopt.linear_model._fit import interior_fields, interior_rows, monitor, plan
from tfopt.linear_model._fit.design import MemoryDesign
from tfopt.linear_model._fit.interior_point import InteriorPoint
from tfopt.linear_model._fit.plan import make_plan
from tfopt.linear_model._fit.problem import InitialPoint, as_rows
from tfopt.linear_model._fit.problem import Problem as Prepared
from tfopt.linear_model.losses import loss_named as record_named
from tfopt.linear_model.parameters import Parameters

BLOCKS = [30, 1, 49]
L2 = 0.5
#: Options with which a fit begins with the method.
WAYS: dict[str, dict[str, Any]] = {
    "whole": {"solver": "interior-point"},
    "blocks": {"num_loss_partitions": BLOCKS},
}
each_intercept = pytest.mark.parametrize("intercept", [False, True])
each_blocks = pytest.mark.parametrize("blocks", [None, BLOCKS], ids=["whole", "blocks"])


@functools.cache
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features that resemble each other, labels, and weights, some of them 0."""
    random = np.random.default_rng(6)
    X = random.standard_normal((80, 5)) @ random.standard_normal((5, 5)) * np.logspace(-1, 0, 5)
    z = X @ random.standard_normal(5) / 2 + 0.5 + random.standard_normal(80)
    return X, np.sign(z), random.choice([0.0, 0.5, 1.0, 2.0], 80)


def fitted(*rows: Any, **options: Any) -> Any:
    """Return a model by the interior-point method; over blocks, "auto" begins with that."""
    options = {"l2": L2, "tol": 1e-9} | options
    if options.get("num_loss_partitions") is None:
        options = WAYS["whole"] | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return SDCAClassifier("hinge", **options).fit(*rows or data())


def relative_gaps(model: Any) -> np.ndarray:
    return np.ravel(model.dual_gap_) / np.ravel(model.objective_)


# ---- steps

FORMS: dict[str, dict[str, Any]] = {
    "whole": WAYS["whole"],
    "rounds": WAYS["whole"],
    "csr": WAYS["whole"],
    "Fortran": WAYS["whole"],
    "blocks": WAYS["blocks"],
}


def stored(form: str, X: np.ndarray) -> Any:
    return {"csr": sparse.csr_matrix, "Fortran": np.asfortranarray}.get(form, np.array)(X)


@each_intercept
@pytest.mark.parametrize("loss", CORNERED)
@pytest.mark.parametrize("form", FORMS)
def test_steps_are_the_same_in_any_form(
    loss: str, intercept: bool, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with the certificate that its dual variables prove, until the gap is closed."""
    X, y, weight = data()
    if loss != "hinge":
        y = X @ np.arange(5) + 3 * np.random.default_rng(1).standard_normal(80) + 2
    options = {"l2": L2, "fit_intercept": intercept, "tol": 0.0}
    for n_iter in (1, 2, 3, 5, 8):
        models = []
        for each in ("whole", form):
            with monkeypatch.context() as patch:
                if each == "rounds":
                    patch.setattr(interior_rows, "FEW", 0)
                model = estimator(loss, 0.3, **options, **FORMS[each], max_iter=n_iter)
                with pytest.warns(ConvergenceWarning):
                    models.append(model.fit(stored(each, X), y, weight))
        one, other = models
        assert np.ravel(other.n_iter_) == [n_iter] and other.solver_ == ["interior-point"]
        check(other, X, y, weight)
        np.testing.assert_allclose(other.coef_, one.coef_, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(other.objective_, one.objective_, rtol=1e-8)
        scale = 1e-9 * np.ravel(one.objective_)[0]
        np.testing.assert_allclose(other.dual_gap_, one.dual_gap_, rtol=1e-5, atol=scale)
    done = estimator(loss, 0.3, **options | FORMS[form] | {"tol": 1e-9}).fit(
        stored(form, X), y, weight
    )
    assert done.solver_ == ["interior-point"] and np.ravel(done.n_iter_)[0] < 40
    assert np.max(relative_gaps(done)) <= 1e-9


@each_intercept
@each_blocks
def test_from_near_the_minimum_few_steps_are_left(intercept: bool, blocks: Any) -> None:
    """They begin with the dual variables of the certificate of epochs, and never lose it."""
    X, y, weight = data()
    way = WAYS["blocks" if blocks else "whole"]
    options = {"fit_intercept": intercept, "l2": L2, "warm_start": True}
    begun = SDCAClassifier("hinge", solver="sdca", tol=9e-3, **options).fit(*data())
    cold = fitted(**options | way)
    w, b, a = begun.coef_, begun.intercept_, begun.dual_coef_
    gaps = []
    for n_iter in range(1, 12):
        model = SDCAClassifier("hinge", **options | way, tol=0.0, max_iter=n_iter)
        model.coef_, model.intercept_, model.dual_coef_ = w.copy(), b.copy(), a.copy()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(*data())
        check(model, X, y, weight)
        gaps.append(float(relative_gaps(model)[0]))
    assert 1e-3 < gaps[0] < 1e-2 and gaps[7] < 1e-5
    assert gaps == sorted(gaps, reverse=True)
    assert cold.n_iter_[0] > 1 + next(k for k, gap in enumerate(gaps) if gap <= 1e-4)


ends = st.integers(0, 2**32 - 1).map(np.random.default_rng)


@given(st.floats(1e-6, 1e3), ends)
def test_the_centre_is_where_both_products_are_mu(mu: float, random: Any) -> None:
    r = random.choice([0.0, 1e-3, 1.0, 1e3], 9) * random.standard_normal(9)
    low, high = -random.choice([0.0, 0.3, 1.0], 9), random.choice([0.1, 1.0], 9)
    weight, a, upper, lower, p, n = interior_fields.centred(np.ones(9), r, low, high, mu)[:6]
    assert (weight == 1).all() and (np.minimum(upper, lower) > 0).all()
    np.testing.assert_allclose(upper + lower, high - low, rtol=1e-12)
    near_low = lower < upper
    np.testing.assert_allclose(np.where(near_low, a - low, high - a), np.minimum(upper, lower),
                               rtol=1e-9, atol=1e-15)  # fmt: skip
    np.testing.assert_allclose(p * upper, mu, rtol=1e-12)
    np.testing.assert_allclose(n * lower, mu, rtol=1e-12)
    np.testing.assert_allclose(p - n, r, rtol=1e-6, atol=1e-6 * (1 + mu))


@given(ends, st.floats(1e-9, 1e3))
def test_dual_variables_are_kept_but_moved_inside(random: Any, mu: float) -> None:
    """Of any intervals, and of dual variables at their ends, inside and outside of them."""
    r = random.choice([0.0, 1e-6, 1e-2, 1.0, 50.0], 40) * random.choice([-1.0, 1.0], 40)
    low, high = -random.choice([0.0, 0.3, 1.0], 40), random.choice([0.1, 1.0], 40)
    a = low + random.choice([-0.5, 0.0, 1e-9, 0.2, 0.5, 1.0, 1.5], 40) * (high - low)
    centred = interior_fields.centred(np.ones(40), r, low, high, mu)
    _, new, upper, lower, p, n = interior_fields.kept(centred, r, low, high, mu, a)[:6]
    width, close = high - low, functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-12)
    close(upper, high - new)
    close(lower, new - low)
    least_upper, least_lower = (np.minimum(each, 0.3 * width) for each in centred[2:4])
    close(new, np.clip(a, low + least_lower, high - least_upper))
    close(p - n, r)
    least = mu / width  # of the smaller one
    assert (np.minimum(p, n) >= least * (1 - 1e-9)).all()
    products = p * upper + n * lower
    has_mean = np.minimum(p, n) > least * (1 + 1e-9)
    close(products[has_mean], 2 * mu)
    assert (products >= 2 * mu * (1 - 1e-9)).all() or (products[~has_mean] >= mu * (1 - 1e-9)).all()


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 2.0))
def test_rows_are_those_of_the_formulas(seed: int, target: float) -> None:
    """The kernels' answers for a step of the weights, by the formulas."""
    random = np.random.default_rng(seed)
    n = int(random.integers(1, 1500))
    fields = np.exp(random.standard_normal((len(kernels.FIELDS), n)))
    fields[0] *= random.integers(0, 2, n)
    c, a, upper, lower, p, q = fields[:6].copy()
    changes, bias = random.standard_normal(n), float(random.standard_normal())
    kept = c > 0
    D = 1 / (p / upper + q / lower)
    curvatures, pulls = kernels.advance(fields, 0.0)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9)
    close(curvatures, c * D)
    close(pulls, c * (a + D * (p - q)))
    (centring, products), sums = kernels.predict(fields, changes, bias)
    da = np.where(kept, D * (p - q - changes - bias), 0.0)
    dp, dq = p / upper * da - p, -q - q / lower * da
    close(fields[6][kept], da[kept])
    close(centring, c * D * (1 / lower - 1 / upper))
    close(products, c * D * (-da * dq / lower - da * dp / upper))
    close(sums[1], c @ (dp * upper - p * da + dq * lower + q * da))
    before = fields.copy()
    sums = kernels.correct(fields, changes, bias, target)
    e, f = target + da * dp, target - da * dq
    da = D * (p - q - e / upper + f / lower - changes - bias)
    dp, dq = e / upper - p + p / upper * da, f / lower - q - q / lower * da
    for k, step in enumerate((da, dp, dq), 6):
        close(fields[k][kept], step[kept])
        np.testing.assert_array_equal(fields[k][~kept], before[k][~kept])
    ratios = [
        np.max(-(d / x)[kept], initial=0)
        for x, d in zip((upper, lower, p, q), (-da, da, dp, dq), strict=True)
    ]
    close(sums[0], max(ratios))
    close(sums[1], c @ (dp * upper - p * da + dq * lower + q * da))
    close(sums[2], c @ (da * (dq - dp)))
    close(sums[3], c @ (dp * (a + upper) - dq * (a - lower)))
    kernels.advance(fields, 0.25)
    close(fields[1][kept], (a + 0.25 * da)[kept])
    close(fields[2][kept], (upper - 0.25 * da)[kept])


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1e-14]))
def test_a_factor_solves_systems(seed: int, least_pivot: float) -> None:
    random = np.random.default_rng(seed)
    A = random.standard_normal((6, 4))
    A = A.T @ A + 0.1 * np.eye(4)
    factor, b = A.copy(), random.standard_normal(4)
    assert not solve(A - 100 * np.eye(4), b.copy(), least_pivot=least_pivot)
    for is_factor in (False, True):
        x = b.copy()
        assert solve(factor, x, is_factor, least_pivot)
        np.testing.assert_allclose(np.triu(factor), np.linalg.cholesky(A).T, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(A @ x, b, rtol=1e-9, atol=1e-9)


def test_the_least_pivot_is_a_share_of_the_diagonal() -> None:
    A, b = np.array([[4.0, 4.0], [4.0, 4.0 + 1e-10]]), np.array([1.0, 2.0])
    assert not solve(A.copy(), b.copy(), least_pivot=1e-10)
    assert solve(A.copy(), b.copy(), least_pivot=1e-12) and solve(A, b, least_pivot=0.0)
    assert solve(np.zeros((0, 0)), np.zeros(0))


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_a_step_at_once_is_that_in_rounds(seed: int, intercept: bool) -> None:
    random = np.random.default_rng(seed)
    n, d = int(random.integers(20, 400)), int(random.integers(1, 20))
    X, y = random.standard_normal((n, d)), np.sign(random.standard_normal(n))
    objective = Prepared(as_rows(X), d, record_named("hinge_loss"), 0.0, 0.7, intercept, 1)
    weight = random.integers(0, 3, n).astype(float)
    weight[0] = 1.0
    examples = InitialPoint(y, weight, np.ones(n), np.zeros(n), 0.0).examples()
    u = random.standard_normal(d + 1) / 10
    u[-1] *= intercept
    methods = []
    for _ in range(2):
        design = MemoryDesign(
            objective, [examples], make_plan(objective, Parameters()), lambda k: y
        )
        methods.append(InteriorPoint(objective, design))
        methods[-1].begin({0: (u[:-1], float(u[-1]))}, {})
    one, other = methods
    for _ in range(3):
        steps = one._steps_at_once()[0], other._steps_in_rounds()[0]
        for mine, theirs in zip(*steps, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-9)
        for method, step in zip(methods, steps, strict=True):
            assert method._moved(0, *step)


# ---- the minimum


@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
def test_it_is_that_of_liblinear(C: float) -> None:
    X, y, weight = data()
    theirs = LinearSVC(loss="hinge", C=C, fit_intercept=False, tol=1e-8, max_iter=1_000_000)
    w = theirs.fit(X, y, weight).coef_[0]
    model = fitted(C=C, l2=None, fit_intercept=False)
    assert relative_gaps(model) <= 1e-9
    objective = weight @ np.maximum(0, 1 - y * (X @ w)) + w @ w / (2 * C)
    assert model.objective_[0] == pytest.approx(objective, rel=1e-6)
    np.testing.assert_allclose(model.coef_[0], w, atol=1e-3)


@each_intercept
@pytest.mark.parametrize("l2", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_few_steps_lead_there(intercept: bool, l2: float, scale: float) -> None:
    """With any penalty, scale and weights; of blocks, too, which visits do not get anywhere."""
    X, y, weight = data()
    for blocks in (None, BLOCKS):
        options = {"num_loss_partitions": blocks, "fit_intercept": intercept, "max_iter": 60}
        model = fitted(scale * X, y, scale * weight, l2=l2, tol=1e-7, **options)
        assert relative_gaps(model) <= 1e-7 and model.solver_ == ["interior-point"]


def test_of_a_thousand_rows_in_blocks() -> None:
    random = np.random.default_rng(0)
    X = random.standard_normal((4000, 8))
    y = np.sign(X @ random.standard_normal(8) / 2 + random.logistic(size=len(X)))
    model = fitted(X, y, num_loss_partitions=[500] * 8, tol=1e-8)
    assert relative_gaps(model) <= 1e-8 and model.n_iter_ <= 30
    assert model.objective_ == pytest.approx(fitted(X, y).objective_, rel=1e-8)


def test_small_problems_are_polished_to_the_last_digits() -> None:
    assert relative_gaps(fitted(tol=None)) <= 1e-12


def test_rows_without_weight_count_for_nothing() -> None:
    X, y, weight = data()
    kept = weight > 0
    model, alone = fitted(), fitted(X[kept], y[kept], weight[kept])
    assert model.n_iter_ == alone.n_iter_
    np.testing.assert_allclose(model.coef_, alone.coef_, rtol=1e-9)
    assert (model.dual_coef_[0][~kept] == 0).all()
    twice = np.repeat(np.arange(len(y)), np.where(weight == 2, 2, 1))
    model = fitted(X[twice], y[twice], np.minimum(weight, 1)[twice])
    np.testing.assert_allclose(model.coef_, alone.coef_, rtol=1e-6)


# ---- what it depends on, and how it begins and ends


@each_blocks
def test_each_class_has_steps_of_its_own(blocks: Any) -> None:
    X, _, weight = data()
    y = np.digitize(X[:, 0] + X[:, 4], [-0.5, 0.5])
    model = fitted(X, y, weight, num_loss_partitions=blocks)
    for k in range(3):
        one = fitted(X, y == k, weight, num_loss_partitions=blocks)
        assert model.coef_[k].tobytes() == one.coef_[0].tobytes()
        assert model.n_iter_[k] == one.n_iter_[0]


@each_blocks
def test_threads_change_no_bits(blocks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    X, y = random.standard_normal((3000, 20)), random.integers(0, 2, 3000)
    monkeypatch.setattr(interior_rows, "FEW", 0)
    found = set()
    for threads in (1, 3):
        tfopt.threads.set_num_threads(threads)
        blocks = blocks and [1000, 1, 1999]
        model = fitted(X, y, tol=1e-6, num_loss_partitions=blocks, n_jobs=threads)
        found.add(model.coef_.tobytes() + model.dual_coef_.tobytes())
    assert len(found) == 1


@each_blocks
@each_intercept
def test_a_warm_start_goes_on_from_the_dual_variables(blocks: Any, intercept: bool) -> None:
    options = {"num_loss_partitions": blocks, "fit_intercept": intercept, "tol": 1e-7}
    model = fitted(warm_start=True, **options)
    cold = fitted(**options, l2=0.45)
    again = model.set_params(l2=0.45).fit(*data())
    assert again.n_iter_ <= cold.n_iter_ and again.history_[0][0]["certified"]
    assert again.objective_ == pytest.approx(cold.objective_, rel=2e-7)
    assert model.fit(*data()).n_iter_ == [1]


@pytest.mark.parametrize("blocks", [None, BLOCKS], ids=["whole", "blocks"])
def test_a_warm_start_from_far_away(blocks: Any) -> None:
    X, y, weight = data()
    model = fitted(warm_start=True, num_loss_partitions=blocks)
    model.fit(1e3 * X[:, ::-1], y, weight)
    assert relative_gaps(model) <= 1e-9


def test_it_ends_where_rounding_lets_it_go_no_further() -> None:
    """Of labels that a tiny weight of a large feature separates, the losses are rounding."""
    X, _, _ = data()
    model = SDCAClassifier("hinge", solver="interior-point", tol=1e-9)
    with pytest.warns(ConvergenceWarning, match="no step lowers the objective further.*or scale"):
        model.fit(1e8 * X, X[:, 0] > X[:, 1] / 100)
    assert model.n_iter_ < 100


def test_a_callback_and_the_time_end_it() -> None:
    seen: list[dict[str, Any]] = []

    def callback(record: dict[str, Any]) -> bool:
        seen.append(record)
        return len(seen) == 4

    model = fitted(tol=0.0, callback=callback)
    assert seen == model.history_[0] and len(seen) <= 5 and seen[-1]["certified"]
    assert [record["solver"] for record in seen] == ["interior-point"] * len(seen)
    assert fitted(tol=0.0, max_time=1e-9).n_iter_ == [1]


def test_a_whole_step_may_only_centre() -> None:
    """The sixth one lowers the products by 4 % alone, and the next ones go on."""
    random = np.random.default_rng(5)
    X = random.standard_normal((80, 600)) * random.uniform(0.5, 2, 600)
    z = X @ random.standard_normal(600) / np.sqrt(600) + random.standard_normal(80)
    rows = np.linalg.cholesky(X @ X.T)
    model = SDCAClassifier("hinge", tol=1e-5).fit(rows, z > np.median(z))
    assert model.solver_ == ["interior-point"] and model.n_iter_[0] <= 15


@each_blocks
def test_where_it_ends_without_success_visits_go_on(
    blocks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(second_order, "solve", lambda *_, **__: False)
    monkeypatch.setattr(kernels, "step", lambda *_: None)
    model = fitted(tol=1e-2, max_iter=20_000, num_loss_partitions=blocks, solver="auto")
    solvers = [record["solver"] for record in model.history_[0]]
    assert solvers.count("interior-point") == 1
    assert solvers[solvers.index("interior-point") + 1] == "sdca"
    assert relative_gaps(model) <= 1e-2
    with pytest.warns(ConvergenceWarning, match="no step lowers the objective further"):
        SDCAClassifier("hinge", solver="interior-point", tol=1e-9).fit(*data())


def test_where_it_takes_long_it_is_tried_again_near_the_minimum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once: the second time epochs go on for good."""
    random = np.random.default_rng(0)
    X = random.standard_normal((2000, 3))
    y = np.sign(X @ random.standard_normal(3) + random.standard_normal(2000))
    monkeypatch.setattr(monitor, "INTERIOR_STEPS", 0.1)  # so few are expected
    monkeypatch.setattr(plan, "SHARE_BEFORE", 1.0)  # epochs come first
    model = SDCAClassifier("hinge", C=10, tol=1e-9, max_iter=5000).fit(X, y)
    history = model.history_[0]
    turns = [
        (solver, list(records))
        for solver, records in itertools.groupby(history, lambda record: record["solver"])
    ]
    assert [solver for solver, _ in turns] == ["sdca", "interior-point"] * 2 + ["sdca"]
    before, after = turns[1][1][0], turns[3][1][0]
    assert max(len(turns[1][1]), len(turns[3][1])) < 5
    certified = [record["gap"] for record in turns[2][1] if record["certified"]]
    assert certified[-1] <= monitor.NEAR < min(certified[:-1], default=1.0)
    assert after["gap"] < before["gap"] and relative_gaps(model) <= 1e-9
