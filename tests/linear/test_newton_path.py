"""Newton's method along a path of l2: its certificates, which take no pass over the rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from common.sdca_cases import labels_for
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from tfopt.kernels.linear import second_order, visits
from tfopt.linear_model import SDCAClassifier, SDCARegressor, sdca_path
from tfopt.linear_model._fit import newton_path
from tfopt.linear_model._fit.newton_path import shifted_duals
from tfopt.linear_model.losses import LOSSES
from tfopt_ref import linear
from tfopt_ref.losses import loss_named

each_loss = pytest.mark.parametrize(
    "loss", [loss.kernel for loss in LOSSES.values() if loss.bounds_moves and not loss.is_joint]
)
seeds = st.integers(0, 2**32)


class Data(NamedTuple):
    """Features, labels and weights."""

    X: np.ndarray
    y: np.ndarray
    c: np.ndarray


def data(loss: str, seed: int, n: int = 30, far: float = 0.0) -> Data:
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, 4)) * np.logspace(-1, 0, 4) + far
    y = labels_for(loss, random, n)
    y[:2] = 1.0, 0.5 if loss == "gamma_loss" else 0.0
    if loss == "logistic_loss":
        y = 2 * y - 1
    weights = random.choice([0.0, 0.5, 1.0, 3.0], n)
    weights[:2] = 1.0
    return Data(X, y, weights)


@each_loss
@given(seed=seeds, far=st.sampled_from([1e-9, 1e-2, 1.0]))
def test_shifted_duals_are_feasible_and_the_gap_is_a_bound(
    loss: str, seed: int, far: float
) -> None:
    """They are ``a = t * h - phi'(z)`` with a sum of 0, and their gap is less than the sum of ::

    (t * h)**2 / phi''(z)
    """
    X, y, c = data(loss, seed)
    random = np.random.default_rng(seed)
    problem = linear.Problem(linear.rows_of(X), y, c, loss_named(loss), 0.0, 2.0, True)
    w = random.standard_normal(4)
    b = linear.best_bias(problem, w) + far * random.standard_normal()
    examples = np.zeros(len(y), visits.EXAMPLE)
    examples["y"], examples["weight"] = y, c
    slopes, bends = second_order.derivatives(examples, X @ w, b, loss, 1.0)
    h = bends * random.uniform(0.5, 2.0, len(y))
    found = shifted_duals(np.append(slopes @ X, slopes.sum()), bends, h, np.append(h @ X, h.sum()))
    t = slopes.sum() / h.sum()
    share = abs(t) * np.divide(h, bends, where=c > 0, out=0 * h).max()
    assert (found is None) == (share > 1)
    if found is None:
        return
    bound = np.sum(np.divide((t * h) ** 2, bends, where=c > 0, out=0 * h))
    assert found.gap == pytest.approx(bound, rel=1e-9)
    moved = t * h - slopes
    np.testing.assert_allclose(found.x_duals, moved @ X, rtol=1e-9, atol=1e-9)
    assert abs(moved.sum()) <= 1e-9 * c.sum()
    a = np.divide(moved, c, where=c > 0, out=0 * h)
    exact = sum(linear.losses(problem, w, b, a.tolist()))
    assert exact <= found.gap + 1e-12 * (1 + linear.primal(problem, w, b))


@given(seed=seeds)
def test_a_secant_update_tells_how_the_gradient_changed(seed: int) -> None:
    random = np.random.default_rng(seed)
    halves, s = random.standard_normal((2, 5, 4)), random.standard_normal(4)
    H, y = halves[0].T @ halves[0], halves[1].T @ halves[1] @ s
    found = newton_path.secant_update(H, s, y)
    bfgs = H - np.outer(H @ s, H @ s) / (s @ H @ s) + np.outer(y, y) / (s @ y)
    np.testing.assert_allclose(found, bfgs, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found @ s, y, rtol=1e-6, atol=1e-6)
    assert newton_path.secant_update(H, s, -y) is H


@each_loss
@pytest.mark.parametrize("form", [np.array, sparse.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("intercept", [True, False])
def test_the_minimum_is_between(loss: str, form: Any, intercept: bool) -> None:
    X, y, c = data(loss, 1, n=200, far=2.0)
    name, l2s = loss.removesuffix("_loss"), [30.0, 1e-3, 1.0, 1e3]
    kind = SDCAClassifier if name == "logistic" else SDCARegressor
    rows = form(X), y
    options = {"fit_intercept": intercept, "sample_weight": c}
    for tol in (1e-3, 1e-10):
        path = sdca_path(*rows, name, l2s=l2s, tol=tol, **options)
        assert (path.dual_gaps <= tol * path.objectives).all()
        for k, l2 in enumerate(l2s):
            model = kind(name, l2=l2, tol=1e-12, fit_intercept=intercept)
            least = np.ravel(model.fit(*rows, c).objective_)[0]
            objective, gap = path.objectives[k, 0], path.dual_gaps[k, 0]
            assert objective - gap - 1e-11 * least <= least <= objective + 1e-11 * least
            there = linear.Problem(linear.rows_of(X), y, c, loss_named(loss), 0.0, l2)
            at = linear.primal(there, path.coefs[k, 0], path.intercepts[k, 0])
            assert objective == pytest.approx(at, rel=1e-11)


def test_where_no_step_leads_on_fits_do(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, _ = data("poisson_loss", 3, n=100)
    expected = sdca_path(X, y, "poisson", l2s=[10.0, 1.0], tol=1e-9)
    monkeypatch.setattr(newton_path, "line_search", lambda *args: {})
    path = sdca_path(X, y, "poisson", l2s=[10.0, 1.0], tol=1e-9)
    np.testing.assert_allclose(path.objectives, expected.objectives, rtol=1e-8)
    assert (path.n_iters > 1).all()
