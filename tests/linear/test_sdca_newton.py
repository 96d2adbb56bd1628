"""Newton's method against the twin's: whole fits, with and without blocks, step by step."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import numpy as np
import pytest
from common.linear_losses import FEW_SMOOTH, estimator, parameter_of, targets
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from tfopt.linear_model._fit import certificate, plan, work
from tfopt.linear_model._fit.monitor import ConvergenceMonitor
from tfopt.linear_model._fit.problem import sample_rows
from tfopt.linear_model.losses import loss_named as record_named
from tfopt_ref import sdca_block_fit, sdca_fit, sdca_newton
from tfopt_ref.sdca_certificate import Fit, Problem, primal
from tfopt_ref.sdca_losses import loss_named
from tfopt_ref.sdca_newton import Newton, conjugate_gradients, line_search, steps

BLOCKS = [30, 1, 49]
PARAMETER, L2 = 0.6, 0.02
#: As many epochs a step is said to take as long as.
COST = 2.0
#: What the estimators make of random_state=0.
SEED = np.random.RandomState(0).randint(2**31 - 1)
LOSSES = [f"{name}_loss" for name in FEW_SMOOTH]

each_loss = pytest.mark.parametrize("loss", LOSSES)
each_intercept = pytest.mark.parametrize("intercept", [False, True])
each_direction = pytest.mark.parametrize("with_matrix", [False, True])
each_blocks = pytest.mark.parametrize("blocks", [None, BLOCKS], ids=["whole", "blocks"])


def data(loss: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features of several sizes, labels and weights, some of them 0."""
    random = np.random.default_rng(6)
    X = random.standard_normal((80, 7)) @ random.standard_normal((7, 7)) * np.logspace(-1, 0, 7)
    z = X @ random.standard_normal(7) / 2 + 0.5 + random.standard_normal(80)
    y = targets(loss.removesuffix("_loss"), z, random)
    return X, y, random.choice([0.0, 0.5, 1.0, 2.0], 80)


def begins_with_steps(loss: str, X: Any) -> bool:
    """Whether a fit of blocks does not begin with visits."""
    return not sparse.issparse(X) and not record_named(loss).is_linear_far


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> Any:
    """From a problem and how to go about it: our fit and the twin's, with the same choices."""

    def both(
        rows: tuple[Any, Any, Any],
        loss: str,
        blocks: list[int] | None,
        intercept: bool,
        with_matrix: bool,
        tol: float,
        max_iter: int,
        l1: float = 0.0,
        begins: bool = False,
        sample: int = 0,
        reuses: bool = False,
    ) -> tuple[Any, Fit]:
        monkeypatch.setattr(work, "reuses_hessian", lambda problem: reuses)
        monkeypatch.setattr(work, "sample_size", lambda problem: sample)
        monkeypatch.setattr(plan, "begins_with_newton", lambda problem: begins)
        monkeypatch.setattr(work, "choose_linear_solver", lambda problem: (with_matrix, COST))
        monkeypatch.setattr(plan, "EPOCHS_IN_BLOCKS", COST)
        monkeypatch.setattr(plan, "MOST_WEIGHTS_IN_BLOCKS", 64 if with_matrix else 0)
        monkeypatch.setattr(certificate, "BIAS_SHARE", 0.0)
        # far from the minimum a step may have a larger gap than the one before
        monkeypatch.setattr(ConvergenceMonitor, "should_certify_step", lambda *_: True)
        model = estimator(
            loss.removesuffix("_loss"),
            PARAMETER,
            l1=l1,
            l2=L2,
            tol=tol,
            max_iter=max_iter,
            fit_intercept=intercept,
            num_loss_partitions=blocks,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(*rows)
        doubt = math.inf if record_named(loss).is_linear_far else plan.DOUBT
        options: dict[str, Any] = {
            "parameter": parameter_of(loss, PARAMETER),
            "l1": l1,
            "l2": L2,
            "intercept": intercept,
            "tol": tol,
            "max_iter": max_iter,
            "seed": SEED,
            "newton": Newton(
                0.0 if begins or (blocks and begins_with_steps(loss, rows[0])) else COST,
                with_matrix,
                sample,
                reuses,
                0.0 if with_matrix or blocks else doubt,
            ),
        }
        if blocks is None:
            return model, sdca_fit.fit(*rows, loss, **options)
        return model, sdca_block_fit.fit(*rows, loss, blocks=blocks, **options)

    return both


def assert_near(model: Any, found: Fit, weight: np.ndarray, rtol: float = 1e-7) -> None:
    primal = found.primal
    assert np.ravel(model.objective_)[0] == pytest.approx(primal, rel=1e-10)
    gap = np.ravel(model.dual_gap_)[0]
    assert gap == pytest.approx(found.gap, rel=rtol, abs=1e-13 * abs(primal))
    np.testing.assert_allclose(np.ravel(model.coef_), found.w, rtol=rtol, atol=rtol)
    assert np.ravel(model.intercept_)[0] == pytest.approx(found.b, rel=rtol, abs=rtol)
    a = np.where(weight > 0, np.ravel(model.dual_coef_) - found.a, 0)
    np.testing.assert_allclose(a, 0, atol=rtol)


@each_loss
@each_intercept
@each_direction
@each_blocks
@pytest.mark.parametrize("kind", ["csr", "dense"])
def test_each_step_is_the_twins(
    loss: str,
    intercept: bool,
    with_matrix: bool,
    blocks: list[int] | None,
    kind: str,
    fits: Any,
) -> None:
    X, y, weight = data(loss)
    rows = (sparse.csr_matrix(X) if kind == "csr" else X), y, weight
    for max_iter in (3, 4, 6):
        model, found = fits(rows, loss, blocks, intercept, with_matrix, 0.0, max_iter)
        assert_near(model, found, weight)


@each_loss
@each_intercept
@each_direction
@pytest.mark.parametrize("kind", ["csr", "dense"])
def test_each_proximal_step_is_the_twins(
    loss: str, intercept: bool, kind: str, with_matrix: bool, fits: Any
) -> None:
    """In blocks, where l1 leaves some weights at 0; with or without Hessians of all weights."""
    X, y, weight = data(loss)
    rows = (sparse.csr_matrix(X) if kind == "csr" else X), y, weight
    for max_iter in (1, 3, 5):
        model, found = fits(rows, loss, BLOCKS, intercept, with_matrix, 0.0, max_iter, l1=3.0)
        assert_near(model, found, weight)
    model, found = fits(rows, loss, BLOCKS, intercept, with_matrix, 1e-8, 500, l1=3.0)
    assert found.near(1e-8)
    assert np.ravel(model.n_iter_)[0] == found.n_iter
    assert 0 < np.count_nonzero(found.w) < len(found.w)


@each_loss
@each_intercept
@each_direction
@each_blocks
def test_both_end_at_the_same_step(
    loss: str, intercept: bool, with_matrix: bool, blocks: list[int] | None, fits: Any
) -> None:
    rows = data(loss)
    for tol in (1e-2, 1e-5, 1e-9):
        model, found = fits(rows, loss, blocks, intercept, with_matrix, tol, 500)
        assert found.near(tol)
        assert np.ravel(model.n_iter_)[0] == found.n_iter
        assert_near(model, found, rows[2])


@each_loss
@each_intercept
@pytest.mark.parametrize("sample", [0, 1, 60])
@pytest.mark.parametrize("kind", ["csr", "dense"])
def test_steps_from_the_beginning_are_the_twins(
    loss: str, intercept: bool, sample: int, kind: str, fits: Any
) -> None:
    """Which may be the minimum for a sample of the rows, if its labels differ."""
    X, y, weight = data(loss)
    rows = (sparse.csr_matrix(X) if kind == "csr" else X), y, weight
    for max_iter in (1, 2, 4):
        model, found = fits(
            rows, loss, None, intercept, True, 0.0, max_iter, begins=True, sample=sample
        )
        assert_near(model, found, weight)


@pytest.mark.parametrize("loss", ["logistic_loss", "squared_loss", "poisson_loss"])
@each_intercept
def test_a_second_step_with_the_same_hessian_is_the_twins(
    loss: str, intercept: bool, fits: Any
) -> None:
    """Of other losses, it is an estimate of the gap that says whether there is one."""
    rows = data(loss)
    ways = set()
    for tol in (1e-2, 1e-5, 1e-9, 1e-12):
        model, found = fits(rows, loss, None, intercept, True, tol, 500, begins=True, reuses=True)
        assert found.near(tol)
        assert np.ravel(model.n_iter_)[0] == found.n_iter
        assert_near(model, found, rows[2])
        ways.add(found.n_iter)
    assert loss == "squared_loss" or len(ways) > 1


@given(n=st.integers(1, 10**6), size=st.integers(1, 1000))
def test_a_sample_has_a_row_of_each_range(n: int, size: int) -> None:
    size = min(n, size)
    found = sample_rows(n, size)
    assert found.tolist() == sdca_newton.sampled(n, size)
    width = n // size
    assert (found // width == np.arange(size)).all()
    if width > 50 and size > 300:  # whatever the period of the data
        assert all(len({*(found % period).tolist()}) == period for period in (2, 3, 7, 16))


@each_loss
@each_blocks
def test_features_whose_means_outweigh_their_variances_are_centred(
    loss: str, blocks: list[int] | None, fits: Any
) -> None:
    """The same minimum as without the means, but for the intercept."""
    X, y, weight = data(loss)
    means = np.linspace(20, 30, X.shape[1])
    model, found = fits((X + means, y, weight), loss, blocks, True, True, 1e-9, 500)
    _, near = fits((X - X.mean(axis=0), y, weight), loss, blocks, True, True, 1e-9, 500)
    assert_near(model, found, weight, rtol=1e-6)
    np.testing.assert_allclose(found.w, near.w, rtol=1e-6, atol=1e-6)
    assert found.primal == pytest.approx(near.primal, rel=1e-8)


@each_loss
def test_slopes_are_the_values_differences_and_bends_theirs(loss: str) -> None:
    phi, d = loss_named(loss, parameter_of(loss, PARAMETER)), 1e-6
    for y in (-1.0, 1.0) if "poisson" not in loss else (0.0, 3.0):
        for z in (-3.0, -0.7, 0.1, 0.55, 0.9, 2.0):
            slope = (phi.value(z + d, y) - phi.value(z - d, y)) / (2 * d)
            assert phi.slope(z, y) == pytest.approx(slope, abs=1e-8)
            bend = (phi.slope(z + d, y) - phi.slope(z - d, y)) / (2 * d)
            assert phi.bend(z, y) == pytest.approx(bend, abs=1e-8)


def test_the_twins_conjugate_gradients_are_those_of_the_definition() -> None:
    """Of n unknowns, n steps would solve it: here they stop when a tenth is left."""
    random = np.random.default_rng(1)
    B = random.standard_normal((9, 6))
    H, g = B.T @ B + 0.1 * np.eye(6), random.standard_normal(6)
    D = np.diagonal(H)
    s = conjugate_gradients(lambda p: H @ p, D, g)
    left = H @ s + g
    assert 0 < left @ (left / D) <= 0.01 * g @ (g / D)
    assert g @ s < 0


def test_the_twins_line_search_halves_until_the_primal_is_lower() -> None:
    X, y, c = data("squared_loss")
    problem = Problem(X, y, c, loss_named("squared_loss", 1.0), 0.0, L2, False)
    w = np.zeros(7)
    point = Fit(w, 0.0, np.zeros(80), primal(problem, w, 0.0), 1.0, 1)
    g = -X.T @ (c * y)
    newtons = np.linalg.solve(X.T @ (c[:, None] * X) + L2 * np.eye(7), -g)
    long = 5 * newtons  # of a parabola, twice as far is as high again
    for s, share in ((newtons, 1.0), (long, 0.25)):
        end, _ = line_search(problem, point, s, -(g @ s))
        np.testing.assert_array_equal(end, share * s)
    assert line_search(problem, point, -newtons, 0.0) is None


def test_the_twins_steps_lead_to_the_minimum_and_stay_there() -> None:
    X, y, c = data("logistic_loss")
    problem = Problem(X, y, c, loss_named("logistic_loss", 1.0), 0.0, L2, True)
    start = Fit(np.zeros(7), 0.0, np.zeros(80), 0.0, np.inf, 0)
    points = list(itertools.islice(steps(problem, start, Newton(1.0)), 20))
    assert points[0].gap > 1e-3
    for point in points[10:]:
        assert point.gap <= 1e-13 * point.primal
    assert all(np.diff([point.primal for point in points]) <= 1e-14 * points[0].primal)


def test_the_twins_steps_end_where_the_primal_is_not_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    for find in ("solved", "approximate"):
        monkeypatch.setattr(sdca_newton, find, lambda A, bends, P, g: g)
    X, y, c = data("logistic_loss")
    problem = Problem(X, y, c, loss_named("logistic_loss", 1.0), 0.0, L2, True)
    start = Fit(np.zeros(7), 0.0, np.zeros(80), 0.0, np.inf, 0)
    assert len(list(steps(problem, start, Newton(1.0)))) == 1
