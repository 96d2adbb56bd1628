"""Partitions that are given: their sums, their certificates, and what their bits depend on."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
from common.sdca_cases import LOSSES, problem_of, specified
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import tfopt
from tfopt.kernels.linear import blocks as sdca_blocks
from tfopt.kernels.linear import visits
from tfopt.linear_model import SDCAClassifier, SDCARegressor
from tfopt.linear_model._blocks import blocks
from tfopt.linear_model._fit import rows
from tfopt.linear_model._fit.intercept import intercept_search
from tfopt.linear_model._fit.problem import Problem
from tfopt.linear_model._fit.reductions import SparseDelta, reduce_nodes, tree_reduce
from tfopt.linear_model._fit.rows import RowState
from tfopt.linear_model.losses import loss_named as record_named
from tfopt_ref import sdca

each_loss = pytest.mark.parametrize("loss", LOSSES)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=40), st.data())
def test_shares_of_a_sum_do_not_change_its_bits(values: list[float], data) -> None:
    owners = data.draw(st.lists(st.integers(0, 3), min_size=len(values), max_size=len(values)))
    places = range(len(values))
    shares = [{(0, k): values[k] for k in places if owners[k] == owner} for owner in range(4)]
    folded = [reduce_nodes(share, len(values)) for share in shares]
    (root,) = reduce_nodes(
        {k: v for nodes in folded for k, v in nodes.items()}, len(values)
    ).values()
    assert root == tree_reduce(values)
    assert root == pytest.approx(np.sum(values), abs=1e-6 * np.abs(values).sum())


def test_answers_of_all_kinds_are_added_up() -> None:
    answers = [{0: (1, None)}, {0: (2, None), 1: (5, None)}, {1: (7, None)}]
    assert tree_reduce(answers) == {0: (3, None), 1: (12, None)}


@given(st.integers(0, 2**32))
def test_changes_add_up_as_the_vectors_do(seed: int) -> None:
    random = np.random.default_rng(seed)
    share = random.choice([0.05, 0.2, 0.6], 2)
    pair = [random.standard_normal(60) * (random.uniform(size=60) < s) for s in share]
    changes = [SparseDelta.from_dense(vector) for vector in pair]
    total = changes[0] + changes[1]
    np.testing.assert_array_equal(total.dense(), pair[0] + pair[1])
    assert (total.indices is None) == (np.count_nonzero(pair[0] + pair[1]) > 15)


class Intercepts:
    """The losses of a problem as a function of the intercept."""

    def __init__(self, loss: str) -> None:
        given = problem_of(loss, 3, n=80)
        wx = 3 * np.random.default_rng(0).standard_normal(80)
        self.objective = Problem(given.rows, given.n_weights, record_named(loss), 0.0, 1.0, True, 1)
        self.state = rows.predicted(self.objective, RowState.initial(given.examples), wx)

    def losses(self, bias: float) -> float:
        return float(rows.gap_sums(self.objective, self.state, bias)[0])

    def best(self, start: float, slack: float = 0.0) -> tuple[float, int]:
        """Return what a search finds, and in how many rounds."""
        search, rounds = intercept_search(self.objective.phi, start, slack), 1
        while not search.update(
            rows.intercept_derivatives(self.objective, self.state, search.places)
        ):
            rounds += 1
        return search.bias, rounds


@each_loss
@pytest.mark.parametrize("slack", [0.0, 1e-2])
def test_the_bias_is_the_best_but_for_the_slack(loss: str, slack: float) -> None:
    of = Intercepts(loss)
    for start in (-40.0, 0.3, 25.0):
        found, _ = of.best(start, slack)
        assert of.losses(found) <= of.losses(of.best(0.0)[0]) + slack + 1e-7


@each_loss
def test_the_best_bias_has_no_slope(loss: str) -> None:
    """Wherever the search begins; of the hinge, whose slope has steps, no other bias is better."""
    of = Intercepts(loss)
    best, _ = of.best(0.0)
    for start in best + np.array([-30.0, -0.1, -1e-5, 1e-9, 1e-3, 1.0, 20.0]):
        found, rounds = of.best(start)
        slopes, _ = of.objective.derivatives(of.state.examples, of.state.wx, found)
        if loss != "hinge_loss":
            assert abs(slopes.sum()) <= 1e-13 * np.abs(slopes).sum()
        if loss in ("squared_loss", "poisson_loss") and abs(start - best) < 2:
            assert rounds <= 3  # one step leads there, and a second may mend its rounding
        for other in (found - 1e-6, found + 1e-6):
            assert of.losses(found) <= of.losses(other) * (1 + 1e-15)


def test_the_slopes_of_the_hinge_are_sums_over_the_examples() -> None:
    of = Intercepts("hinge_loss")
    kinks = of.state.kinks[0].tolist()
    places = sorted([-50.0, 50.0, 0.1, -2.0, *kinks[::7], *np.nextafter(kinks[::5], 9).tolist()])
    found, bends = rows.intercept_derivatives(of.objective, of.state, places)
    for bias, slope in zip(places, found.tolist(), strict=True):
        y, weight = of.state.examples["y"], of.state.examples["weight"]
        short = np.where(y > 0, bias < y - of.state.wx, bias > y - of.state.wx)
        assert slope == pytest.approx(-(weight * y * short).sum(), abs=1e-12)
    assert not bends.any()


@each_loss
@pytest.mark.parametrize("curvature", [0.0, 0.5])
def test_visits_of_a_block_are_those_of_the_specification(loss: str, curvature: float) -> None:
    given = problem_of(loss, 11, n=40)
    plan = visits.shuffled(40, 1, 3, 1)[:25]
    l2, shrink, sigma, bias = given.l2, given.l1 / given.l2, 2.5, 0.2
    v = np.zeros(given.n_weights)
    visits.weights_of(*given.rows, given.examples, v, l2)
    visited, u = given.examples[plan], v.copy()
    ours = sdca_blocks.visit(
        *given.rows, plan, visited, u, loss, 1.0, l2, shrink, bias, curvature, sigma
    )
    a, expected = given.examples["a"].copy(), v.copy()
    b = sdca.visit(specified(given), plan, a, expected, bias, tau=curvature, sigma=sigma)
    # visits to the logistic loss are as exact as is worth their time
    near = 1e-2 if loss == "logistic_loss" else 1e-12
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(u, expected, rtol=near, atol=near * scale)
    np.testing.assert_allclose(visited["a"], a[plan], rtol=near, atol=near)
    assert ours[0] == pytest.approx(b, rel=max(near, 1e-9))
    d = u - v
    own = sdca_blocks.change(v, u, shrink, sigma)  # which leaves the change in u, counted once
    np.testing.assert_array_equal(u, d / sigma)
    sums = [own * sigma**2, *sdca_blocks.excesses(v, u, shrink)]
    expected = [sdca.excess(v, d, shrink), *(sdca.excess(v, u, s) for s in (shrink, 0.0))]
    np.testing.assert_allclose(sums, expected, rtol=1e-9, atol=1e-15)
    for joint, own, bound in ((2.0, 1.0, 3.0), (5.0, 1.0, 6.0), (0.0, 0.0, 0.0), (1.0, 2.0, 1.0)):
        kept = sdca_blocks.kept(joint, own, bound, 4, 1.5)
        assert kept == sdca.kept(joint, own, bound, 4, 1.5)


def test_a_block_does_not_change() -> None:
    """Repeated requests have the same answer."""
    given = problem_of("squared_loss", 1, n=40)
    problem = Problem(given.rows, given.n_weights, record_named("squared_loss"), 0.0, 2.0, True, 1)
    block = blocks.BlockState(0, problem, 7, (RowState.initial(given.examples),))
    order = blocks.VisitRequest(np.ones(given.n_weights), 0.1, 0.2, 1.0, epoch=1, part=0)
    request = {0: blocks.Decision((0.5,), (False,))}, {0: order}
    for _ in range(3):
        first, again = (blocks.after_decisions(blocks.visit)(block, request) for _ in range(2))
        assert first[1][0][1].tobytes() == again[1][0][1].tobytes()
        assert first[1][0][0].dense().tobytes() == again[1][0][0].dense().tobytes()
        assert first[0].states[0].a.tobytes() == again[0].states[0].a.tobytes()
        assert (first[0].states[0].a != block.states[0].a).any()
        block = first[0]


# ---- fits


def data(loss: str) -> tuple[Any, np.ndarray, np.ndarray]:
    random = np.random.default_rng(2)
    X = random.standard_normal((200, 9)) * (random.uniform(size=(200, 9)) < 0.5)
    z = X @ random.standard_normal(9) + 0.5 + random.standard_normal(200)
    y = {"squared": z, "poisson": random.poisson(np.exp(z / 4)).astype(float)}.get(loss, np.sign(z))
    return sparse.csr_matrix(X), y, random.choice([0.5, 1.0, 2.0], 200)


def fit(loss: str, **options: Any) -> Any:
    kind = SDCARegressor if loss in ("squared", "poisson") else SDCAClassifier
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return kind(loss, **{"max_iter": 5000, **options}).fit(*data(loss))


@pytest.mark.parametrize("rows", [[200], [60, 1, 79, 60], [20] * 10])
@pytest.mark.parametrize("intercept", [False, True])
@each_loss
def test_blocks_find_the_same(loss: str, intercept: bool, rows: list[int]) -> None:
    """A certificate, checked by the definitions elsewhere, of the one minimum."""
    tfopt.threads.set_num_threads(1)  # blocks of 20 rows are visited before others hear of them
    options = {"l1": 0.5, "fit_intercept": intercept, "tol": 1e-5}
    loss = loss.removesuffix("_loss")
    ours, theirs = (fit(loss, num_loss_partitions=p, **options) for p in (rows, None))
    assert np.ravel(ours.dual_gap_)[0] <= 1e-5 * abs(np.ravel(ours.objective_)[0])
    assert ours.objective_ == pytest.approx(theirs.objective_, rel=2e-5)
    _, y, weight = data(loss)
    a = np.ravel(ours.dual_coef_)
    assert a.shape == y.shape
    if intercept:
        assert abs(weight @ a) <= 1e-12 * (weight @ np.abs(a))


@each_loss
def test_threads_change_no_bits(loss: str) -> None:
    fits = []
    for threads in (1, 2, 3):
        tfopt.threads.set_num_threads(threads)
        model = fit(loss.removesuffix("_loss"), num_loss_partitions=[20] * 10, max_iter=5)
        fits.append(model.coef_.tobytes() + model.dual_coef_.tobytes())
    assert len({*fits}) == 1


def test_tfopt_does_not_import_dask() -> None:
    code = (
        "import sys; import tfopt, tfopt.linear_model, tfopt.dask;"
        "assert 'dask' not in sys.modules;"
        "sys.modules['dask'] = sys.modules['distributed'] = None; tfopt.dask.SDCAClassifier"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "tfopt.dask needs" in done.stderr and "pip install dask" in done.stderr
