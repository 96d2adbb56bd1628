"""Epochs of several classes at once against those of each class alone."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from common.cases import TRIED
from common.sdca_cases import Problem, problem_of, problems
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import tfopt
from tfopt.kernels.linear import multiclass, solver, visits
from tfopt.kernels.linear.multiclass import LANES, SAMPLE
from tfopt.linear_model import SDCAClassifier

LOSSES = ("logistic_loss", "hinge_loss", "smooth_hinge_loss", "squared_hinge_loss")
each_loss = pytest.mark.parametrize("loss", LOSSES)


def start(problem: Problem, lanes: np.ndarray, n_lanes: int, duals: np.ndarray):
    """Return samples, labels, b, their logits, and the weights that belong to them."""
    n = len(problem.examples)
    samples = np.zeros(n, SAMPLE)
    samples["weight"] = problem.examples["weight"]
    samples["curvature"] = problem.examples["curvature"]
    samples["lane"] = lanes
    labels = np.where(lanes[:, None] == np.arange(LANES), 1.0, -1.0)
    labels[:, n_lanes:] = 0.0
    b = np.where(labels != 0, duals, 0.0)
    with np.errstate(divide="ignore"):
        t = np.where(labels != 0, np.log(b / (1 - b)), 0.0)
    factors = samples["weight"][:, None] * labels * b / problem.l2
    v = multiclass.weights_of(*problem.rows, factors, problem.n_weights)
    return samples, labels, b, t, v


def run(problem: Problem, lanes: np.ndarray, n_lanes: int, duals: np.ndarray, curvature: float):
    """Return the dual variables, weights, biases and estimates that two epochs leave."""
    samples, labels, b, t, v = start(problem, lanes, n_lanes, duals)
    bias = np.full(LANES, 0.1)
    for number in range(2):
        estimates = multiclass.epoch(
            *problem.rows, visits.shuffled(len(b), 1, 3, number), samples, b, t, v, bias, n_lanes,
            problem.loss, 0.3, problem.l2, problem.l1 / problem.l2, curvature,
        )  # fmt: skip
    return labels * b, v, bias, estimates


def run_alone(problem: Problem, y: np.ndarray, duals: np.ndarray, curvature: float):
    """Return what epochs of one class alone leave."""
    examples = problem.examples.copy()
    examples["y"], examples["a"] = y, y * duals
    v, bias, none = np.zeros(problem.n_weights), 0.1, np.zeros((0, problem.n_weights))
    visits.weights_of(*problem.rows, examples, v, problem.l2)
    for number in range(2):
        bias, _, estimate = solver.epoch(
            *problem.rows, visits.shuffled(len(y), 1, 3, number), examples, v, none, np.zeros(0),
            np.zeros(0, np.uint8), problem.loss, 0.3, problem.l2, problem.l1 / problem.l2, bias,
            curvature, 1.0, 1, 1,
        )  # fmt: skip
    return examples["a"], v, bias, estimate


@pytest.mark.counted
@each_loss
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("index", ["int32", "int64"])
@given(data=st.data())
def test_each_class_goes_its_own_way(loss: str, dtype: str, index: str, data) -> None:
    problem = data.draw(problems(loss, dtype, index))
    n_lanes = data.draw(st.integers(1, LANES))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    n = len(problem.examples)
    lanes = random.integers(-1, n_lanes, n)
    duals = random.choice([0.0, 1.0, 1e-9, 0.2, 0.7], (n, LANES))
    curvature = data.draw(st.sampled_from([0.0, 0.5]))
    ours = run(problem, lanes, n_lanes, duals, curvature)
    for k in range(n_lanes):
        theirs = run_alone(problem, np.where(lanes == k, 1.0, -1.0), duals[:, k], curvature)
        for part, expected in zip(ours, theirs, strict=True):
            scale = np.abs(expected).max(initial=1.0)
            np.testing.assert_allclose(part.T[k], expected, rtol=1e-10, atol=1e-10 * scale)
    for part in ours[:2]:
        assert not part[:, n_lanes:].any()
    TRIED["SDCA classes", dtype, loss, index] += 1


@each_loss
def test_neighbours_change_no_bits(loss: str) -> None:
    problem = problem_of(loss, 4, n=300, n_sparse=40, longest=20)
    random = np.random.default_rng(0)
    lanes, duals = random.integers(0, 5, 300), random.uniform(size=(300, LANES))
    together = run(problem, lanes, 5, duals, 0.5)
    for k in range(5):
        moved = np.where(lanes == k, 0, -1)
        alone = run(problem, moved, 1, np.roll(duals, -k, axis=1), 0.5)
        for part, other in zip(together, alone, strict=True):
            assert part.T[k].tobytes() == other.T[0].tobytes()


@each_loss
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_groups_and_threads_change_no_bits(loss: str, kind: str) -> None:
    random = np.random.default_rng(1)
    X = random.normal(size=(400, 30)) * (random.uniform(size=(400, 30)) < 0.3)
    y = (X @ random.normal(size=(30, 11))).argmax(axis=1)
    answers = []
    for n_threads in (1, 2, 3):
        tfopt.threads.set_num_threads(n_threads)
        model = SDCAClassifier(loss.removesuffix("_loss"), l1=0.1, tol=1e-6, max_iter=30)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(sparse.csr_matrix(X) if kind == "sparse" else X, y)
        parts = (model.coef_, model.intercept_, model.dual_coef_, model.dual_gap_)
        answers.append([part.tobytes() for part in parts])
    assert answers[0] == answers[1] == answers[2]


def test_passes_over_all_lanes() -> None:
    problem = problem_of("logistic_loss", 4, n=300, n_sparse=40, longest=20)
    random = np.random.default_rng(0)
    w = random.normal(size=(problem.n_weights, LANES))
    wx = multiclass.predictions(*problem.rows, w)
    factors = random.normal(size=(300, LANES))
    v = multiclass.weights_of(*problem.rows, factors, problem.n_weights)
    examples = problem.examples.copy()
    examples["weight"] = 1.0
    for k in range(LANES):
        alone = visits.predictions(*problem.rows, np.ascontiguousarray(w[:, k]), 0.0)
        np.testing.assert_allclose(wx[:, k], alone, rtol=1e-12, atol=1e-12)
        examples["a"] = factors[:, k]
        expected = np.zeros(problem.n_weights)
        visits.weights_of(*problem.rows, examples, expected, 1.0)
        np.testing.assert_allclose(v[:, k], expected, rtol=1e-12, atol=1e-12)
