"""The loops of SDCA against the specification: plans, epochs and passes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from common.cases import TRIED
from common.linear_losses import conjugate, least, phi
from common.sdca_cases import ALL_LOSSES, OF_NUMBERS, Problem, problem_of, problems, specified
from hypothesis import given
from hypothesis import strategies as st

import tfopt
from tfopt.kernels.linear import solver
from tfopt.kernels.linear import visits as kernel
from tfopt_ref import linear, sdca
from tfopt_ref.losses import loss_named

each_loss = pytest.mark.parametrize("loss", ALL_LOSSES)
each_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])
each_index = pytest.mark.parametrize("index", ["int32", "int64"])


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


def close(ours: Any, theirs: Any) -> None:
    """Compare to 1e-12 of the largest."""
    scale = max(1.0, np.abs(theirs, where=np.isfinite(theirs), out=np.zeros_like(theirs)).max())
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12 * scale)


def start(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Return the examples, and the weights that belong to them."""
    examples, v = problem.examples.copy(), np.zeros(problem.n_weights)
    kernel.weights_of(*problem.rows, examples, v, problem.l2)
    return examples, v


def epoch(
    problem: Problem, plan: np.ndarray, examples: np.ndarray, u: np.ndarray, sigma: float = 1.0
) -> np.ndarray:
    """Visit by the kernel, as TensorFlow's op does, and return the dual variables before."""
    before = np.zeros(len(examples))
    rows, replicas = map(read_only, problem.rows), np.zeros((0, u.size))
    solver.epoch(
        *(*rows, plan, examples, u, replicas, before, np.zeros(0, np.uint8), problem.loss, 1.0),
        *(problem.l2, problem.l1 / problem.l2, 0.0, 0.0, sigma, 1, 1),
        exact=True,
    )
    return before


@pytest.mark.counted
@each_loss
@each_dtype
@each_index
@given(data=st.data())
def test_epochs(loss: str, dtype: str, index: str, data: st.DataObject) -> None:
    problem = data.draw(problems(loss, dtype, index))
    sigma = data.draw(st.sampled_from([1.0, 1.0, 3.0]))
    (examples, u), (_, v) = start(problem), start(problem)
    a = problem.examples["a"].copy()
    for number in range(2):
        plan = read_only(kernel.shuffled(len(examples), 1, 5, number))
        before = epoch(problem, plan, examples, u, sigma)
        np.testing.assert_array_equal(plan, sdca.shuffled(len(examples), 1, 5, number))
        if a.size:
            close(before, a)
        sdca.visit(specified(problem), plan, a, v, sigma=sigma)
    for ours, theirs in ((examples["a"], a), (u, v)):
        if theirs.size:
            close(ours, theirs)
    TRIED["SDCA epoch", dtype, loss, index] += 1


@pytest.mark.counted
@each_loss
@each_dtype
@each_index
@given(data=st.data())
def test_passes(loss: str, dtype: str, index: str, data: st.DataObject) -> None:
    """What changes nothing. Predictions and norms are the same sums, so of the same bits."""
    problem = data.draw(problems(loss, dtype, index))
    (examples, v), twin, shrink = start(problem), specified(problem), problem.l1 / problem.l2
    a, y, weight = (examples[name].copy() for name in ("a", "y", "weight"))
    expected = linear.weighted_sum(twin, a, problem.n_weights) / problem.l2
    sizes = [([(abs(x), j) for x, j in part] for part in each) for each in twin.x]
    size = linear.weighted_sum(twin._replace(x=sizes), np.abs(a), problem.n_weights) / problem.l2
    assert (np.abs(v - expected) <= 3 * np.finfo(float).eps * size).all()
    norms = kernel.squared_norms(problem.data, problem.indptr, problem.dense)
    np.testing.assert_array_equal(norms, [sdca.square(x) for x in twin.x])
    wx = kernel.predictions(*problem.rows, v, shrink)
    np.testing.assert_array_equal(wx, [linear.dot(x, v, shrink) for x in twin.x])
    with np.errstate(over="ignore", invalid="ignore"):  # Poisson's may overflow
        pairs = list(zip(wx.tolist(), y.tolist(), strict=True))
        slopes = np.array([twin.phi.slope(*pair) for pair in pairs])
        value, slope, conjugate = rounding(loss, a, y, wx, slopes)
        steep = weight * np.sqrt(norms + problem.l2 * twin.phi.gamma)
        values = [twin.phi.value(*pair) for pair in pairs]
        dual_pairs = zip(a.tolist(), y.tolist(), strict=True)
        conjugates = [twin.phi.conjugate(*pair) for pair in dual_pairs]
        terms = kernel.terms(examples, a, wx, loss)
        found = kernel.importance(examples, wx, loss, problem.l2), *terms
        specified_ones = (
            np.array(sdca.importance(twin, a, wx)),
            *(weight * np.where(weight > 0, each, 0.0) for each in (values, conjugates)),
        )
        bounds_of_rounding = steep * slope, weight * value, weight * conjugate
        for ours, theirs, bound in zip(found, specified_ones, bounds_of_rounding, strict=True):
            near = np.abs(ours - theirs) <= 1e-14 * np.abs(theirs) + bound
            assert (near | (ours == theirs)).all()  # both may be infinite, none NaN
    TRIED["SDCA passes", dtype, loss, index] += 1


def rounding(
    loss: str, a: np.ndarray, y: np.ndarray, wx: np.ndarray, slopes: np.ndarray
) -> tuple[Any, Any, Any]:
    """Return by how much two ways to compute phi(wx), a + phi'(wx) and phi*(-a) may differ.

    Their terms may cancel, and each function, sum and product has an error of at most eps of its
    result: in y - wx, times the slope, and in the parts of a + phi' and of phi*. In Gamma's
    s = log(y) - wx it is ``eps * (abs(log(y)) + abs(s))``, times the derivative by s.
    """
    eps = 4 * np.finfo(float).eps
    if loss != "gamma_loss":
        sizes = np.abs(y) + np.abs(wx)
        return (
            eps * np.abs(slopes) * sizes,
            eps * (np.abs(a) + np.abs(slopes) + sizes),
            eps * np.abs(a) * (1 + np.abs(a) + np.abs(y)),
        )
    s, b = np.log(y) - wx, 1 + a
    of_s, of_y = 1 + np.abs(np.log(y)) + np.abs(s), 1 + np.abs(np.log(y))
    of_b = np.abs(np.log(b, where=b > 0, out=np.zeros_like(b)))
    return (
        eps * np.abs(np.expm1(s)) * of_s,
        eps * (np.exp(s) * of_s + np.abs(a)),
        eps * (b * (of_b + of_y) + of_y),
    )


@given(
    n=st.sampled_from([0, 1, 2, 7, 64, 1000]),
    bucket=st.sampled_from([1, 2, 8, 100]),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**64 - 1),
)
def test_shuffled(n: int, bucket: int, seed: int, epoch: int) -> None:
    plan = kernel.shuffled(n, bucket, seed, epoch)
    assert plan.dtype == np.int64 and sorted(plan) == [*range(n)]
    np.testing.assert_array_equal(plan, sdca.shuffled(n, bucket, seed, epoch))


@given(
    n=st.sampled_from([0, 1, 2, 7, 64, 300]),
    kind=st.sampled_from(["equal", "zero", "even", "one", "infinite", "steep"]),
    seed=st.integers(0, 2**64 - 1),
)
def test_sampled(n: int, kind: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    p = {
        "equal": np.ones(n),
        "zero": np.zeros(n),
        "even": random.uniform(size=n),
        "one": np.arange(n) * 1e-9 + (np.arange(n) == n // 2),
        "infinite": np.where(np.arange(n) == n // 2, np.inf, 1.0),
        "steep": np.exp(-np.arange(n)),
    }[kind]
    plan = kernel.sampled(p, seed, 3)
    np.testing.assert_array_equal(plan, sdca.sampled(p, seed, 3))
    assert plan.shape == (n,)
    if kind in ("one", "infinite") and n > 2:
        assert plan[0] == n // 2 and len({*plan}) >= n - n // 8 - 2


def test_plans_differ_by_seed_and_epoch() -> None:
    plans = {tuple(kernel.shuffled(50, 1, seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}
    assert len(plans) == 4
    neighbours = kernel.shuffled(80, 8, 0, 0)
    assert (np.abs(np.diff(neighbours)) < 8).mean() > 0.6


def test_those_not_drawn_fill_a_plan_by_falling_importance() -> None:
    plan = list(kernel.sampled(np.array([1e-30, 3e-30, 1.0, 2e-30]), 0, 0))
    drawn = plan.count(2)
    assert plan == [2] * drawn + [1, 3, 0][: 4 - drawn]


# ---- steps

#: Losses whose dual variables rounding in K moves little.
CURVED = ("logistic_loss", "squared_loss", "poisson_loss", "gamma_loss")

EXTREME = (0.0, 1e-300, 1e-12, 1e-3, 0.7, 1.0, 1 - 1e-12, 1.3, 31.9, 1e3, 1e6, 1e12)


def steps(loss: str, cases: list[tuple[float, ...]]) -> np.ndarray:
    """Return the new a for each (a, y, wx, K): every example has a feature of its own."""
    n = len(cases)
    a, y, wx, K = np.array(cases).T
    examples = np.zeros(n, kernel.EXAMPLE)
    examples["a"], examples["y"], examples["weight"], examples["curvature"] = a, y, 1, K
    each = np.arange(n + 1)
    rows = np.ones(n), each[:-1].copy(), each, np.zeros((n, 0))
    epoch(Problem(*rows, examples, n, loss, 0.0, 1.0), each[:-1].copy(), examples, wx.copy())
    return examples["a"].copy()


def drawn_cases(loss: str, seed: int, n: int) -> list[tuple[float, ...]]:
    random = np.random.default_rng(seed)
    made = []
    for _ in range(n):
        size = random.choice(EXTREME) if random.uniform() < 0.5 else 10 ** random.uniform(-6, 4)
        K = random.choice(EXTREME) if random.uniform() < 0.3 else 10 ** random.uniform(-6, 6)
        wx = size * random.choice([-1, 1])
        b = random.choice([0, 1, 0.5, 1e-11, 1 - 1e-11, random.uniform()])
        y = {
            "poisson_loss": random.choice([0.0, 1.0, 3.0, 0.5, 1e3]),
            "gamma_loss": random.choice([1e-6, 1.0, 3.0, 0.5, 1e3]),
        }.get(loss, random.choice([-1.0, 1.0]))
        y = wx + random.choice([1.0, 0.0, 0.3]) if loss in OF_NUMBERS else y
        a = {
            "squared_loss": 2 * b - 1,
            "poisson_loss": y - b * 3,
            "gamma_loss": b * 3 - 1,
        }.get(loss, y * b)
        a = b if loss in OF_NUMBERS[1:] else a
        made.append((float(a), float(y), float(wx), float(K)))
    return made


@each_loss
@given(seed=st.integers(0, 2**32))
def test_steps_of_all_sizes(loss: str, seed: int) -> None:
    """The specification halves a bracket; what it finds, the kernel finds."""
    cases, twin = drawn_cases(loss, seed, 20), loss_named(loss)
    for case, a in zip(cases, steps(loss, cases).tolist(), strict=True):
        _, y, wx, K = case
        b = twin.step(*case)
        assert math.isfinite(a)
        if K == 0 and max(twin.gap(t, y, wx) for t in (a, b)) <= 1e-15 * (abs(wx) + abs(y)):
            continue  # an example without features, at a corner: any a is the best
        # an error of rounding in wx, in the dual variable
        noise = 1e-15 * (abs(wx) + abs(y) + K * 2) / max(K, 1 if loss in CURVED else 1e-3)
        assert abs(a - b) <= 1e-12 * abs(b) + noise + 1e-14, (case, a, b)


@pytest.mark.parametrize(
    ("y", "wx", "expected"),
    [(3, 20, -17.004065), (3, 50, -46.1060), (3, 100, -95.4108), (3, 800, -793.3200)],
)
def test_poisson_where_tensorflows_newton_diverges(y: float, wx: float, expected: float) -> None:
    tolerance = 1e-4 if wx > 20 else 1e-6
    (a,) = steps("poisson_loss", [(0.0, y, wx, 1.0)])
    assert a == pytest.approx(expected, abs=tolerance)
    assert loss_named("poisson_loss").step(0.0, y, wx, 1.0) == pytest.approx(a, rel=1e-12)


@pytest.mark.parametrize(
    "loss", [name for name in ALL_LOSSES if "poisson" in name or "gamma" in name]
)
@pytest.mark.parametrize("wx", [-1e6, -720.0, 720.0, 1e6])
@pytest.mark.parametrize("K", [0.0, 1e-300, 1.0])
def test_losses_may_be_infinite_but_no_dual_variable(loss: str, wx: float, K: float) -> None:
    """An objective that overflows is honest; a visit is to end at a number all the same."""
    twin = loss_named(loss)
    (a,) = steps(loss, [(0.5, 1.0, wx, K)])
    assert math.isfinite(a)
    assert a == pytest.approx(twin.step(0.5, 1.0, wx, K), rel=1e-9)
    overflows = (wx > 0) == (loss == "poisson_loss")
    examples = np.zeros(2, kernel.EXAMPLE)
    examples["y"], examples["weight"] = 1.0, [1.0, 0.0]
    examples["curvature"] = 1.0
    found = kernel.importance(examples, np.full(2, wx), loss, 1.0)
    assert np.isinf(found[0]) == overflows and found[1] == 0.0
    values, _ = kernel.terms(examples, np.zeros(2), np.full(2, wx), loss)
    assert np.isinf(values[0]) == overflows == math.isinf(twin.value(wx, 1.0))


def test_logistic_where_halleys_method_would_circle() -> None:
    (a,) = steps("logistic_loss", [(2e-11, 1.0, -13.35, 31.9)])
    t = math.log(a / (1 - a))
    assert t - 13.35 + 31.9 * (a - 2e-11) == pytest.approx(0, abs=1e-12)


# ---- the two bounds of the minimum


def bounds(problem: Problem, examples: np.ndarray, v: np.ndarray) -> tuple[float, float]:
    """Return the primal at w = S(v), and the dual at the dual variables that v belongs to."""
    shrink = problem.l1 / problem.l2
    wx = kernel.predictions(*problem.rows, v, shrink)
    values, conjugates = kernel.terms(examples, examples["a"].copy(), wx, problem.loss)
    w = np.sign(v) * np.maximum(np.abs(v) - shrink, 0)
    half = problem.l2 / 2 * math.fsum(w * w)
    return (
        math.fsum([*values, problem.l1 * math.fsum(np.abs(w)), half]),
        -math.fsum([*conjugates, half]),
    )


@each_loss
def test_the_gap_closes(loss: str) -> None:
    problem = problem_of(loss, 3, n=60)
    examples, u = start(problem)
    gaps = []
    for number in range(60):
        epoch(problem, kernel.shuffled(len(examples), 1, 0, number), examples, u)
        primal, dual = bounds(problem, examples, u)
        assert primal - dual >= -1e-12 * abs(primal)
        gaps.append(primal - dual)
    # a quantile of 1, the end of the range, converges slowly
    assert gaps[-1] < (0.1 if loss == "quantile_loss" else 1e-3) * gaps[0]


@each_loss
def test_the_gap_is_the_difference_of_primal_and_dual(loss: str) -> None:
    """As the specification computes it, term by term, for any w and a."""
    problem = problem_of(loss, 3, n=30)
    examples, v = start(problem)
    twin, random = specified(problem), np.random.default_rng(0)
    w, b, a = random.standard_normal(v.size), 0.0, examples["a"]
    u = linear.weighted_sum(twin, a, v.size)
    above = np.maximum(np.abs(u) - problem.l1, 0)
    duals = zip(a.tolist(), twin.y.tolist(), twin.c.tolist(), strict=True)
    heights = math.fsum(
        c * (twin.phi.conjugate(a_i, y) - twin.phi.conjugate(0.0, y)) for a_i, y, c in duals if c
    )
    dual = -heights - math.fsum(above * above) / (2 * problem.l2)
    primal = linear.primal(twin, w, b)
    assert linear.gap(twin, w, b, a) == pytest.approx(primal - dual, rel=1e-10)
    best = linear.best_bias(twin, w)
    moved = [linear.primal(twin, w, best + d) for d in (0.0, -1e-4, 1e-4)]
    assert moved[0] == min(moved)


@each_loss
def test_primal_and_dual_are_those_of_the_formulas(loss: str) -> None:
    """Summed in NumPy from the definitions; the dual from weights made anew."""
    problem = problem_of(loss, 11, n=200)
    examples, u = start(problem)
    shrink = problem.l1 / problem.l2
    epoch(problem, kernel.shuffled(200, 1, 0, 0), examples, u)
    primal, dual = bounds(problem, examples, u)
    X = np.zeros((200, problem.n_weights))
    for i, (low, high) in enumerate(zip(problem.indptr[:-1], problem.indptr[1:], strict=True)):
        X[i, problem.indices[low:high]] = problem.data[low:high]
        X[i, problem.n_weights - problem.dense.shape[1] :] = problem.dense[i]
    a, y, c = examples["a"], examples["y"], examples["weight"]
    v = X.T @ (c * a) / problem.l2
    w = np.sign(v) * np.maximum(np.abs(v) - shrink, 0)
    z = X @ w
    with np.errstate(all="ignore"):
        name = loss.removesuffix("_loss")
        values, conjugates = phi(name, z, y, 1.0), conjugate(name, a, y, 1.0)
        low = least(name, y)
    expected = c @ (values + low) + problem.l1 * np.abs(w).sum() + problem.l2 / 2 * w @ w
    assert primal == pytest.approx(expected, rel=1e-11)
    assert dual == pytest.approx(-(c @ (conjugates - low)) - problem.l2 / 2 * w @ w, rel=1e-9)


@each_dtype
def test_threads_change_no_bits(dtype: str) -> None:
    problem = problem_of("logistic_loss", 1, dtype=dtype, n=9000, n_sparse=90, longest=40)
    _, v = start(problem)
    answers = []
    for threads in (1, 2, 3):
        tfopt.threads.set_num_threads(threads)
        wx = kernel.predictions(*problem.rows, v, 0.01)
        answers.append(wx.tobytes())
        assert kernel.predictions(*problem.rows, v, 0.01, 1).tobytes() == wx.tobytes()
    assert answers[0] == answers[1] == answers[2]
