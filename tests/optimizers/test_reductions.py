"""Optimizers whose steps of an element depend on others: of its row, or of its variable."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.cases import RULES, WITH_ROWS, arrays_for, ordinary_hypers
from common.optimizer_makers import BY_SUMS

import tfopt
from tfopt import IndexedSlices, optimizers
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.kernels import kernels
from tfopt.kernels.update.checks import dense_call
from tfopt.kernels.update.clip import scale_call
from tfopt.kernels.update.pipeline import Turns, run_together
from tfopt.kernels.update.sparse_checks import sparse_call
from tfopt.optimizers.base.rule_optimizer import RuleOptimizer

REDUCING = [rule for rule in RULES if rule.reduction]
each_optimizer = pytest.mark.parametrize("name", BY_SUMS)


def made(name: str, **arguments: Any) -> Any:
    return getattr(optimizers, name)(**{"learning_rate": 0.1} | arguments)


def test_optimizers_say_what_their_rules_do() -> None:
    found = set()
    for name in optimizers.__all__:
        cls = getattr(optimizers, name)
        if not (isinstance(cls, type) and issubclass(cls, RuleOptimizer)):
            continue
        optimizer = cls()
        rule = kernels[optimizer._update(1, 1.0).rule].rule
        names = dict(zip(rule.slots, optimizer._rule_slots(), strict=True))
        assert tuple(names[slot] for slot in rule.row_slots) == cls._row_slots, name
        assert cls._by_elements is (rule.reduction is None), name
        if rule.reduction:
            found.add(name)
    assert found == {*BY_SUMS}


@each_optimizer
@pytest.mark.parametrize("clipping", [{}, {"clipvalue": 0.5}, {"global_clipnorm": 0.5}])
def test_observed_steps_are_the_same_steps(name: str, clipping: dict[str, float]) -> None:
    random = np.random.default_rng(0)
    first = [random.standard_normal((40, 7)), random.standard_normal(9)]
    plain, watched = made(name, **clipping), made(name, **clipping)
    watched.observe = True
    results = [[w.copy() for w in first], [w.copy() for w in first]]
    for _ in range(3):
        grads = [random.standard_normal(w.shape) for w in first]
        before = [w.copy() for w in results[1]]
        given = [g.tobytes() for g in grads]
        for optimizer, weights in zip((plain, watched), results, strict=True):
            optimizer.apply_gradients(list(zip(grads, weights, strict=True)))
        assert [g.tobytes() for g in grads] == given
        assert all((a == b).all() for a, b in zip(*results, strict=True))
        bound = clipping.get("clipvalue", np.inf)
        seen = np.concatenate([np.clip(g, -bound, bound).ravel() for g in grads])
        moved = np.concatenate([(a - b).ravel() for a, b in zip(results[1], before, strict=True)])
        report = watched.last_step
        assert report.gradient_norm == pytest.approx(np.linalg.norm(seen))
        assert report.update_norm == pytest.approx(np.linalg.norm(moved))
        assert report.clipped is bool(clipping) and report.nonfinite == 0


@each_optimizer
@pytest.mark.parametrize("threads", [1, 3])
def test_variables_together_are_variables_alone(name: str, threads: int) -> None:
    """Also of several spans of sums, which threads share."""
    random = np.random.default_rng(0)
    sizes = (1, 70_000, 3, 65_536, 140_000, 5)
    start = [random.standard_normal((size, 1)) for size in sizes]
    grads = [random.standard_normal(w.shape) for w in start]
    together, alone = ([w.copy() for w in start] for _ in range(2))
    tfopt.threads.set_num_threads(threads)
    one, others = made(name), [made(name) for _ in start]
    for _ in range(2):
        one.apply_gradients(list(zip(grads, together, strict=True)))
        for other, pair in zip(others, zip(grads, alone, strict=True), strict=True):
            other.apply_gradients([pair])
    for a, b, w in zip(together, alone, start, strict=True):
        assert a.tobytes() == b.tobytes() != w.tobytes()


@each_optimizer
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("strided", [False, True])
def test_a_clamped_step_is_that_of_clamped_gradients(name: str, dtype: str, strided: bool) -> None:
    """And leaves the gradient as it was."""
    random = np.random.default_rng(0)
    step = 2 if strided else 1
    grad = random.standard_normal((70, 12 * step)).astype(dtype)[:, ::step]
    given, clamped = grad.copy(), np.clip(grad, -0.5, 0.5)
    ours, theirs = (np.ones((70, 12 * step), dtype)[:, ::step] for _ in range(2))
    one, other = (made(name, learning_rate=4.0, **options) for options in ({"clipvalue": 0.5}, {}))
    for _ in range(2):
        one.apply_gradients([(grad, ours)])
        other.apply_gradients([(clamped, theirs)])
        assert ours.tobytes() == theirs.tobytes()
        assert grad.tobytes() == given.tobytes()
    assert (ours != 1).any()


@pytest.mark.parametrize("places", [[0], [2500], [0, 2500, 4999], [1, 2, 3]])
@pytest.mark.parametrize("size", [1e160, 1e-170])
def test_observed_norms_whose_squares_no_double_holds(size: float, places: list[int]) -> None:
    """In any of the pieces in which a step observes its elements."""
    grad = np.full(5000, 1e-3 if size > 1 else 0.0)
    grad[places] = size * np.arange(1, len(places) + 1)
    w = np.zeros(5000)
    optimizer = optimizers.SGD(0.5)
    optimizer.observe = True
    optimizer.apply_gradients([(grad, w)])
    expected = size * np.linalg.norm(grad / size)
    assert optimizer.last_step.gradient_norm == pytest.approx(expected, rel=1e-12)
    assert optimizer.last_step.update_norm == pytest.approx(expected / 2, rel=1e-12)


@each_optimizer
def test_averages_follow_steps(name: str) -> None:
    random = np.random.default_rng(0)
    w, v = np.ones((40, 7)), np.ones((40, 7))
    averaged = optimizers.WeightAverage(made(name), 0.5)
    plain, mean = made(name), v.copy()
    for k in range(4):
        grad = random.standard_normal(w.shape)
        averaged.apply_gradients([(grad, w)])
        plain.apply_gradients([(grad, v)])
        mean = v.copy() if k == 0 else 0.5 * mean + 0.5 * v
        assert (w == v).all()
    np.testing.assert_allclose(averaged.get_slot(w, "average").numpy(), mean, rtol=1e-14)


def test_nothing_overlaps_a_variable_without_elements() -> None:
    memory = np.ones(9)
    var = np.lib.stride_tricks.as_strided(memory[2:], (5, 0))
    args = {"lr": 0.1, "epsilon": 1e-8, "l2": 0.0}
    tfopt.training_ops.apply_rowwise_adagrad(var, memory[:5], np.ones((5, 0)), **args)


@pytest.mark.parametrize("name", ["LAMB", "LARS"])
def test_a_sparse_gradient_is_a_dense_one(name: str) -> None:
    one, other = np.ones((6, 3)), np.ones((6, 3))
    rows = IndexedSlices(np.ones((3, 3)), np.array([4, 1, 4]))
    dense = np.zeros((6, 3))
    dense[1], dense[4] = 1, 2
    optimizer, twin = made(name), made(name)
    for _ in range(2):
        optimizer.apply_gradients([(rows, one)])
        twin.apply_gradients([(dense, other)])
    assert (one == other).all() and (one[1] < 1).all()
    with pytest.raises(InvalidArgumentError, match="sparse must be one of tensorflow for"):
        made(name, sparse="lazy")


@pytest.mark.parametrize("name", ["LAMB", "LARS"])
def test_excluded_variables_neither_decay_nor_have_a_rate_of_their_own(name: str) -> None:
    """Twice the weights move as far: by the rate as it is."""
    moved = []
    for scale in (1.0, 2.0):
        w = tfopt.Variable(np.full(5, scale), "bias")
        opt = made(name, weight_decay=0.5)
        opt.exclude_from_weight_decay(var_names=["bias"])
        opt.apply_gradients([(np.full(5, 0.25), w)])
        moved.append(scale - w.numpy()[0])
    assert moved[0] == pytest.approx(moved[1], rel=1e-12) and moved[0] > 0


@pytest.mark.parametrize("name", ["LAMB", "LARS"])
def test_zeros_take_the_plain_step(name: str) -> None:
    w = np.zeros(5)
    made(name).apply_gradients([(np.full(5, 0.25), w)])
    assert np.isfinite(w).all() and (w < 0).all()
    v = np.ones(5)
    made(name).apply_gradients([(np.zeros(5), v)])
    assert (v == 1).all()


def test_a_vector_is_one_row_to_adam_mini() -> None:
    w, b = np.ones((1, 5)), np.ones(5)
    grad = np.arange(5.0)
    one, other = made("AdamMini"), made("AdamMini")
    one.apply_gradients([(grad[None], w)])
    other.apply_gradients([(grad, b)])
    assert (w[0] == b).all()
    assert other.get_slot(b, "v").shape == (1,) and other.get_slot(b, "m").shape == (5,)


def test_a_call_waits_for_what_another_does_with_another_variable() -> None:
    def pair(first: float, second: float) -> list[np.ndarray]:
        return [np.full(100_000, number, np.float32) for number in (first, second)]  # many turns

    x, y, z, out = pair(0, 0), pair(3, 4), pair(0, 0), pair(0, 0)
    calls = [scale_call(z, pair(5, 6), 2.0, 1.0, True), scale_call(x, pair(1, 2), 2.0, 1.0, True)]
    run_together([*calls, scale_call(out, [x[1], y[1]], 1.0, 1.0, True)])
    assert [set(each) for each in (*out, *x, *z)] == [{4}, {4}, {2}, {4}, {10}, {12}]


@pytest.mark.parametrize("rule", REDUCING, ids=lambda rule: rule.name)
def test_calls_of_whole_rows_or_variables_cannot_be_watched(rule: Any) -> None:
    hypers = tuple(ordinary_hypers(rule).values())
    call = dense_call(kernels[rule.name], tuple(arrays_for(rule, (6, 3), "f4")), hypers, 0, 1.0)
    with pytest.raises(InvalidTypeError, match="element by element"):
        Turns([call], 0)


@pytest.mark.parametrize(
    "rule", [r for r in RULES if r not in WITH_ROWS], ids=lambda rule: rule.name
)
def test_rows_are_refused_by_name(rule: Any) -> None:
    hypers = tuple(ordinary_hypers(rule).values())
    arrays = tuple(arrays_for(rule, (6, 3), "f4"))
    with pytest.raises(InvalidArgumentError, match=f"^{rule.name} needs the gradient of all"):
        sparse_call(kernels[rule.name], arrays, np.arange(6), hypers, 0, 1.0)
    with pytest.raises(TypeError, match="indices"):
        getattr(tfopt.training_ops, f"apply_{rule.name}")(
            *arrays, **ordinary_hypers(rule), indices=np.arange(6)
        )
