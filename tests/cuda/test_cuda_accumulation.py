"""Gradients of several batches on a GPU: sums and steps are the host's, bit for bit."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits
from common.clip_cases import array_of
from devices import DEVICE
from test_cuda_averages import same, variables
from test_cuda_bound_steps import drawn, there
from test_cuda_optimizers import each_dtype

import tfopt
from tfopt import IndexedSlices, Variable
from tfopt.cuda import backend
from tfopt.cuda.library import LibraryError
from tfopt.optimizers import (
    LAMB,
    SGD,
    Adafactor,
    Adam,
    AdamW,
    GradientAccumulation,
    LossScaleOptimizer,
    Mirror,
    ParameterGroups,
    WeightAverage,
)

pytestmark = pytest.mark.usefixtures("gradual_underflow")


def summed(inner: Any, steps: int = 3, reduction: str = "mean") -> Any:
    return GradientAccumulation(inner, steps, reduction)


MAKERS: dict[str, Callable[[], Any]] = {
    "Adam": lambda: summed(Adam(0.1)),
    "sums": lambda: summed(AdamW(0.1, weight_decay=0.1), reduction="sum"),
    "one batch": lambda: summed(Adam(0.1), 1),
    "clipvalue": lambda: summed(Adam(0.1, clipvalue=0.3)),
    "clipnorm": lambda: summed(Adam(0.1, clipnorm=0.3)),
    "global_clipnorm": lambda: summed(Adam(0.1, clipvalue=0.5, global_clipnorm=0.3)),
    "groups": lambda: summed(ParameterGroups(Adam(0.1), [("b", SGD(0.5)), ("d", Adam(1.0))])),
    "in groups": lambda: ParameterGroups(summed(SGD(0.1)), [("b", SGD(0.5))]),
    "averaged": lambda: WeightAverage(summed(Adam(0.1)), 0.9),
    "around an average": lambda: summed(WeightAverage(Adam(0.1), 0.9, overwrite_frequency=2)),
    "around a mirror": lambda: summed(Mirror(Adam(0.1))),
    "in a mirror": lambda: Mirror(summed(Adam(0.1))),
    "scaled": lambda: LossScaleOptimizer(summed(Adam(0.1)), 4.0, 3),
    "around a scale": lambda: summed(LossScaleOptimizer(Adam(0.1), 4.0, 3)),
    "twice": lambda: summed(summed(Adam(0.1), 2), 2, "sum"),
    "LAMB": lambda: summed(LAMB(0.1)),
    "Adafactor": lambda: summed(Adafactor(0.1, global_clipnorm=0.3)),
    "transformed": lambda: summed(Adam(0.1, gradient_transformers=[lambda pairs: pairs])),
}


def compared(host: Any, device: Any, here: list[Any], far: list[Any], batches: Any) -> None:
    """Take batches on both; compare variables, states and sums after each."""
    for seed in batches:
        grads = drawn(here[0].dtype.name, seed)
        host.apply_gradients(list(zip(grads, here, strict=True)))
        device.apply_gradients(list(zip(map(there, grads), far, strict=True)))
        same(here, far, f"after batch {seed}")
        same_states(host, device, f"state after batch {seed}")


def same_states(host: Any, device: Any, when: str) -> None:
    """Compare states, but not sums after a step, which are not read again."""
    unread = {
        id(slots["gradient"])
        for each in device._tree()
        if isinstance(each, GradientAccumulation) and int(each.pending) == 0
        for _, slots in each._store.slots
        if "gradient" in slots
    }
    each = zip(device.weights, device.get_weights(), host.get_weights(), strict=True)
    for weight, ours, theirs in each:
        if id(weight) not in unread:
            assert_same_bits(ours, theirs, f"{weight.name}, {when}")


@each_dtype
@pytest.mark.parametrize("which", MAKERS)
def test_the_hosts_steps(which: str, dtype: str) -> None:
    compared(MAKERS[which](), MAKERS[which](), *variables(dtype), range(1, 8))


@pytest.mark.parametrize("which", ["Adam", "clipnorm", "averaged", "scaled"])
def test_bound_anew_each_time(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFOPT_REPEAT", "0")
    compared(MAKERS[which](), MAKERS[which](), *variables("float32"), range(1, 8))


def test_batches_are_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[int] = []
    check = backend.checked_updates
    monkeypatch.setattr(backend, "checked_updates", lambda *a: checks.append(0) or check(*a))
    compared(MAKERS["Adam"](), MAKERS["Adam"](), *variables("float32"), range(1, 13))
    # of the gradients, of their addition and of the step, until that has made its slots; and again
    assert len(checks) == 6


@pytest.mark.parametrize("which", ["Adam", "clipnorm", "sums"])
def test_numbers_that_are_not_finite(which: str) -> None:
    """The first batch is assigned to the sum, whatever that was."""
    host, device = MAKERS[which](), MAKERS[which]()
    here, far = Variable(np.zeros(4, np.float32)), Variable(there(np.zeros(4, np.float32)))
    for k in range(9):
        grad = np.array([1, np.inf, -0.0, np.nan] if k == 2 else [0, k, -0.0, 1e-42], np.float32)
        host.apply_gradients([(grad, here)])
        device.apply_gradients([(there(grad), far)])
        same([here], [far], f"after batch {k}")
    grad = np.ones(4, np.float32)
    host.apply_gradients([(grad, here)])
    device.apply_gradients([(there(grad), far)])
    same_states(host, device, "sum")


@pytest.mark.parametrize("which", ["Adam", "clipnorm", "scaled"])
def test_gradients_of_fewer_bits_and_of_several_dtypes(which: str) -> None:
    host, device = MAKERS[which](), MAKERS[which]()
    here, far = variables("float32")
    for seed in range(1, 9):
        own = drawn("float32", seed)
        dtypes = ["float32", "float16", "bfloat16", "float16", "bfloat16"]
        if seed > 4:
            dtypes.reverse()
        grads = [array_of(g, dtype) for g, dtype in zip(own, dtypes, strict=True)]
        host.apply_gradients(list(zip(grads, here, strict=True)))
        device.apply_gradients(list(zip(map(there, grads), far, strict=True)))
        same(here, far, f"after batch {seed}")


def test_large_sums_of_float16() -> None:
    host, device = (LossScaleOptimizer(summed(SGD(1.0)), 2.0**15) for _ in range(2))
    for scale in (2.0**15, 60000.0, 1e-7):
        here = Variable(np.ones(3, np.float16))
        far = Variable(there(np.ones(3, np.float16)))
        for k in range(3):
            grad = (np.array([1, -0.3, k / 2]) * scale).astype(np.float16)
            host.apply_gradients([(grad, here)])
            device.apply_gradients([(there(grad), far)])
        same([here], [far], str(scale))


def test_only_sums_of_float16_come_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    brought: list[Any] = []
    bring = backend.to_host
    monkeypatch.setattr(backend, "to_host", lambda array: brought.append(array) or bring(array))
    for dtype in ("float32", "float64", "bfloat16", "float16"):
        opt, var = summed(SGD(0.5), 2), there(array_of(np.ones(3), dtype))
        for _ in range(2):
            opt.apply_gradients([(there(array_of(np.ones(3), dtype)), var)])
        assert len(brought) == (dtype == "float16")


# ---- rows


def batch(kind: str, seed: int, dtype: str, ids: str = "int64") -> Any:
    random = np.random.default_rng(seed)
    values = random.standard_normal((5, 3))
    if kind == "dense":
        return array_of(values, dtype)
    indices = np.array([3, 1, 3], ids) if seed % 2 else np.array([0, 3], ids)
    return IndexedSlices(array_of(values[: len(indices)], dtype), indices)


def moved(grad: Any) -> Any:
    if isinstance(grad, IndexedSlices):
        return IndexedSlices(there(grad.values), there(grad.indices))
    return there(grad)


ORDERS = {
    "rows": ["rows"] * 7,
    "rows first": ["rows", "dense", "rows", "rows", "rows", "dense"],
    "dense first": ["dense", "rows", "rows", "dense", "dense", "rows"],
}


@each_dtype
@pytest.mark.parametrize("clip", [{}, {"clipnorm": 0.3}], ids=str)
@pytest.mark.parametrize("order", ORDERS)
def test_rows(order: str, clip: dict[str, float], dtype: str) -> None:
    table = array_of(np.ones((5, 3)), dtype)
    host, device = summed(Adam(0.1, **clip)), summed(Adam(0.1, **clip))
    here = [Variable(table.copy()), Variable(table.copy())]
    far = [Variable(there(table)), Variable(there(table))]
    for seed, kind in enumerate(ORDERS[order]):
        grads = [batch(kind, seed, dtype, "int32"), batch("dense", seed + 50, dtype)]
        host.apply_gradients(list(zip(grads, here, strict=True)))
        device.apply_gradients(list(zip(map(moved, grads), far, strict=True)))
        same(here, far, f"after batch {seed}")
        same_states(host, device, f"state after batch {seed}")


@pytest.mark.parametrize("kinds", [["rows", "rows"], ["dense", "dense"]])
def test_states_go_on(kinds: list[str]) -> None:
    table = np.ones((5, 3), np.float32)
    here, far = [Variable(table.copy())], [Variable(there(table))]
    host, first = summed(Adam(0.1)), summed(Adam(0.1))
    for seed, kind in enumerate(kinds):
        grad = batch(kind, seed, "float32")
        host.apply_gradients([(grad, here[0])])
        first.apply_gradients([(moved(grad), far[0])])
    state = first.state_dict(far)
    assert all(
        isinstance(array, np.ndarray)
        for rows in state["parts"].get("rows", {}).values()
        for array in rows.values()
    )
    second = summed(Adam(0.1))
    second.load_state_dict(state, far)
    for seed in range(2, 7):
        grad = batch(kinds[0], seed, "float32")
        host.apply_gradients([(grad, here[0])])
        second.apply_gradients([(moved(grad), far[0])])
        same(here, far, f"after batch {seed}")


def test_a_state_with_rows_that_do_not_fit() -> None:
    far = [Variable(there(np.ones((5, 3), np.float32)))]
    opt = summed(Adam(0.1))
    opt.apply_gradients([(moved(batch("rows", 1, "float32")), far[0])])
    state = copy.deepcopy(opt.state_dict(far))
    rows = state["parts"]["rows"]["0"]
    rows["indices"][1] = 5
    with pytest.raises(tfopt.InvalidArgumentError, match="the accumulated rows of 0 are invalid"):
        summed(Adam(0.1)).load_state_dict(state, far)


@pytest.mark.skipif(DEVICE.name != "host", reason="whether they can be copied is their library's")
@pytest.mark.parametrize("how", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_copies(how: Any) -> None:
    here, far = variables("float32")
    host, first = MAKERS["Adam"](), MAKERS["Adam"]()
    compared(host, first, here, far, range(1, 3))
    second, others = how((first, far))
    compared(host, second, here, others, range(3, 8))


def test_variables_on_both() -> None:
    opt, here, far = summed(SGD(0.5), 2), np.zeros(3), there(np.zeros(3))
    for _ in range(4):
        opt.apply_gradients([(np.ones(3), here), (there(np.ones(3)), far)])
    assert here.tolist() == [-1, -1, -1]
    assert_same_bits(DEVICE.back(far), here, "both")


def test_constraints() -> None:
    bound = Variable(there(np.ones(2)), constraint=lambda _: there(np.full(2, 0.25)))
    opt = summed(SGD(0.5), 2)
    for k in range(4):
        opt.apply_gradients([(there(np.ones(2)), bound)])
        assert DEVICE.back(bound.value()).tolist() == ([0.25, 0.25] if k else [1, 1])


# ---- refusals and failures

WRONG: dict[str, Callable[[], Any]] = {
    "another shape": lambda: there(np.ones(4, np.float32)),
    "a wider dtype": lambda: there(np.ones(3)),
    "on the host": lambda: np.ones(3, np.float32),
    "not contiguous": lambda: DEVICE.part(there(np.ones(6, np.float32)), np.s_[::2]),
}


@pytest.mark.parametrize("taken", [0, 1, 2, 4])
@pytest.mark.parametrize("which", WRONG)
def test_what_does_not_fit_changes_nothing(which: str, taken: int) -> None:
    opt, var = summed(Adam(0.1)), there(np.zeros(3, np.float32))
    host, here = summed(Adam(0.1)), np.zeros(3, np.float32)
    for _ in range(taken):
        opt.apply_gradients([(there(np.ones(3, np.float32)), var)])
        host.apply_gradients([(np.ones(3, np.float32), here)])
    before, state = DEVICE.back(var), opt.get_weights()
    with pytest.raises((ValueError, TypeError)):
        opt.apply_gradients([(WRONG[which](), var)])
    assert_same_bits(DEVICE.back(var), before, "var")
    for ours, theirs in zip(opt.get_weights(), state, strict=True):
        assert_same_bits(ours, theirs, "state")
    for _ in range(4):
        opt.apply_gradients([(there(np.ones(3, np.float32)), var)])
        host.apply_gradients([(np.ones(3, np.float32), here)])
    assert_same_bits(DEVICE.back(var), here, "afterwards")


def test_indices_of_several_dtypes() -> None:
    opt, var = summed(SGD(0.5)), there(np.ones((5, 3)))
    opt.apply_gradients([(moved(batch("rows", 1, "float64", "int32")), var)])
    with pytest.raises(tfopt.InvalidTypeError, match=r"on a GPU the indices .* int32 and int64"):
        opt.apply_gradients([(moved(batch("rows", 1, "float64", "int64")), var)])
    assert int(opt.pending) == 1


def test_an_index_out_of_range() -> None:
    opt, var = summed(SGD(0.5)), there(np.ones((5, 3)))
    rows = IndexedSlices(there(np.ones((1, 3))), there(np.array([5])))
    with pytest.raises(tfopt.IndexOutOfRangeError):
        opt.apply_gradients([(rows, var)])
    assert int(opt.pending) == 0


@pytest.mark.skipif(not DEVICE.on_host, reason="a GPU cannot be told to fail")
@pytest.mark.parametrize("what", ["launch", "take"])
@pytest.mark.parametrize("which", ["Adam", "clipnorm", "global_clipnorm", "averaged", "scaled"])
def test_failures(which: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has changed, not even the sums, when the launch or its memory is refused."""
    here, far = variables("float32")
    host, device = MAKERS[which](), MAKERS[which]()
    for seed in range(1, 8):
        state = device.get_weights()
        clips = "clip" in which and seed % 3 == 0
        if what == "launch" or which == "scaled" or clips:
            with monkeypatch.context() as failing:
                failing.setenv("TFOPT_HOST_FAILS", what)
                pairs = list(zip(map(there, drawn("float32", 9)), far, strict=True))
                with pytest.raises(LibraryError):
                    device.apply_gradients(pairs)
        same(here, far, "after a failure")
        now = device.get_weights()
        for ours, theirs in zip(now[: len(state)], state, strict=False):
            assert_same_bits(ours, theirs, "state")
        compared(host, device, here, far, [seed])
