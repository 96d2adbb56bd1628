"""Fits of given partitions against the twin's.

Where a loss's steps are + - * / in the same order in both, as the hinges' are, weights are the
same bits. The squared loss's residue is taken in another order, and the steps of the others have
exponentials and are found by other searches: they are near. So are certificates, which the twin
adds up in one sum and whose bias it looks for by halving brackets.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from common.linear_losses import FEW, estimator, parameter_of, targets
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from tfopt.linear_model._fit import certificate, plan
from tfopt.linear_model._fit.reductions import reduce_nodes
from tfopt_ref import sdca_block_fit as twin
from tfopt_ref.sdca_certificate import Fit

SAME_BITS = ("hinge_loss", "smooth_hinge_loss", "squared_hinge_loss")
LOSSES = [f"{name}_loss" for name in FEW]
PARAMETER, L2 = 0.6, 2.0
#: Among them one row, fewer rows than an epoch has parts, and more blocks than one wave visits.
BLOCKS = [[48], [1, 30, 17], [13, 1, 2, 5, 4, 3, 1, 6, 1, 7, 2, 2, 1]]
#: What the estimators make of random_state=0.
SEED = np.random.RandomState(0).randint(2**31 - 1)

each_problem = pytest.mark.parametrize(
    ("loss", "l1", "intercept"),
    [(loss, l1, intercept) for loss in LOSSES for l1 in (0.0, 1.5) for intercept in (False, True)],
)
each_blocks = pytest.mark.parametrize("blocks", BLOCKS, ids=["1 block", "3 blocks", "13 blocks"])


@pytest.fixture(autouse=True)
def as_the_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the best bias looked for to the end, as the twin does; Newton's method has its tests."""
    monkeypatch.setattr(certificate, "BIAS_SHARE", 0.0)
    monkeypatch.setattr(plan, "applies_in_blocks", lambda problem: False)


def data(loss: str, kind: str = "csr", dtype: str = "float64") -> tuple[Any, Any, Any]:
    """Return features, many of them 0, labels and weights, some of them 0."""
    random = np.random.default_rng(5)
    X = random.standard_normal((48, 6)) * (random.uniform(size=(48, 6)) < 0.6)
    z = X @ random.standard_normal(6) + 0.5 + random.standard_normal(48)
    y = targets(loss.removesuffix("_loss"), z, random)
    X = X.astype(dtype)
    return sparse.csr_matrix(X) if kind == "csr" else X, y, random.choice([0.0, 0.5, 1.0, 2.0], 48)


def ours(rows: tuple[Any, Any, Any], loss: str, blocks: list[int], **options: Any) -> Any:
    options |= {"l2": L2, "num_loss_partitions": blocks}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator(loss.removesuffix("_loss"), PARAMETER, **options).fit(*rows)


def theirs(rows: tuple[Any, Any, Any], loss: str, blocks: list[int], **options: Any) -> Fit:
    names = {"fit_intercept": "intercept", "max_iter": "max_iter"}
    options = {names.get(name, name): value for name, value in options.items()}
    own = parameter_of(loss, PARAMETER)
    return twin.fit(*rows, loss, blocks=blocks, parameter=own, l2=L2, seed=SEED, **options)


def assert_same(model: Any, k: int, found: Fit, loss: str, intercept: bool) -> None:
    """Compare what a model knows of problem k with the twin's fit."""
    w, a = np.atleast_2d(model.coef_)[k], np.atleast_2d(model.dual_coef_)[k]
    objective, gap = (np.ravel(each)[k] for each in (model.objective_, model.dual_gap_))
    if loss in SAME_BITS:
        assert w.tobytes() == found.w.tobytes()
    else:
        np.testing.assert_allclose(w, found.w, rtol=1e-11, atol=1e-11)
    if loss in SAME_BITS and not intercept:  # with one, they are scaled to a sum of 0
        np.testing.assert_array_equal(a, found.a)  # which takes -0 for 0
    else:
        np.testing.assert_allclose(a, found.a, rtol=1e-11, atol=1e-11)
    assert objective == pytest.approx(found.primal, rel=1e-10)
    assert gap == pytest.approx(found.gap, rel=1e-8, abs=1e-10 * abs(found.primal))


@each_problem
@each_blocks
@pytest.mark.parametrize("epochs", [1, 7])
def test_the_way_there_is_that_of_the_twin(
    loss: str, l1: float, intercept: bool, blocks: list[int], epochs: int
) -> None:
    options = {"l1": l1, "fit_intercept": intercept, "tol": 0, "max_iter": epochs}
    model, found = (fit(data(loss), loss, blocks, **options) for fit in (ours, theirs))
    assert_same(model, 0, found, loss, intercept)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", ["csr", "dense"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("intercept", [False, True])
def test_kinds_of_features(loss: str, kind: str, dtype: str, intercept: bool) -> None:
    rows = data(loss, kind, dtype)
    options = {"l1": 0.5, "fit_intercept": intercept, "tol": 0, "max_iter": 3}
    model, found = (fit(rows, loss, BLOCKS[2], **options) for fit in (ours, theirs))
    assert_same(model, 0, found, loss, intercept)


@pytest.mark.parametrize("loss", ["logistic_loss", "hinge_loss", "smooth_hinge_loss"])
@each_blocks
def test_each_class_is_a_problem(loss: str, blocks: list[int]) -> None:
    X, y, c = data("squared_loss")
    classes = np.digitize(y, [-0.5, 1.0])
    options = {"l1": 0.5, "fit_intercept": True, "tol": 0, "max_iter": 4}
    model = ours((X, classes, c), loss, blocks, **options)
    assert len(model.coef_) == 3
    for k in range(3):
        found = theirs((X, np.where(classes == k, 1.0, -1.0), c), loss, blocks, **options)
        assert_same(model, k, found, loss, True)


@each_problem
def test_both_end_at_the_same_epoch(loss: str, l1: float, intercept: bool) -> None:
    for tol in (1e-2, 1e-3):
        options = {"l1": l1, "fit_intercept": intercept, "tol": tol}
        model, found = (fit(data(loss), loss, BLOCKS[2], **options) for fit in (ours, theirs))
        assert found.near(tol)
        assert np.ravel(model.n_iter_)[0] == found.n_iter
        assert_same(model, 0, found, loss, intercept)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=40), st.data())
def test_the_sum_is_the_same_in_whatever_order_answers_come(values: list[float], data: Any) -> None:
    order = data.draw(st.permutations(range(len(values))))
    nodes: dict[tuple[int, int], float] = {}
    while order:
        size = data.draw(st.integers(1, len(order)))
        group, order = order[:size], order[size:]
        own = reduce_nodes({(0, k): values[k] for k in group}, len(values))
        nodes = reduce_nodes(nodes | own, len(values))
    (root,) = nodes.values()
    assert root == twin.tree_sum(values)
