"""Where a fit starts from the one before it, and where it ends for want of time."""

from __future__ import annotations

import pickle
import tracemalloc
import warnings
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from test_linear_model import data, each_loss, estimator

from tfopt.errors import InvalidArgumentError
from tfopt.linear_model import SDCAClassifier

SMOOTH = ("logistic", "smooth_hinge", "squared", "poisson")


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("keep_duals", [True, False])
def test_newtons_method_starts_from_the_weights(loss: str, keep_duals: bool) -> None:
    """So that a little other penalty takes fewer steps than a fit from nothing."""
    X, y = data(loss)
    X += 5  # centred
    model = estimator(loss, warm_start=True, tol=1e-9, keep_duals=keep_duals).fit(X, y)
    for l2 in (1.1, 0.9):
        cold = estimator(loss, l2=l2, tol=1e-9).fit(X, y)
        model.set_params(l2=l2).fit(X, y)
        assert model.n_iter_[0] < max(cold.n_iter_[0], 3)  # least squares take 2 in any case
        assert model.objective_ == pytest.approx(cold.objective_, rel=1e-8)
    model.fit(X, y)  # the weights may have been certified by a step's dual variables, not their own
    assert model.n_iter_[0] <= 2 and model.history_[0][-1]["certified"]


@each_loss
@pytest.mark.parametrize("l1", [0.0, 0.5])
def test_other_penalties_start_from_the_dual_variables(loss: str, l1: float) -> None:
    X, y = data(loss)
    options: dict[str, Any] = {"tol": 1e-6, "l1": l1, "max_iter": 20_000}
    if l1:
        options["solver"] = "sdca"
    model = estimator(loss, warm_start=True, **options).fit(X, y)
    cold = estimator(loss, l2=1.02, **options).fit(X, y)
    model.set_params(l2=1.02).fit(X, y)
    assert model.n_iter_[0] < max(cold.n_iter_[0], 3)
    assert model.objective_ == pytest.approx(cold.objective_, rel=2e-6)


def test_several_classes_start_from_theirs() -> None:
    X, _ = data("logistic", n=300)
    y = np.digitize(X @ np.arange(7), [-3, 3])
    for options in ({}, {"l1": 0.3}):
        model = SDCAClassifier(warm_start=True, tol=1e-7, keep_duals=False, **options).fit(X, y)
        cold = SDCAClassifier(l2=1.05, tol=1e-7, **options).fit(X, y)
        model.set_params(l2=1.05).fit(X, y)
        assert (model.n_iter_ < cold.n_iter_).all()
        np.testing.assert_allclose(model.objective_, cold.objective_, rtol=2e-7)


def test_sparse_coefficients_start_as_dense_ones_do() -> None:
    X, y = data("logistic")
    fits = []
    for kind in (np.asarray, sparse.csr_matrix):
        model = SDCAClassifier(warm_start=True, l1=2.0, tol=1e-6).fit(X, y)
        model.coef_ = kind(model.coef_)
        fits.append(model.set_params(l2=1.5).fit(X, y).coef_.tobytes())
    assert fits[0] == fits[1]


@pytest.mark.parametrize(
    ("loss", "options", "where"),
    [
        ("hinge", {}, "with loss='hinge'"),
        ("logistic", {"num_loss_partitions": [60, 60]}, "in blocks"),
    ],
)
def test_what_starts_from_dual_variables_must_have_kept_them(
    loss: str, options: dict[str, Any], where: str
) -> None:
    X, y = data(loss)
    model = estimator(loss, warm_start=True, keep_duals=False, max_iter=20_000, **options).fit(X, y)
    before = pickle.dumps(model)
    with pytest.raises(InvalidArgumentError, match=f"{where}.*not kept: set keep_duals=True"):
        model.fit(X, y)
    assert pickle.dumps(model) == before


@each_loss
@pytest.mark.parametrize("options", [{}, {"num_loss_partitions": [60, 60]}, {"l1": 0.5}])
def test_dual_variables_need_not_be_kept(loss: str, options: dict[str, Any]) -> None:
    X, y = data(loss, n=120)
    kept, left = (
        estimator(loss, keep_duals=keep, max_iter=20_000, **options).fit(X, y)
        for keep in (True, False)
    )
    assert left.coef_.tobytes() == kept.coef_.tobytes()
    assert np.all(left.dual_gap_ == kept.dual_gap_)
    assert not hasattr(left, "dual_coef_")
    left.set_params(keep_duals=True).fit(X, y).set_params(keep_duals=False).fit(X, y)
    assert not hasattr(left, "dual_coef_")


def test_memory_for_many_classes_is_that_of_groups_of_them() -> None:
    """Of 16 bytes for each sample and class besides X at most, and half of that is the result."""
    random = np.random.default_rng(0)
    n, classes = 2000, 160
    X, y = random.standard_normal((n, 4)), np.arange(n) % classes
    for keep, most in ((True, 16), (False, 10)):
        model = SDCAClassifier("hinge", l2=100.0, tol=0.5, keep_duals=keep)
        tracemalloc.start()
        model.fit(X, y)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak <= most * n * classes
        size = len(pickle.dumps(model))
        assert size > 8 * n * classes if keep else size < n * classes


# ---- max_time


@each_loss
@pytest.mark.parametrize("options", [{}, {"l1": 1.0}, {"num_loss_partitions": [60, 60]}])
def test_time_ends_a_fit(loss: str, options: dict[str, Any]) -> None:
    """With a certificate, after one iteration if the time is over at once."""
    X, y = data(loss)
    model = estimator(loss, tol=1e-12, max_time=1e-9, **options)
    with pytest.warns(ConvergenceWarning, match="after max_time=1e-09 seconds, above tol") as seen:
        model.fit(X, y)
    assert seen[0].filename == __file__
    assert model.n_iter_[0] == 1 and model.history_[0][0]["certified"]
    assert np.isfinite(model.dual_gap_).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.set_params(tol=1e-3, max_time=1e6, max_iter=20_000).fit(X, y)


def test_time_is_that_of_all_classes_together() -> None:
    X, _ = data("logistic", n=300)
    y = np.arange(300) % 20
    model = SDCAClassifier("hinge", tol=0.0, max_time=1e-9)
    with pytest.warns(ConvergenceWarning, match="raise max_time or tol"):
        model.fit(X, y)
    assert (model.n_iter_ == 1).all()


@pytest.mark.parametrize("seconds", [0, -1.0, np.inf, "1"])
def test_time_is_above_0(seconds: Any) -> None:
    X, y = data("hinge")
    with pytest.raises(ValueError, match="max_time must be a finite number above 0"):
        SDCAClassifier(max_time=seconds).fit(X, y)
