"""Epochs over partitions against their twin; and what merges promise."""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np
import pytest
from common.cases import TRIED
from common.sdca_cases import ALL_LOSSES, problem_of, problems
from hypothesis import given, settings
from hypothesis import strategies as st

import tfopt
from tfopt.kernels.linear import solver as kernel
from tfopt.kernels.linear import visits
from tfopt_ref import sdca as twin_visits
from tfopt_ref import sdca_solver as twin

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


def run(module: ModuleType, problem, n_partitions: int, *, epochs=2, parameter=1.0, curvature=0.0,
        threads=0, merges=2, sigma=1.5):  # fmt: skip
    """Return what so many epochs leave: variables, weights, bias, sigmas, and their estimates."""
    examples, v = problem.examples.copy(), np.zeros(problem.n_weights)
    visits.weights_of(*problem.rows, examples, v, problem.l2)
    replicas = np.zeros((n_partitions if n_partitions > 1 else 0, problem.n_weights))
    bias, estimates, sigmas = 0.1, [], []
    idle = np.zeros(len(examples), np.uint8)
    for number in range(epochs):
        bias, sigma, estimate = module.epoch(
            *problem.rows, visits.shuffled(len(examples), 1, 3, number), examples, v, replicas,
            np.zeros(len(examples)), idle, problem.loss, parameter, problem.l2,
            problem.l1 / problem.l2, bias, curvature, sigma, merges, threads,
        )  # fmt: skip
        estimates.append(estimate)
        sigmas.append(sigma)
    return examples["a"].copy(), v, np.array([bias]), np.array(sigmas), np.array(estimates)


@each_loss
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("index", ["int32", "int64"])
@settings(derandomize=True)
@given(data=st.data())
def test_epochs_are_those_of_the_twin(loss: str, dtype: str, index: str, data) -> None:
    """Of fixed examples: where partitions of few rows come to rest, sigma is a ratio of roundings,
    and steps of another sigma are others.
    """
    problem = data.draw(problems(loss, dtype, index))
    options = {
        "parameter": data.draw(st.sampled_from([1.0, 0.3])),
        "curvature": data.draw(st.sampled_from([0.0, 0.5])),
        "merges": data.draw(st.sampled_from([1, 3])),
    }
    n_partitions = data.draw(st.sampled_from([1, 1, 2, 3]))
    ours, theirs = (run(module, problem, n_partitions, **options) for module in (kernel, twin))
    for part, expected in zip(ours[:3], theirs[:3], strict=True):
        scale = np.abs(expected).max(initial=1.0)
        np.testing.assert_allclose(part, expected, rtol=1e-12, atol=1e-12 * scale)
    # sigma is a ratio of squares of differences, so of rounding once nothing changes any more
    for sigmas in (ours[3], theirs[3]):
        assert ((sigmas >= 1) & (sigmas <= max(1.5, n_partitions))).all()
    if np.isfinite(theirs[4]).all():
        scale = np.abs(theirs[4]).max(initial=1.0)
        np.testing.assert_allclose(ours[4], theirs[4], rtol=1e-9, atol=1e-9 * scale)
    TRIED["SDCA partitions", dtype, loss, index] += 1


@each_loss
def test_sigma_is_that_of_the_twin(loss: str) -> None:
    problem = problem_of(loss, 2, n=50, n_sparse=9, longest=9)
    ours, theirs = (run(module, problem, 3)[3] for module in (kernel, twin))
    assert (ours != 1.5).all() and len({*ours}) == 2
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)


@each_loss
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("index", ["int32", "int64"])
@settings(derandomize=True)
@given(data=st.data())
def test_sweeps_of_an_epoch_are_one_after_another(loss: str, dtype: str, index: str, data) -> None:
    """Bit for bit; over those that are awake, as the twin's fit makes them."""
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
                awake = twin_visits.awake(idle, n_sweeps + 1)
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
def test_who_rests_is_as_in_the_twin(loss: str) -> None:
    """Sweeps over those that are awake, until the others would be woken again."""
    problem = problem_of(loss, 3, n=60, n_sparse=9, longest=9)
    found = []
    for module, sdca in ((kernel, visits), (twin, twin_visits)):
        examples, v = problem.examples.copy(), np.zeros(problem.n_weights)
        visits.weights_of(*problem.rows, examples, v, problem.l2)
        idle, none, plans, bias = np.zeros(60, np.uint8), np.zeros((0, 0)), [], 0.0
        for sweep in range(9):
            awake = sdca.awake(idle, sweep)
            plans.append(awake[visits.shuffled(len(awake), 1, 0, sweep)].tolist())
            bias, _, _ = module.epoch(
                *problem.rows, np.array(plans[-1], np.int64), examples, v, none, np.zeros(0), idle,
                loss, 0.3, problem.l2, 0.0, bias, 0.1, 1.0, 1, 0,
            )  # fmt: skip
        found.append((examples["a"].copy(), idle, plans))
    (a, idle, plans), (twins_a, twins_idle, twins_plans) = found
    assert plans == twins_plans
    np.testing.assert_array_equal(idle, twins_idle)
    np.testing.assert_allclose(a, twins_a, rtol=1e-12, atol=1e-12)
    assert idle.any() == (loss in RESTING)


@pytest.mark.parametrize("k", range(8))
def test_every_example_is_awake_once_in_as_many_sweeps(k: int) -> None:
    idle = np.full(300, k, np.uint8)
    awake = [visits.awake(idle, sweep) for sweep in range(5, 5 + 2**k)]
    np.testing.assert_array_equal(np.sort(np.concatenate(awake)), np.arange(300))
    for sweep, found in enumerate(awake, 5):
        np.testing.assert_array_equal(found, twin_visits.awake(idle, sweep))


@each_loss
def test_one_partition_is_the_sequential_definition(loss: str) -> None:
    """The op's epoch, whose steps are all exact: the logistic's is so in the end."""
    problem = problem_of(loss, 7, n=60)
    settled, v, *_ = run(kernel, problem, 1, epochs=300)
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
        made = run(kernel, problem, n_partitions, curvature=0.1)
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
