"""Steps of rows on a GPU, bound once: later ones ask only for the gradient and its indices."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits
from common.clip_cases import array_of
from common.optimizer_makers import MAKERS, make
from devices import DEVICE, HostArray
from test_cuda_bound_steps import LIMITS, Checks, there
from test_cuda_optimizers import each_dtype

import tfopt
from tfopt import IndexedSlices
from tfopt.optimizers import SGD, Adagrad, Adam, AdamW, Optimizer

pytestmark = pytest.mark.usefixtures("gradual_underflow")

MODES = [(which, m) for which in MAKERS for m in make(which)._modes() if m != "catch_up"]
#: Whose rules sum over more than a row, so that gradients of rows are made dense in each step.
MADE_DENSE = "LAMB", "LARS", "AdamMini"
SHAPES: list[tuple[int, ...]] = [(7,), (7, 3), (5, 2, 35)]


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Checks:
    return Checks(monkeypatch)


def slices(shape: tuple[int, ...], dtype: str, seed: int) -> IndexedSlices:
    """Return gradients of some rows: none, a few, or so many that a row is a hot one."""
    random = np.random.default_rng([seed, *shape])
    n = [5, 0, 1, 90, 12][seed % 5]
    ids = random.integers(shape[0], size=n) if n != 90 else np.full(n, 2)
    values = random.standard_normal((n, *shape[1:]))
    values[random.random(values.shape) < 0.2] = -0.0
    return IndexedSlices(array_of(values, dtype), ids.astype(["i4", "i8"][seed % 2]))


def on_device(grad: Any) -> Any:
    if isinstance(grad, IndexedSlices):
        return IndexedSlices(there(grad.values), there(grad.indices))
    return there(grad)


def compared(make_one: Callable[[], Optimizer], dtype: str, steps: int = 6) -> None:
    """Take steps of rows and of a whole variable on the host and on the device; compare."""
    host, device = make_one(), make_one()
    random = np.random.default_rng(0)
    here = [array_of(random.standard_normal(shape), dtype) for shape in (*SHAPES, (33,))]
    far = [there(array) for array in here]
    for seed in range(steps):
        grads = [slices(shape, dtype, seed) for shape in SHAPES]
        grads.append(array_of(random.standard_normal(33), dtype))
        host.apply_gradients(list(zip(grads, here, strict=True)))
        device.apply_gradients(list(zip(map(on_device, grads), far, strict=True)))
    for var, own in zip(far, here, strict=True):
        assert_same_bits(DEVICE.back(var), own, "variable")
    for ours, theirs in zip(device.get_weights(), host.get_weights(), strict=True):
        assert_same_bits(ours, theirs, "state")


@each_dtype
@pytest.mark.parametrize(("which", "mode"), MODES)
def test_one_check_for_all_steps(checks: Checks, which: str, mode: str, dtype: str) -> None:

    def made() -> Optimizer:
        opt = make(which)
        opt.sparse = mode
        return opt

    compared(made, dtype)
    assert checks.n == (6 if which in MADE_DENSE else 1)


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_clipped_steps(checks: Checks, limits: dict[str, float], dtype: str) -> None:
    compared(lambda: Adam(0.1, sparse="lazy", **limits), dtype)
    assert checks.n == 1


def test_weights_that_decay_at_times(checks: Checks) -> None:
    """With decay the rows of an index are summed first, whatever they are without."""

    class Decaying(SGD):
        def _next_update(self, t: int) -> Any:
            keep = 1.0 if t % 2 else 0.75
            return super()._next_update(t)._replace(keep=keep)

    compared(lambda: Decaying(0.1), "float32")
    compared(lambda: AdamW(0.1, weight_decay=0.1), "float32")
    assert checks.n == 2


def test_gradients_of_16_bits(checks: Checks) -> None:
    host, device = Adagrad(0.1), Adagrad(0.1)
    here = np.ones((6, 3), np.float32)
    far = there(here)
    for seed in range(3):
        grad = slices((6, 3), "float16", seed)
        host.apply_gradients([(grad, here)])
        device.apply_gradients([(on_device(grad), far)])
    assert_same_bits(DEVICE.back(far), here, "variable")
    assert checks.n == 1


# ---- refusals

ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)


def rows(values: Any, ids: Any, dtype: str = "i8") -> IndexedSlices:
    return IndexedSlices(there(np.array(values, np.float32)), there(np.array(ids, dtype)))


REFUSED: dict[str, Callable[[Any], Any]] = {
    "an index": lambda var: rows(np.ones((3, 3)), [0, 1, 4]),
    "a negative index": lambda var: rows(np.ones((2, 3)), [-1, 0]),
    "too few indices": lambda var: rows(np.ones((3, 3)), [0, 1]),
    "a wider row": lambda var: rows(np.ones((2, 4)), [0, 1]),
    "another rank": lambda var: rows(np.ones((2, 3, 1)), [0, 1]),
    "indices of 16 bits": lambda var: rows(np.ones((2, 3)), [0, 1], "i2"),
    "indices of floats": lambda var: rows(np.ones((2, 3)), [0, 1], "f4"),
    "two axes of indices": lambda var: rows(np.ones((2, 3)), [[0, 1]]),
    "wide values": lambda var: IndexedSlices(there(np.ones((2, 3))), there(np.array([0, 1]))),
    "values of integers": lambda var: IndexedSlices(
        there(np.ones((2, 3), np.int32)), there(np.array([0, 1]))
    ),
    "indices on the host": lambda var: IndexedSlices(
        there(np.ones((2, 3), np.float32)), np.array([0, 1])
    ),
    "values on the host": lambda var: IndexedSlices(
        np.ones((2, 3), np.float32), there(np.array([0, 1]))
    ),
    "values in the variable": lambda var: IndexedSlices(
        DEVICE.part(var, np.s_[:2]), there(np.array([0, 1]))
    ),
    "not contiguous": lambda var: IndexedSlices(
        DEVICE.part(there(np.ones((4, 3), np.float32)), np.s_[::2]), there(np.array([0, 1]))
    ),
}


@pytest.mark.parametrize("which", REFUSED)
@pytest.mark.parametrize("limits", [{}, {"global_clipnorm": 1.0}], ids=str)
def test_a_later_step_refuses_as_the_first_does(which: str, limits: dict[str, float]) -> None:
    """And leaves the other variables of the step and the state as they were."""
    errors = []
    for steps in (0, 3):
        opt = Adam(0.1, sparse="lazy", **limits)
        table, other, weights = there(ROWS), there(ROWS), there(np.ones(5, np.float32))
        whole = there(np.ones(5, np.float32))
        for _ in range(steps):
            good = rows(np.ones((3, 3)), [0, 1, 1])
            opt.apply_gradients([(whole, weights), (good, other), (good, table)])
        held = table, other, weights
        before, state = [DEVICE.back(each) for each in held], opt.get_weights()
        good = rows(np.ones((3, 3)), [0, 1, 1])
        with pytest.raises((ValueError, TypeError, IndexError)) as caught:
            bad = REFUSED[which](table)
            opt.apply_gradients([(whole, weights), (good, other), (bad, table)])
        errors.append((type(caught.value), str(caught.value)))
        for each, old in zip(held, before, strict=True):
            assert_same_bits(DEVICE.back(each), old, "variable")
        for ours, theirs in zip(opt.get_weights(), state, strict=True):
            assert_same_bits(ours, theirs, "state")
        opt.apply_gradients([(whole, weights), (good, other), (good, table)])
        assert int(opt.iterations) == steps + 1
    assert errors[0] == errors[1]


def test_a_bad_index_leaves_the_host_alone() -> None:
    here, table = np.ones(3), there(ROWS)
    opt = Adam(0.1, sparse="lazy")
    for _ in range(3):
        opt.apply_gradients([(np.ones(3), here), (rows(np.ones((1, 3)), [0]), table)])
    before, state = here.copy(), opt.get_weights()
    with pytest.raises(tfopt.IndexOutOfRangeError, match=r"offset 1 in indices .* \[0, 4\)"):
        opt.apply_gradients([(np.ones(3), here), (rows(np.ones((2, 3)), [0, 9]), table)])
    assert_same_bits(here, before, "host variable")
    for ours, theirs in zip(opt.get_weights(), state, strict=True):
        assert_same_bits(ours, theirs, "state")


def test_rows_and_whole_gradients_in_turn() -> None:
    opt, host, table, here = Adam(0.1), Adam(0.1), there(ROWS), ROWS.copy()
    for k in range(6):
        grad: Any = ROWS + 1 if k % 3 == 1 else slices((4, 3), "float32", k)
        host.apply_gradients([(grad, here)])
        opt.apply_gradients([(on_device(grad), table)])
    assert_same_bits(DEVICE.back(table), here, "variable")


def test_a_table_that_moves(checks: Checks) -> None:
    opt, table = SGD(0.5), there(np.zeros((4, 3), np.float32))
    for step in range(4):
        if step == 2:
            DEVICE.move(table)
        opt.apply_gradients([(rows(np.ones((1, 3)), [1]), table)])
    expected = np.zeros((4, 3), np.float32)
    expected[1] = -2
    assert_same_bits(DEVICE.back(table), expected, "variable")
    assert checks.n == 2


@pytest.mark.parametrize("shape", [(0, 3), (4, 0)])
def test_tables_without_elements(shape: tuple[int, ...]) -> None:
    opt, table = Adam(0.1), there(np.zeros(shape, np.float32))
    empty = IndexedSlices(there(np.zeros((0, *shape[1:]), np.float32)), there(np.array([], "i8")))
    for _ in range(3):
        opt.apply_gradients([(empty, table)])
    ids = there(np.array([9]))
    bad = IndexedSlices(there(np.zeros((1, *shape[1:]), np.float32)), ids)
    with pytest.raises(tfopt.IndexOutOfRangeError):
        opt.apply_gradients([(bad, table)])
    assert int(opt.iterations) == 3


@pytest.mark.skipif(not DEVICE.on_host, reason="a GPU cannot be told to capture")
def test_a_captured_step_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    opt, table = SGD(0.5), there(ROWS)
    good = rows(np.ones((1, 3)), [1])
    for _ in range(2):
        opt.apply_gradients([(good, table)])
    before = DEVICE.back(table)
    with monkeypatch.context() as patch:
        patch.setenv("TFOPT_HOST_FAILS", "capture")
        with pytest.raises(tfopt.InvalidArgumentError, match="while a CUDA graph is captured"):
            opt.apply_gradients([(good, table)])
    assert_same_bits(DEVICE.back(table), before, "variable")


@pytest.mark.skipif(DEVICE.name != "host", reason="arrays of this library have one stream")
def test_streams_of_indices_are_waited_for(checks: Checks) -> None:
    opt, table = SGD(0.5), HostArray(np.zeros((4, 3), np.float32), 7)
    for stream in (7, 9, None, 7):
        grad = IndexedSlices(
            HostArray(np.ones((1, 3), np.float32), 7), HostArray(np.array([1]), stream)
        )
        opt.apply_gradients([(grad, table)])
    assert checks.n == 1
    assert DEVICE.back(table)[1, 0] == -2


def test_gradients_are_let_go() -> None:
    opt, table = SGD(0.5), there(ROWS)
    for _ in range(3):
        grad = rows(np.ones((1, 3)), [1])
        opt.apply_gradients([(grad, table)])
    watched = weakref.ref(grad.values), weakref.ref(grad.indices)
    del grad
    gc.collect()
    assert [each() for each in watched] == [None, None]


class Sparse:
    """What is asked of a sparse tensor of torch on a GPU."""

    is_sparse = is_cuda = True
    shape = (4, 3)

    def __init__(self, indices: Any, values: Any) -> None:
        self._indices, self._values = (lambda: indices), (lambda: values)

    def sparse_dim(self) -> int:
        return 1


@pytest.mark.skipif("torch" not in DEVICE.name, reason="the gradients are torch's")
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # said once a process
def test_sparse_tensors_of_torch(checks: Checks) -> None:
    import torch

    opt, host, table, here = Adagrad(0.1), Adagrad(0.1), there(ROWS), ROWS.copy()
    for seed in range(4):
        grad = slices((4, 3), "float32", seed)
        ids = grad.indices.astype(np.int64)
        host.apply_gradients([(IndexedSlices(grad.values, ids), here)])
        parts = there(ids[None]), there(grad.values)
        tensor = torch.sparse_coo_tensor(*parts, (4, 3))
        if DEVICE.on_host:  # where a sparse tensor and its parts have torch's own class
            tensor = Sparse(*parts)
        opt.apply_gradients([(tensor, table)])
    assert_same_bits(DEVICE.back(table), here, "variable")
    assert checks.n == 1
