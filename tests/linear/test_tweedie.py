"""The loss of Tweedie distributions, whose conjugate is found by iterations, at all its powers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.linear_losses import phi
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import TweedieRegressor

from tfopt.kernels.linear import second_order, solver, visits
from tfopt.linear_model import LinearRegressor, from_json, to_json
from tfopt_ref.losses import loss_named

POWERS = (1.01, 1.2, 1.5, 1.8, 1.99)
EPS = np.finfo(float).eps
each_power = pytest.mark.parametrize("power", POWERS)
amounts = st.one_of(st.just(0.0), st.floats(-7, 7).map(lambda t: 10.0**t))
shares = st.one_of(st.just(0.0), st.floats(1e-6, 1e6), st.floats(-1e6, -1e-6))

random = np.random.default_rng(0)
X = random.standard_normal((400, 6)) @ random.standard_normal((6, 6)) / 3
CLAIMS = random.poisson(np.exp(X[:, 0])) * random.gamma(2.0, np.exp(X[:, 1]))
WEIGHT = random.choice([0.0, 0.5, 1.0, 3.0], 400)


def examples_of(y: float, a: float = 0.0, K: float = 0.0) -> np.ndarray:
    examples = np.zeros(1, visits.EXAMPLE)
    examples["y"], examples["a"], examples["weight"], examples["curvature"] = y, a, 1.0, K
    return examples


def step(a: float, y: float, wx: float, K: float, power: float) -> float:
    """Return the new a of a visit to an example with a feature of its own."""
    examples, one, nothing = examples_of(y, a, K), np.ones(1), np.zeros(0)
    rows = one, np.zeros(1, np.int64), np.arange(2), np.zeros((1, 0))
    plan, idle, replicas = np.zeros(1, np.int64), np.zeros(1, np.uint8), np.zeros((0, 1))
    loss = "tweedie_loss", power, 1.0, 0.0
    v = np.array([wx])
    solver.epoch(*rows, plan, examples, v, replicas, nothing, idle, *loss, 0.0, 0.0, 1.0, 1, 1)
    return float(examples["a"][0])


def bend(wx: float, y: float, power: float) -> float:
    """phi''(wx)"""
    k, m = 2 - power, power - 1
    with np.errstate(over="ignore"):
        return float(k * np.exp(k * wx) + (m * y * np.exp(-m * wx) if y > 0 else 0.0))


@each_power
@given(y=amounts, wx=st.floats(-30, 30), K=st.floats(-8, 6).map(lambda t: 10.0**t), share=shares)
@example(y=1.0, wx=0.0, K=1.0, share=0.0)  # whose step is 0
def test_a_step_is_the_specifications(
    power: float, y: float, wx: float, K: float, share: float
) -> None:
    a = share * (y ** (2 - power) if y else 1.0)
    a = -abs(a) if y == 0 else a
    twin: Any = loss_named("tweedie_loss", power)
    found, expected = step(a, y, wx, K, power), twin.step(a, y, wx, K)
    z = wx + K * (found - a)
    # what rounding of wx - K * a makes of the slope: it is the least where K is large
    noise = 1e-15 * (abs(wx) + K * abs(a)) / max(K, 1 / bend(z, y, power))
    # what rounding of z and of log(y) makes of -phi'(z), which the specification returns
    noise += 4 * EPS * (abs(z) + abs(np.log(y or 1.0))) * bend(z, y, power)
    assert found == pytest.approx(expected, rel=1e-9, abs=noise + 1e-300)


@each_power
@given(y=amounts, wx=st.floats(-30, 30), share=shares)
def test_gaps_and_derivatives_are_the_specifications(
    power: float, y: float, wx: float, share: float
) -> None:
    a = share * (y ** (2 - power) if y else 1.0)
    a = -abs(a) if y == 0 else a
    twin: Any = loss_named("tweedie_loss", power)
    given = examples_of(y), np.array([a]), np.array([wx]), 0.0, "tweedie_loss", power
    height, gap = second_order.gaps(*given)
    floor = 1e-13 * (twin.value(wx, y) + abs(a))
    assert height == pytest.approx(twin.value(wx, y), rel=1e-9, abs=floor)
    assert gap == pytest.approx(twin.gap(a, y, wx), rel=1e-9, abs=floor) and gap >= 0
    assert height == pytest.approx(phi("tweedie", *map(np.array, (wx, y)), power), rel=1e-7,
                                   abs=1e-9 * (1 + y))  # fmt: skip
    slopes, bends = second_order.derivatives(examples_of(y), np.array([wx]), 0.0, *given[4:])
    size = np.exp((2 - power) * wx)
    assert slopes[0] == pytest.approx(twin.slope(wx, y), rel=1e-9, abs=1e-14 * size)
    assert bends[0] == pytest.approx(bend(wx, y, power), rel=1e-12)


@each_power
@pytest.mark.parametrize("wx", [-4e4, -800.0, 800.0, 4e4])
@pytest.mark.parametrize("y", [0.0, 1e-3, 1.0, 1e3])
def test_far_away_only_what_overflows_is_infinite(power: float, y: float, wx: float) -> None:
    twin: Any = loss_named("tweedie_loss", power)
    given = examples_of(y), np.array([wx]), 0.0, "tweedie_loss", power
    losses, slopes, bends, _, _ = second_order.tangents(*given)
    with np.errstate(over="ignore"):
        expected = twin.value(wx, y), twin.slope(wx, y), bend(wx, y, power)
    assert (slopes[0], bends[0]) == pytest.approx(expected[1:], rel=1e-9)
    height, _ = second_order.gaps(*given[:1], np.zeros(1), *given[1:])
    assert height == pytest.approx(expected[0], rel=1e-9)
    overflows = np.isinf(expected).any()  # of which the sum with derivatives is NaN
    assert np.isnan(losses) if overflows else losses == height
    for K in (0.0, 1e-300, 1.0):  # a dual variable is finite all the same
        found, of_twin = step(0.0, y, wx, K, power), twin.step(0.0, y, wx, K)
        assert np.isfinite([found, of_twin]).all()
        assert found == pytest.approx(of_twin, rel=1e-9) or (
            found * of_twin > 0 and min(abs(found), abs(of_twin)) > 1e290
        )


@pytest.mark.parametrize(
    ("loss", "power"), [("gamma_loss", 1.0), *(("tweedie_loss", power) for power in POWERS)]
)
def test_a_tangent_has_the_bits_of_the_loss_and_of_its_derivatives(loss: str, power: float) -> None:
    """Whose functions it shares."""
    random = np.random.default_rng(1)
    wx, height = (random.standard_normal(999) * 10 ** random.uniform(-3, 1.4, 999) for _ in "12")
    examples = np.zeros(999, visits.EXAMPLE)
    examples["y"], examples["weight"] = np.exp(height), 1.0
    if loss == "tweedie_loss":
        examples["y"][::5] = 0.0
    losses, *found, _, _ = second_order.tangents(examples, wx, 0.0, loss, power)
    alone = second_order.derivatives(examples, wx, 0.0, loss, power)
    np.testing.assert_array_equal(found, alone)
    assert losses == second_order.gaps(examples, np.zeros(999), wx, 0.0, loss, power)[0]


@each_power
@pytest.mark.parametrize("form", [np.array, sparse.csr_matrix, np.float32])
@pytest.mark.parametrize("intercept", [True, False])
def test_the_minimum_is_that_of_scikit_learn(power: float, form: Any, intercept: bool) -> None:
    alpha, total = 0.03, WEIGHT.sum()
    rows = np.asarray(sparse.csr_matrix(form(X)).toarray(), float)
    theirs = TweedieRegressor(
        power=power, alpha=alpha, fit_intercept=intercept, tol=1e-10, max_iter=1000, link="log",
        solver="newton-cholesky",
    ).fit(rows, CLAIMS, WEIGHT)  # fmt: skip
    for how in ("auto", "sdca", "newton-cg", "cd"):
        ours = LinearRegressor(
            "tweedie", power=power, l2=alpha * total, fit_intercept=intercept, tol=1e-11,
            solver=how, max_iter=5000,
        ).fit(form(X), CLAIMS, WEIGHT)  # fmt: skip
        assert ours.dual_gap_ <= 1e-11 * ours.objective_
        np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-5)
        np.testing.assert_allclose(ours.predict(form(X)), theirs.predict(rows), rtol=1e-3)
    assert ours.score(form(X), CLAIMS) == pytest.approx(theirs.score(rows, CLAIMS), abs=1e-5)
    again = from_json(to_json(ours))
    assert again.power == power
    np.testing.assert_array_equal(again.predict(form(X)), ours.predict(form(X)))


@pytest.mark.parametrize(("power", "loss"), [(1 + 1e-9, "poisson"), (2 - 1e-9, "gamma")])
def test_its_ends_are_counts_and_amounts(power: float, loss: str) -> None:
    y = np.round(CLAIMS) + 1
    end = LinearRegressor("tweedie", power=power, tol=1e-12).fit(X, y, WEIGHT)
    other = LinearRegressor(loss, tol=1e-12).fit(X, y, WEIGHT)
    np.testing.assert_allclose(end.coef_, other.coef_, atol=1e-5)
    assert end.objective_ == pytest.approx(other.objective_, rel=1e-6)
    assert end.score(X, y) == pytest.approx(other.score(X, y), rel=1e-6)


def test_a_cluster_of_blocks_has_it_too() -> None:
    options: dict[str, Any] = {"power": 1.7, "l2": 2.0, "tol": 1e-9}
    whole = LinearRegressor("tweedie", **options).fit(X, CLAIMS, WEIGHT)
    blocks = LinearRegressor("tweedie", num_loss_partitions=[150, 1, 249], **options)
    np.testing.assert_allclose(blocks.fit(X, CLAIMS, WEIGHT).coef_, whole.coef_, atol=1e-4)
