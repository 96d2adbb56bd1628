"""Steps of some rows and their effect on the others: TensorFlow's, none, or deferred."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.cases import TRIED, assert_same_bits
from hypothesis import given
from hypothesis import strategies as st

import tfopt
from tfopt.rules import RULES

MAKERS: dict[str, dict[str, Any]] = {
    "Adam": {},
    "Adam-amsgrad": {"amsgrad": True},
    "Adam-slow": {"beta_1": 0.99, "beta_2": 0.9},  # whose steps grow while their means decay
    "Adamax": {},
    "Nadam": {},
    "RMSprop": {},
    "RMSprop-centered": {"centered": True},
    "RMSprop-both": {"momentum": 0.5, "centered": True},
    "SGD": {},
    "SGD-momentum": {"momentum": 0.9},
    "SGD-nesterov": {"momentum": 0.5, "nesterov": True},
    "Adadelta": {},
    "Adagrad": {},
    "Yogi": {},
    "RAdam": {},
    "RAdam-fast": {"beta_2": 0.9},
    "ADOPT": {},
}
each = pytest.mark.parametrize("which", MAKERS)
ROWS = 9
#: Of the largest magnitude: what the rounding of a step done at once and of many steps differs by.
TOLERANCE = {"float64": 1e-12, "float32": 1e-6}


def make(which: str, **more: Any) -> Any:
    return getattr(tfopt.optimizers, which.split("-")[0])(**{**MAKERS[which], **more})


def drawn_slices(random: np.random.Generator, columns: int, dtype: Any) -> tuple[Any, Any]:
    n = int(random.integers(4))
    ids = random.integers(ROWS, size=n, dtype=random.choice(["i4", "i8"]))
    return random.standard_normal((n, columns)).astype(dtype), ids


def as_dense(values: np.ndarray, ids: np.ndarray) -> np.ndarray:
    dense = np.zeros((ROWS, values.shape[1]), values.dtype)
    np.add.at(dense, ids, values)
    return dense


def assert_near(ours: Any, dense: Any, what: str, whole: Any = None, decays: int = 0) -> None:
    """Compare to what rounding makes out of the whole, of which `dense` may be a part.

    Dense steps round each of `decays` products, and a row that catches up their power once.
    """
    whole, info = dense if whole is None else whole, np.finfo(dense.dtype)
    near = (TOLERANCE[dense.dtype.name] + decays * float(info.eps) / 2) * np.abs(whole).max(
        initial=info.tiny
    )
    np.testing.assert_allclose(ours, dense, rtol=0, atol=near, err_msg=what)


# ---- catching up


@pytest.mark.counted
@each
@given(data=st.data())
def test_rows_that_catch_up_end_where_dense_steps_do(which: str, data: st.DataObject) -> None:
    """Whatever the learning rate does meanwhile; also of a variable that is not contiguous."""
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    dtype = data.draw(st.sampled_from(["float32", "float64"]))
    columns = data.draw(st.sampled_from([1, 3]))
    schedules = tfopt.optimizers.schedules
    rate: Any = data.draw(
        st.sampled_from(
            [
                0.1,
                lambda step: 0.0 if step % 50 < 40 else 0.1,
                schedules.LinearWarmup(0.1, 60, 0.0),
                schedules.CosineDecayRestarts(0.1, 20),
            ]
        )
    )
    if which == "Nadam" and isinstance(rate, schedules.LearningRateSchedule):
        rate = lambda: 0.05  # noqa: E731 - it takes no schedule
    steps = data.draw(st.sampled_from([10, 150]))
    late, dense = (make(which, learning_rate=rate, sparse=s) for s in ("catch_up", "lazy"))
    first = random.standard_normal((ROWS, columns)).astype(dtype)
    w = np.empty((columns, ROWS), dtype).T if data.draw(st.booleans()) else np.empty_like(first)
    w[...] = first
    u = first.copy()
    for step in range(steps):
        if step == 7 and data.draw(st.booleans()):
            for optimizer in (late, dense):
                optimizer.learning_rate = 0.05
                if hasattr(optimizer, "beta_1"):
                    optimizer.beta_1 = 0.5
        values, ids = drawn_slices(random, columns, dtype)
        late.apply_gradients([(tfopt.IndexedSlices(values, ids), w)])
        dense.apply_gradients([(as_dense(values, ids), u)])
        if step == steps // 2:
            late.catch_up(w, ids)
            assert_near(w[ids], u[ids], "rows that have caught up", u)
    state = late.get_weights()  # which lets all rows catch up
    assert_near(w, u, "the variable")
    for ours, theirs in zip(state[1:], dense.get_weights()[1:], strict=True):
        assert_near(ours, theirs, "a slot", decays=steps)
    layout = "contiguous" if w.flags.c_contiguous else "strided"
    TRIED[f"{which} catching up", dtype, "ordinary", layout] += 1


def test_rows_of_more_than_one_axis_catch_up_in_any_order_of_memory() -> None:
    random = np.random.default_rng(0)
    start = random.standard_normal((3, 2, 4))
    variables = [np.asfortranarray(start), start.copy()]
    optimizers = [make("Adam", sparse="catch_up") for _ in variables]
    for row in (1, 2):
        slices = tfopt.IndexedSlices(random.standard_normal((1, 2, 4)), np.array([row]))
        for optimizer, variable in zip(optimizers, variables, strict=True):
            optimizer.apply_gradients([(slices, variable)])
    for optimizer in optimizers:
        optimizer.flush()
    assert_same_bits(*variables, "w")
    assert (variables[0][1:] != start[1:]).all()


@each
@pytest.mark.parametrize("remembered", [500, 1 << 16])
def test_a_long_absence(which: str, remembered: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends where dense steps end, also if all rows take theirs now and then."""
    monkeypatch.setattr("tfopt.optimizers.step.deferred_rows._MOST_STEPS", remembered)
    late, dense = (make(which, learning_rate=0.1, sparse=s) for s in ("catch_up", "lazy"))
    w = np.random.default_rng(1).standard_normal((ROWS, 2))
    u = w.copy()
    row = np.array([4])
    for step in range(1200):
        ids = np.arange(ROWS) if step < 3 else row
        values = np.full((len(ids), 2), 0.5 - step % 2)
        late.apply_gradients([(tfopt.IndexedSlices(values, ids), w)])
        dense.apply_gradients([(as_dense(values, ids), u)])
    late.flush()
    np.testing.assert_allclose(w, u, rtol=1e-9)


@pytest.mark.parametrize("apart", [1, 2])
def test_rows_catch_up_once(apart: int) -> None:
    opt, w = tfopt.optimizers.Adam(0.1, sparse="catch_up"), np.ones((3, 2 * apart))[:, ::apart]
    for row in (1, 2):
        opt.apply_gradients([(tfopt.IndexedSlices(np.ones((1, 2)), np.array([row])), w)])
    opt.catch_up(w, [1])
    before = w.copy()
    opt.catch_up(w, [1])
    opt.flush()
    assert_same_bits(w[1], before[1], "w")


def test_dense_steps_between_sparse_ones() -> None:
    late, dense = (tfopt.optimizers.Adam(0.1, sparse=s) for s in ("catch_up", "tensorflow"))
    random = np.random.default_rng(1)
    w, other = np.ones((ROWS, 2)), np.ones(3)
    u, another = w.copy(), other.copy()
    for step in range(12):
        values, ids = drawn_slices(random, 2, float)
        whole = as_dense(values, ids)
        own: Any = whole if step % 4 == 3 else tfopt.IndexedSlices(values, ids)
        late.apply_gradients([(own, w), (np.full(3, 0.5 * step), other)])
        dense.apply_gradients([(whole, u), (np.full(3, 0.5 * step), another)])
    late.flush()
    assert_near(w, u, "w")
    assert_near(other, another, "other")


def test_a_variable_that_comes_twice() -> None:
    w, random = np.ones((ROWS, 2)), np.random.default_rng(1)
    opt = tfopt.optimizers.Adamax(0.1, sparse="catch_up")
    for _ in range(3):
        pairs = [(tfopt.IndexedSlices(*drawn_slices(random, 2, float)), w) for _ in range(2)]
        opt.apply_gradients(pairs)
    opt.flush()
    assert np.isfinite(w).all() and (w != 1).any()


def test_clipped_gradients_catch_up_too() -> None:
    pair = [tfopt.optimizers.Adam(0.1, sparse=s, clipnorm=0.5) for s in ("catch_up", "lazy")]
    w, u = np.ones((ROWS, 2)), np.ones((ROWS, 2))
    for ids in ([1, 2], [2, 3], [1, 4]):
        values = np.ones((2, 2))
        pair[0].apply_gradients([(tfopt.IndexedSlices(values, np.array(ids)), w)])
        pair[1].apply_gradients([(as_dense(values, np.array(ids)), u)])
    pair[0].flush()
    assert_near(w, u, "w")


def test_momentum_switched_on_meanwhile() -> None:
    late, dense = (tfopt.optimizers.RMSprop(0.1, sparse=s) for s in ("catch_up", "lazy"))
    w, u = np.ones((ROWS, 2)), np.ones((ROWS, 2))
    for step in range(8):
        if step == 4:
            late.momentum = dense.momentum = 0.9
        ids = np.array([step % 3, 5])
        late.apply_gradients([(tfopt.IndexedSlices(np.ones((2, 2)), ids), w)])
        dense.apply_gradients([(as_dense(np.ones((2, 2)), ids), u)])
    late.flush()
    assert_near(w, u, "w")


def test_state_and_configuration() -> None:
    opt = tfopt.optimizers.Adam(0.1, sparse="catch_up")
    w = np.ones((ROWS, 2))
    for row in (1, 2, 3):
        opt.apply_gradients([(tfopt.IndexedSlices(np.ones((1, 2)), np.array([row])), w)])
    behind = w.copy()
    weights = opt.get_weights()
    assert (w != behind).any()
    copy = type(opt).from_config(opt.get_config())
    assert copy.sparse == "catch_up" and "sparse" not in tfopt.optimizers.Adam().get_config()
    opt.apply_gradients([(tfopt.IndexedSlices(np.ones((1, 2)), np.array([5])), w)])
    behind = w.copy()
    opt.set_weights(weights)
    opt.flush()  # what was owed has been forgotten with the state it was owed to
    assert_same_bits(w, behind, "w")


@pytest.mark.parametrize("which", ["Adam", "Nadam", "SGD-momentum"])
def test_a_user_s_methods_are_called_for_rows_that_catch_up(which: str) -> None:
    class Watched(type(make(which))):  # type: ignore[misc]
        def _resource_apply_sparse(self, *args: Any, **kwargs: Any) -> None:
            seen.append(args)
            super()._resource_apply_sparse(*args, **kwargs)

    seen: list[Any] = []
    results = []
    for cls in (Watched, type(make(which))):
        random = np.random.default_rng(1)
        w = np.ones((ROWS, 2))
        opt = cls(**MAKERS[which], sparse="catch_up")
        for step in range(9):
            values, ids = drawn_slices(random, 2, float)
            dense = as_dense(values, ids)
            opt.apply_gradients([(dense if step == 5 else tfopt.IndexedSlices(values, ids), w)])
        opt.flush()
        results.append(w)
    assert len(seen) == 8
    assert_same_bits(*results, which)


def test_the_result_does_not_depend_on_threads() -> None:
    before = tfopt.threads.get_num_threads()
    results = []
    for threads in (1, 3):
        tfopt.threads.set_num_threads(threads)
        random = np.random.default_rng(1)
        w = np.ones((3000, 50), np.float32)
        opt = tfopt.optimizers.Adam(0.1, sparse="catch_up")
        for _ in range(4):
            ids = random.integers(3000, size=2000)
            values = random.standard_normal((2000, 50)).astype(np.float32)
            opt.apply_gradients([(tfopt.IndexedSlices(values, ids), w)])
        results.append([*opt.get_weights(), w])
    tfopt.threads.set_num_threads(before)
    for one, three in zip(*results, strict=True):
        assert_same_bits(one, three, "threads")


# ---- laziness


@each
def test_lazy_steps_leave_other_rows_alone(which: str) -> None:
    opt = make(which, sparse="lazy", learning_rate=0.1)
    w = np.ones((ROWS, 2))
    opt.apply_gradients([(np.full((ROWS, 2), 0.5), w)])
    before = [w.copy(), *opt.get_weights()[1:]]
    for _ in range(3):
        opt.apply_gradients([(tfopt.IndexedSlices(np.ones((2, 2)), np.array([2, 2])), w)])
    others = np.arange(ROWS) != 2
    assert (w[2] != before[0][2]).all()
    for old, new in zip(before, [w, *opt.get_weights()[1:]], strict=True):
        if new.ndim:
            assert_same_bits(old[others], new[others], which)


@pytest.mark.parametrize("which", ["Adam", "Adam-amsgrad", "Nadam", "RMSprop"])
def test_lazy_steps_are_tensorflows_for_the_rows_they_name(which: str) -> None:
    w, u = np.ones((ROWS, 2)), np.ones((ROWS, 2))
    slices = tfopt.IndexedSlices(np.array([[1.0, 2], [3, 4], [-7, 2]]), np.array([5, 1, 5]))
    for _ in range(3):
        make(which, sparse="lazy").apply_gradients([(slices, w)])
        make(which).apply_gradients([(slices, u)])
    assert_same_bits(w[[1, 5]], u[[1, 5]], which)


# ---- refusals


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adamax", "Ftrl", "Nadam"])
def test_other_modes_are_refused(name: str) -> None:
    with pytest.raises(tfopt.InvalidArgumentError, match="sparse must be one of tensorflow, lazy"):
        getattr(tfopt.optimizers, name)(sparse="exact")


def test_ftrl_cannot_catch_up() -> None:
    """A step without a gradient recomputes the variable from its slots."""
    with pytest.raises(tfopt.InvalidArgumentError, match="lazy for Ftrl"):
        tfopt.optimizers.Ftrl(sparse="catch_up")


def test_variables_that_cannot_catch_up() -> None:
    opt = tfopt.optimizers.Adam(sparse="catch_up")
    half, other = np.ones((3, 2), np.float16), np.ones(2)
    slices = tfopt.IndexedSlices(np.ones((1, 2), np.float16), np.array([1]))
    with pytest.raises(tfopt.InvalidTypeError, match="float32 or float64"):
        opt.apply_gradients([(np.ones(2), other), (slices, half)])
    with pytest.raises(tfopt.InvalidArgumentError, match="at least 1 dimensional"):
        opt.apply_gradients([(np.ones(2), other), (slices, np.ones(()))])
    assert (half == 1).all() and (other == 1).all()
    assert len(opt.weights) == 1 and int(opt.iterations) == 0
    opt.apply_gradients([(np.ones((3, 2), np.float16), half)])  # a dense step owes nothing


def test_rows_that_are_none() -> None:
    opt, w = tfopt.optimizers.Adam(sparse="catch_up"), np.ones((3, 2))
    for row in (1, 2):
        opt.apply_gradients([(tfopt.IndexedSlices(np.ones((1, 2)), np.array([row])), w)])
    before = w.copy()
    for rows in ([3], [-1], [0, 7]):
        with pytest.raises(tfopt.IndexOutOfRangeError, match=r"\[0, 3\)"):
            opt.catch_up(w, rows)
    with pytest.raises(tfopt.InvalidArgumentError, match="integers"):
        opt.catch_up(w, [0.5])
    assert_same_bits(w, before, "w")
    opt.catch_up(w, [])
    opt.catch_up(np.ones(2), [0])  # a variable it has never seen owes nothing


# ---- the table


@pytest.mark.parametrize("rule", [r for r in RULES if r.decays], ids=lambda r: r.name)
def test_decays_are_what_a_step_without_a_gradient_does(rule: Any) -> None:
    random = np.random.default_rng(2)
    operands = {name: random.uniform(1, 2, 5) for name in rule.operands}
    before = {name: array.copy() for name, array in operands.items()}
    hypers = {name: float(random.uniform(0.3, 0.7)) for name in rule.hypers}
    op = getattr(tfopt.training_ops, f"apply_{rule.name}")
    op(*list(operands.values())[:-1], np.zeros(5), **hypers)
    for slot in rule.slots:
        factor = hypers[rule.decays[slot]] if slot in rule.decays else 1
        np.testing.assert_allclose(operands[slot], before[slot] * factor, rtol=1e-14)
