"""Epochs over partitions against the specification; who rests; and what merges promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from common.cases import TRIED
from common.linear_losses import DEFINITIONS
from common.sdca_cases import ALL_LOSSES, problem_of, problems, specified
from hypothesis import given, settings
from hypothesis import strategies as st

import tfopt
from tfopt.kernels.linear import solver as kernel
from tfopt.kernels.linear import visits
from tfopt_ref import sdca
from tfopt_ref.losses import loss_named

#: The losses whose dual variables have corners that some examples of the tests end at.
RESTING = (
    "hinge_loss",
    "smooth_hinge_loss",
    "huber_loss",
    "quantile_loss",
    "epsilon_insensitive_loss",
    "squared_epsilon_insensitive_loss",
)
each_loss = pytest.mark.parametrize("loss", ALL_LOSSES)


def run(problem, n_partitions: int, *, epochs=2, parameter=1.0, curvature=0.0, threads=0, merges=2,
        sigma=1.5, exact=False):  # fmt: skip
    """Return what so many epochs leave: variables, weights, bias, sigmas, and their estimates."""
    examples, v = problem.examples.copy(), np.zeros(problem.n_weights)
    visits.weights_of(*problem.rows, examples, v, problem.l2)
    replicas = np.zeros((n_partitions if n_partitions > 1 else 0, problem.n_weights))
    bias, estimates, sigmas = 0.1, [], []
    for number in range(epochs):
        bias, sigma, estimate = kernel.epoch(
            *problem.rows, visits.shuffled(len(examples), 1, 3, number), examples, v, replicas,
            np.zeros(len(examples)), np.zeros(0, np.uint8), problem.loss, parameter, problem.l2,
            problem.l1 / problem.l2, bias, curvature, sigma, merges, threads, exact=exact,
        )  # fmt: skip
        estimates.append(estimate)
        sigmas.append(sigma)
    return examples["a"].copy(), v, np.array([bias]), np.array(sigmas), np.array(estimates)


def run_specified(problem, n_partitions: int, *, parameter=1.0, curvature=0.0, merges=2):
    """Return what two epochs leave by the specification, and the sigmas."""
    twin, a, v = specified(problem, parameter), problem.examples["a"].copy(), run(
        problem, 1, epochs=0
    )[1]  # fmt: skip
    b, sigma, sigmas, n = 0.1, 1.5, [], merges * n_partitions
    for number in range(2):
        plan = sdca.shuffled(len(a), 1, 3, number)
        shares = [plan[len(plan) * k // n : len(plan) * (k + 1) // n] for k in range(n)]
        if n_partitions == 1:
            b = sdca.visit(twin, plan, a, v, b, tau=curvature)
        for k in range(0, n, n_partitions) if n_partitions > 1 else ():
            parts = shares[k : k + n_partitions]
            b, sigma = sdca.merge(twin, parts, a, v, b, tau=curvature, sigma=sigma)
        sigmas.append(sigma)
    return a, v, np.array([b]), np.array(sigmas)


@each_loss
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("index", ["int32", "int64"])
@settings(derandomize=True)
@given(data=st.data())
def test_epochs_are_those_of_the_specification(loss: str, dtype: str, index: str, data) -> None:
    """Of fixed examples: where partitions of few rows come to rest, sigma is a ratio of roundings,
    and steps of another sigma are others. Logistic visits are exact only in TensorFlow's op.
    """
    problem = data.draw(problems(loss, dtype, index))
    options = {
        "parameter": data.draw(st.sampled_from([1.0, 0.3])),
        "curvature": data.draw(st.sampled_from([0.0, 0.5])),
        "merges": data.draw(st.sampled_from([1, 3])),
    }
    exact = loss == "logistic_loss"
    n_partitions = 1 if exact else data.draw(st.sampled_from([1, 1, 2, 3]))
    ours = run(problem, n_partitions, exact=exact, sigma=1.0 if exact else 1.5, **options)
    # sigma is a ratio of squares of differences, so of rounding once nothing changes any more
    assert ((ours[3] >= 1) & (ours[3] <= max(1.5, n_partitions))).all()
    theirs = run_specified(problem, n_partitions, **options)
    for part, expected in zip(ours[:3], theirs[:3], strict=True):
        scale = np.abs(expected).max(initial=1.0)
        np.testing.assert_allclose(part, expected, rtol=1e-12, atol=1e-12 * scale)
    TRIED["SDCA partitions", dtype, loss, index] += 1


@given(st.floats(-30, 30), st.floats(-20, 20), st.floats(-6, 6), st.sampled_from([-1.0, 1.0]))
def test_a_logistic_visit_gains_nearly_all_there_is(
    t: float, wx: float, size: float, y: float
) -> None:
    """It takes one step of Halley's if the maximum is near, else it looks for the maximum."""
    K, twin = 10.0**size, loss_named("logistic_loss")
    a = y / (1 + math.exp(-t))
    examples = np.zeros(1, visits.EXAMPLE)
    examples["a"], examples["y"], examples["weight"], examples["curvature"] = a, y, 1, K
    rows = np.ones(1), np.zeros(1, np.int64), np.arange(2), np.zeros((1, 0))
    kernel.epoch(
        *rows, np.zeros(1, np.int64), examples, np.array([wx]), np.zeros((0, 1)), np.zeros(1),
        np.zeros(0, np.uint8), "logistic_loss", 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1, 1,
    )  # fmt: skip

    def gain(new: float) -> float:
        change = new - a
        return twin.conjugate(a, y) - twin.conjugate(new, y) - change * wx - K / 2 * change**2

    most, found = gain(twin.step(a, y, wx, K)), gain(float(examples["a"][0]))
    rounding = 1e-15 * (1 + abs(wx) + K * abs(float(examples["a"][0]) - a))
    assert found >= 0.99 * most - rounding


@each_loss
def test_sigma_is_that_of_the_specification(loss: str) -> None:
    problem = problem_of(loss, 2, n=50, n_sparse=9, longest=9)
    ours, theirs = run(problem, 3)[3], run_specified(problem, 3)[3]
    assert (ours != 1.5).all() and len({*ours}) == 2
    # logistic visits take one step towards the maximum
    np.testing.assert_allclose(ours, theirs, rtol=1e-2 if loss == "logistic_loss" else 1e-9)


@each_loss
def test_the_estimate_is_the_sum_of_the_gaps_that_were_met(loss: str) -> None:
    """Of visits that change nothing, as far as it is not an estimate itself."""
    problem = problem_of(loss, 4, n=40)
    problem.examples["curvature"] = 1e30
    (*_, (estimate,)), v = run(problem, 1, epochs=1), run(problem, 1, epochs=0)[1]
    twin, shrink = specified(problem), problem.l1 / problem.l2
    wx = 0.1 + visits.predictions(*problem.rows, v, shrink)
    a, y, c = (problem.examples[name] for name in ("a", "y", "weight"))
    gaps = [twin.phi.gap(*each) for each in zip(a.tolist(), y.tolist(), wx.tolist(), strict=True)]
    if loss == "logistic_loss":
        assert 0.5 * (c @ gaps) <= estimate <= 2 * (c @ gaps)
    else:
        assert estimate == pytest.approx(c @ gaps, rel=1e-9)


@each_loss
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("index", ["int32", "int64"])
@settings(derandomize=True)
@given(data=st.data())
def test_sweeps_of_an_epoch_are_one_after_another(loss: str, dtype: str, index: str, data) -> None:
    """Bit for bit; over those that are awake, until an epoch has about n visits."""
    problem = data.draw(problems(loss, dtype, index))
    curvature, bucket = data.draw(st.sampled_from([0.0, 0.5])), data.draw(st.integers(1, 9))
    n, none, shrink = len(problem.examples), np.zeros((0, 0)), problem.l1 / problem.l2
    found = []
    for together in (True, False):
        examples, v = problem.examples.copy(), np.zeros(problem.n_weights)
        visits.weights_of(*problem.rows, examples, v, problem.l2)
        idle, bias, n_sweeps, estimates = np.zeros(n, np.uint8), 0.1, 0, []
        for _ in range(4):
            each, n_visits = [], 0
            if together:
                bias, n_sweeps, estimate = kernel.epoch_of_sweeps(
                    *problem.rows, examples, v, idle, bucket, 3, n_sweeps, loss, 0.3, problem.l2,
                    shrink, bias, curvature,
                )  # fmt: skip
                estimates.append(estimate)
                continue
            while n_visits < n:
                awake = visits.awake(idle, n_sweeps + 1)
                if n_visits and n_visits + len(awake) > n:
                    break
                n_sweeps, n_visits = n_sweeps + 1, n_visits + len(awake)
                plan = awake[visits.shuffled(len(awake), bucket, 3, n_sweeps)]
                bias, _, estimate = kernel.epoch(
                    *problem.rows, plan, examples, v, none, np.zeros(0), idle, loss, 0.3,
                    problem.l2, shrink, bias, curvature, 1.0, 1, 0,
                )  # fmt: skip
                if curvature:
                    bias += curvature * np.add.reduce(examples["weight"] * examples["a"])
                each.append(estimate)
            estimates.append(np.cumsum(each)[-1] / len(each) if n else 0.0)
        found.append([examples.tobytes(), v.tobytes(), idle.tobytes(), bias, n_sweeps, estimates])
    np.testing.assert_equal(*found)


@each_loss
def test_who_rests_stood_still_at_a_corner(loss: str) -> None:
    """So many visits in a row: at an end of where phi* is finite, or at its kink."""
    problem = problem_of(loss, 3, n=60, n_sparse=9, longest=9)
    examples, v = problem.examples.copy(), np.zeros(problem.n_weights)
    visits.weights_of(*problem.rows, examples, v, problem.l2)
    idle, none, bias = np.zeros(60, np.uint8), np.zeros((0, 0)), 0.0
    stood, definition = np.zeros(60, int), DEFINITIONS[loss.removesuffix("_loss")]
    for sweep in range(9):
        awake = visits.awake(idle, sweep)
        plan, before = awake[visits.shuffled(len(awake), 1, 0, sweep)], examples["a"].copy()
        bias, _, _ = kernel.epoch(
            *problem.rows, plan, examples, v, none, np.zeros(0), idle, loss, 0.3, problem.l2, 0.0,
            bias, 0.1, 1.0, 1, 0,
        )  # fmt: skip
        stood[awake] = np.where(examples["a"] == before, stood + 1, 0)[awake]
        a, y = examples["a"], examples["y"]
        ends = [definition.is_finite(a + d, y, 0.3) for d in (-1e-9, 1e-9)]
        corner = ~(ends[0] & ends[1]) | (a == 0)
        np.testing.assert_array_equal(idle, np.where((loss in RESTING) & corner, stood, 0))
    assert idle.any() == (loss in RESTING)


@pytest.mark.parametrize("k", range(8))
def test_every_example_is_awake_once_in_as_many_sweeps(k: int) -> None:
    idle = np.full(300, k, np.uint8)
    awake = [visits.awake(idle, sweep) for sweep in range(5, 5 + 2**k)]
    np.testing.assert_array_equal(np.sort(np.concatenate(awake)), np.arange(300))
    for sweep, found in enumerate(awake, 5):
        np.testing.assert_array_equal(found, np.flatnonzero((sweep + np.arange(300)) % 2**k == 0))


@each_loss
def test_one_partition_is_the_sequential_definition(loss: str) -> None:
    """The op's epoch, whose steps are all exact: the logistic's is so in the end."""
    problem = problem_of(loss, 7, n=60)
    settled, v, *_ = run(problem, 1, epochs=300)
    examples, u = problem.examples.copy(), np.zeros(problem.n_weights)
    examples["a"] = settled
    visits.weights_of(*problem.rows, examples, u, problem.l2)
    np.testing.assert_allclose(v, u, atol=1e-11 * max(1, np.abs(u).max()))


@pytest.mark.parametrize("n_partitions", [1, 2, 4])
@each_loss
def test_threads_change_no_bits(loss: str, n_partitions: int) -> None:
    problem = problem_of(loss, 1, n=6000, n_sparse=90, longest=40)
    answers = []
    for threads in (1, 2, 3):
        tfopt.threads.set_num_threads(threads)
        made = run(problem, n_partitions, curvature=0.1)
        assert all(np.isfinite(part).all() for part in made[:3])
        answers.append([part.tobytes() for part in made])
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize("n_partitions", [2, 3, 8])
@pytest.mark.parametrize("shrink", [0.0, 0.3])
@each_loss
def test_no_merge_lowers_the_dual(loss: str, shrink: float, n_partitions: int) -> None:
    """From sigma = 1, which changes that overlap make diverge if they are all kept."""
    problem = problem_of(loss, 5, n=200, n_sparse=4, longest=4)
    problem = problem._replace(l2=1.0, l1=shrink, dense=problem.dense + 1.0)
    random = np.random.default_rng(0)
    problem.examples["a"] *= random.uniform(size=200) < 0.5
    problem.examples["curvature"] = visits.squared_norms(
        problem.data, problem.indptr, problem.dense
    )
    if loss == "poisson_loss":
        problem.examples["a"] = 0.5 * problem.examples["y"] - 0.1
    duals, sigma = [], 1.0
    examples, v = problem.examples.copy(), np.zeros(problem.n_weights)
    visits.weights_of(*problem.rows, examples, v, 1.0)
    replicas, before = np.zeros((n_partitions, problem.n_weights)), np.zeros(200)
    shares = []
    for number in range(40):
        _, conjugates = visits.terms(examples, examples["a"].copy(), np.zeros(200), loss)
        w = v - np.clip(v, -shrink, shrink)
        duals.append(-conjugates.sum() - w @ w / 2)
        _, sigma, _ = kernel.epoch(
            *problem.rows, visits.shuffled(200, 1, 0, number), examples, v, replicas, before,
            np.zeros(0, np.uint8), loss, 1.0, 1.0, shrink, 0.0, 0.0, sigma, 1, 0,
        )  # fmt: skip
        shares.append(sigma)
    assert np.isfinite(duals).all()
    assert max(shares) > 1.2  # there was something to guard against
    assert (np.diff(duals) >= -1e-12 * np.abs(duals).max()).all()
    assert duals[-1] > duals[0] or math.isclose(duals[-1], duals[0])
