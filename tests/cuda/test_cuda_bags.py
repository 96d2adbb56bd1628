"""Bags of rows of a table on a GPU: lookups, gradients and steps have the host's bits."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits
from common.clip_cases import array_of
from common.optimizer_makers import MAKERS, make
from devices import DEVICE, HostArray
from test_cuda_bound_rows import MADE_DENSE
from test_cuda_bound_steps import LIMITS, Checks, there
from test_cuda_docs import WRAPPERS
from test_cuda_optimizers import each_dtype

import tfopt
from tfopt import Bags, IndexedSlices, InvalidArgumentError, InvalidTypeError
from tfopt.cuda.library import LibraryError
from tfopt.optimizers import SGD, Adagrad, Adam, LossScaleOptimizer
from tfopt_ref import bags as twin

pytestmark = pytest.mark.usefixtures("gradual_underflow")

N_ROWS, N_BAGS = 40, 9
#: How ids occur: seldom, often, or so often that a row is a hot one; in bags of many, or in few.
IDS: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "some": lambda random: random.integers(N_ROWS, size=30),
    "distinct": lambda random: random.permutation(N_ROWS),
    "frequent": lambda random: np.minimum(random.zipf(1.2, 700) - 1, N_ROWS - 1),
    "none": lambda random: np.zeros(0, np.int64),
}
WIDTHS: list[tuple[int, ...]] = [(), (1,), (3,), (64,), (2, 34), (2500,), (0,)]


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Checks:
    return Checks(monkeypatch)


def lengths(random: np.random.Generator, n: int) -> list[int]:
    """Return the number of ids in each bag; some have none, the first and the last too."""
    found = random.multinomial(n, [0, 0.5, 0.1, 0, 0.1, 0.1, 0.1, 0.1, 0])
    return [int(number) for number in found]


def drawn_bags(which: str, seed: int, **options: Any) -> Bags:
    random = np.random.default_rng(seed)
    ids = IDS[which](random)
    return Bags(ids, np.cumsum([0, *lengths(random, ids.size)])[:-1], N_ROWS, **options)


def some_numbers(seed: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return ordinary numbers, zeros of both signs, and some that add up to denormals."""
    random = np.random.default_rng(seed)
    values = random.standard_normal(shape)
    for k, value in enumerate((-0.0, 0.0, 1e-40, -6e-8, np.inf, np.nan)):
        values[random.random(shape) < 0.05 / (1 + (k > 3) * 20)] = value
    return array_of(values, dtype)


def same(found: Any, wanted: np.ndarray, what: str) -> None:
    assert_same_bits(DEVICE.back(found), wanted, what)


@each_dtype
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize("which", IDS)
@pytest.mark.parametrize("width", WIDTHS, ids=str)
def test_results_have_the_bits_of_the_specification(
    width: tuple[int, ...], which: str, pooling: str, weighted: bool, dtype: str
) -> None:
    random = np.random.default_rng(7)
    ids = IDS[which](random)
    sizes = lengths(random, ids.size)
    weights = random.standard_normal(ids.size).round(1) if weighted else None
    ends = np.cumsum([0, *sizes])
    bags = Bags(ids, ends[:-1], N_ROWS, pooling, weights)
    factors = np.ones(ids.size) if weights is None else weights
    listed = [(ids[a:b].tolist(), factors[a:b].tolist()) for a, b in pairwise(ends)]
    table, g = (some_numbers(n, (n, *width), dtype) for n in (N_ROWS, N_BAGS))
    pooled = twin.lookup(table, listed, pooling)
    same(bags.lookup(there(table)), pooled, "pooled rows")
    out = there(np.ones_like(pooled))
    assert bags.lookup(there(table), out=out) is out
    same(out, pooled, "out")
    rows, found = twin.gradient(g, listed, pooling), bags.gradient(there(g))
    same(found.values, rows.values, "gradient")
    assert DEVICE.back(found.indices).tolist() == rows.indices.tolist()
    assert found.dense_shape == table.shape


def test_tables_on_the_device_and_on_the_host_together() -> None:
    bags = [drawn_bags("some", k) for k in range(3)]
    tables = [some_numbers(k, (N_ROWS, 3 + k), "float32") for k in range(3)]
    found = tfopt.lookup_bags(bags, [there(tables[0]), tables[1], there(tables[2])])
    for k, (each, table) in enumerate(zip(bags, tables, strict=True)):
        wanted = each.lookup(table)
        if k == 1:
            assert_same_bits(found[k], wanted, "on the host")
        else:
            same(found[k], wanted, "on the device")


def test_ids_on_the_device() -> None:
    """They, offsets and weights are copied to the host."""
    ids, offsets, weights = np.array([3, 0, 3]), np.array([0, 2]), np.array([1.0, 2.0, 4.0])
    bags = Bags(there(ids), there(offsets), 4, weights=there(weights))
    table = np.arange(8, dtype=np.float32).reshape(4, 2)
    same(bags.lookup(there(table)), np.array([[6, 9], [24, 28]], np.float32), "pooled rows")


@pytest.mark.skipif(DEVICE.name != "host", reason="arrays of this library have one stream")
def test_streams_get_copies_of_their_own() -> None:
    bags, table = drawn_bags("some", 0), some_numbers(0, (N_ROWS, 3), "float32")
    wanted = bags.lookup(table)
    for stream in (None, 7, 9, 7):
        same(bags.lookup(HostArray(table, stream)), wanted, "pooled rows")
    assert {key[-1] for key in bags._there} == {1, 7, 9}


# ---- steps

MODES = [(which, m) for which in MAKERS for m in make(which)._modes() if m != "catch_up"]


def steps_of(
    makes: Callable[[], Any], dtype: str, gradients: Callable[[Bags, Any], Any], device: bool
) -> tuple[list[np.ndarray], list[np.ndarray], list[Any]]:
    """Take steps of two tables; return their numbers, the state and the last gradients."""
    opt, move = makes(), there if device else np.copy
    shapes = (N_ROWS, 3), (N_ROWS, 34)
    tables = [move(some_numbers(k, shape, dtype)) for k, shape in enumerate(shapes)]
    grads: list[Any] = []
    for seed in range(6):
        how = ("some", "frequent", "distinct", "none")[seed % 4]
        bags = drawn_bags(how, seed, pooling=("sum", "mean")[seed % 2])
        gs = [move(some_numbers(seed, (N_BAGS, *shape[1:]), dtype)) for shape in shapes]
        grads = [gradients(bags, g) for g in gs]
        opt.apply_gradients(list(zip(grads, tables, strict=True)))
    arrays = list(map(DEVICE.back, tables)) if device else tables
    return arrays, opt.get_weights(), grads


def summed(bags: Bags, g: Any) -> IndexedSlices:
    gradient = bags.gradient(g)
    return IndexedSlices(gradient.values, gradient.indices, gradient.dense_shape)


@each_dtype
@pytest.mark.parametrize(("which", "mode"), MODES)
def test_steps_have_the_bits_of_the_host(checks: Checks, which: str, mode: str, dtype: str) -> None:
    """Bound steps sum rows as they read them; a 16-bit mean is rounded once, so it cannot wait."""

    def makes() -> Any:
        opt = make(which)
        opt.sparse = mode
        return opt

    arrays, state, grads = steps_of(makes, dtype, Bags.gradient, device=True)
    for gradients, device in ((summed, True), (Bags.gradient, False)):
        others, other_state, _ = steps_of(makes, dtype, gradients, device)
        for ours, theirs in zip([*arrays, *state], [*others, *other_state], strict=True):
            assert_same_bits(ours, theirs, which)
    if which not in MADE_DENSE and dtype in ("float32", "float64"):
        assert checks.n == 2
        assert [grad._summed for grad in grads] == [None, None]


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_clipped_steps(limits: dict[str, float], dtype: str) -> None:
    makes = lambda: Adam(0.1, sparse="lazy", **limits)  # noqa: E731
    found, wanted = (steps_of(makes, dtype, Bags.gradient, device)[:2] for device in (True, False))
    for ours, theirs in zip([*found[0], *found[1]], [*wanted[0], *wanted[1]], strict=True):
        assert_same_bits(ours, theirs, str(limits))


@pytest.mark.parametrize("storage", ["bfloat16", "8bit"])
def test_stored_slots(storage: str) -> None:
    """Rows of slots in codes have an error on a GPU, whatever their gradients."""
    made = []
    for gradients in (Bags.gradient, summed):
        try:
            made.append(steps_of(lambda: Adam(0.1, storage=storage), "float32", gradients, True)[0])
        except InvalidArgumentError as error:
            made.append([np.array(str(error))])
    for ours, theirs in zip(*made, strict=True):
        assert ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("name", WRAPPERS)
def test_wrapped_steps(name: str) -> None:
    found, wanted = (
        steps_of(WRAPPERS[name], "float32", Bags.gradient, device)[:2] for device in (True, False)
    )
    for ours, theirs in zip([*found[0], *found[1]], [*wanted[0], *wanted[1]], strict=True):
        assert_same_bits(ours, theirs, name)


def test_sums_that_overflow_are_seen_by_a_loss_scale() -> None:
    """Though the gradients of the bags are finite."""
    for device in (False, True):
        table = np.ones((4, 3), np.float32)
        far = there(table) if device else table
        opt = LossScaleOptimizer(SGD(0.5), 1.0, 10**9)
        for seed, value in enumerate((1.0, 1.0, 3e38, 1.0)):
            bags, g = Bags([1, 1], [0, 1], 4), np.full((2, 3), value, np.float32)
            before = DEVICE.back(far) if device else far.copy()
            opt.apply_gradients([(bags.gradient(there(g) if device else g), far)])
            after = DEVICE.back(far) if device else far
            assert (before[1] == after[1]).all() == (seed == 2)
        assert int(opt.iterations) == 3


def test_gradients_of_bags_and_of_rows_in_turn(checks: Checks) -> None:
    opt, host = Adagrad(0.1), Adagrad(0.1)
    here = some_numbers(0, (N_ROWS, 3), "float32")
    table = there(here)
    for seed in range(6):
        bags, g = drawn_bags("some", seed), some_numbers(seed, (N_BAGS, 3), "float32")
        gradients = Bags.gradient if seed % 3 else summed
        host.apply_gradients([(gradients(bags, g), here)])
        opt.apply_gradients([(gradients(bags, there(g)), table)])
    same(table, here, "variable")
    assert checks.n == 1


def test_a_gradient_keeps_the_numbers_that_it_was_made_of() -> None:
    table, g = there(np.zeros((4, 2), np.float32)), there(np.ones((2, 2), np.float32))
    bags, opt = Bags([3, 0, 3], [0, 2], 4), SGD(1.0)
    for _ in range(2):
        gradient = bags.gradient(g)
        bags.lookup(there(np.full((4, 2), np.nan, np.float32)), out=g)
        opt.apply_gradients([(gradient, table)])
        g = there(np.ones((2, 2), np.float32))
    same(table, np.array([[-2, -2], [0, 0], [0, 0], [-4, -4]], np.float32), "variable")


def test_gradients_are_let_go() -> None:
    opt, table = SGD(0.5), there(np.ones((4, 3), np.float32))
    for _ in range(3):
        bags, g = Bags([3, 0, 3], [0, 2], 4), there(np.ones((2, 3), np.float32))
        gradient = bags.gradient(g)
        opt.apply_gradients([(gradient, table)])
    watched = weakref.ref(gradient._memory), weakref.ref(g)
    del gradient, g
    gc.collect()
    assert [each() for each in watched] == [None, None]


# ---- refusals

BAGS = Bags([0, 3, 1], [0, 2], 4)
TABLE = np.arange(8, dtype=np.float32).reshape(4, 2)


@pytest.mark.parametrize("rows", [3, 5])
@pytest.mark.parametrize("steps", [0, 3])
def test_a_gradient_of_another_table_is_refused(rows: int, steps: int) -> None:
    """Its ids have been checked for another number of rows, some of which are not there."""
    table, opt = there(TABLE), Adam(0.1, sparse="lazy")
    good, g = Bags([0, 3, 1], [0, 2], 4), np.ones((2, 2), np.float32)
    for _ in range(steps):
        opt.apply_gradients([(good.gradient(there(g)), table)])
    before = DEVICE.back(table)
    other = Bags([rows - 1, 0], [0, 1], rows)
    host, here = Adam(0.1, sparse="lazy"), TABLE.copy()
    try:
        host.apply_gradients([(other.gradient(g), here)])
        refused = None
    except tfopt.IndexOutOfRangeError as error:
        refused = type(error)
    if refused is None:
        opt.apply_gradients([(other.gradient(there(g)), table)])
        return
    with pytest.raises(refused):
        opt.apply_gradients([(other.gradient(there(g)), table)])
    same(table, before, "variable")
    assert int(opt.iterations) == steps


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda table: BAGS.lookup(DEVICE.part(table, np.s_[:3])), InvalidArgumentError,
         r"table must have 4 rows, one for each row of the table, not the shape \(3, 2\)"),
        (lambda table: BAGS.gradient(table), InvalidArgumentError, "g must have 2 rows"),
        (lambda table: BAGS.lookup(DEVICE.part(there(np.ones((8, 2))), np.s_[::2])),
         InvalidArgumentError, "table is not contiguous"),
        (lambda table: BAGS.lookup(there(TABLE.astype(np.int32))), InvalidTypeError,
         "table must be floats or complex of at most double precision, not int32"),
        (lambda table: BAGS.lookup(there(TABLE.astype(np.complex64))), InvalidTypeError,
         "table must be float16, bfloat16, float32 or float64 on a GPU, not complex64"),
        (lambda table: BAGS.lookup(table, out=there(np.ones((2, 3), np.float32))),
         InvalidArgumentError, r"out must have the shape \(2, 2\), not \(2, 3\)"),
        (lambda table: BAGS.lookup(table, out=there(np.ones((2, 2)))), InvalidTypeError,
         "out must be an array of float32, as the table, not float64"),
        (lambda table: BAGS.lookup(table, out=np.ones((2, 2), np.float32)), InvalidTypeError,
         "out must be an array on the GPU, like table"),
        (lambda table: BAGS.lookup(table, out=DEVICE.part(table, np.s_[1:3])),
         InvalidArgumentError, "table and out overlap"),
        (lambda table: BAGS.lookup(TABLE, out=DEVICE.part(table, np.s_[:2])), InvalidTypeError,
         "out must be an array"),
        (lambda table: BAGS.lookup(tfopt.Variable(table)), InvalidTypeError,
         "variable on a GPU, which cannot be differentiated: pass its value"),
    ],
)  # fmt: skip
def test_what_is_refused(call: Any, error: type, message: str) -> None:
    """Nothing is written."""
    table = there(TABLE)
    with pytest.raises(error, match=message):
        call(table)
    same(table, TABLE, "table")


@pytest.mark.skipif(not DEVICE.on_host, reason="a GPU cannot be told to fail")
@pytest.mark.parametrize(
    "what",
    {
        "lookup": lambda table: BAGS.lookup(table),
        "values": lambda table: BAGS.gradient(there(TABLE[:2])).values,
        "a step": lambda table: SGD(0.5).apply_gradients(
            [(BAGS.gradient(there(TABLE[:2])), table)]
        ),
    }.items(),
    ids=lambda item: item[0],
)
def test_a_failure(what: tuple[str, Callable[[Any], Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    table = there(TABLE)
    with monkeypatch.context() as patch:
        patch.setenv("TFOPT_HOST_FAILS", "launch")
        with pytest.raises(LibraryError, match="CUDA: an error of the host"):
            what[1](table)
    what[1](table)


@pytest.mark.skipif("torch" not in DEVICE.name, reason="tensors that torch's tape records")
def test_tensors_that_require_a_gradient() -> None:
    table = there(TABLE)
    table.requires_grad_(True)
    with pytest.raises(InvalidTypeError, match=r"table requires a gradient .* pass its detach"):
        BAGS.lookup(table)
