"""Many rows of one element, which are stepped by neighbourhoods, against short calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits, ordinary_hypers

import tfopt
from tfopt.core.workspace import Workspace
from tfopt.errors import IndexOutOfRangeError
from tfopt.kernels import kernels
from tfopt.kernels.update.adjustments import set_bounds, set_scales
from tfopt.kernels.update.checks import dense_call
from tfopt.kernels.update.dense import run
from tfopt.kernels.update.sparse_checks import sparse_call
from tfopt.rules import RULES

MANY = (1 << 17) + 4321
FEW = 1 << 15
ROWS = 1_200_000
RULE = {rule.name: rule for rule in RULES}
#: With slots, and steps of elements.
NAMES = [rule.name for rule in RULES if len(rule.operands) > 2 and rule.reduction is None]


class Watched(Workspace):
    """A workspace that knows what it has been asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def array(self, name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        self.names.add(name)
        return super().array(name, shape, dtype)


def call_of(
    name: str, arrays: list[np.ndarray], ids: np.ndarray, memory: Any = None, **summing: float
) -> Any:
    hypers = tuple(ordinary_hypers(RULE[name])[hyper] for hyper in RULE[name].hypers)
    return sparse_call(kernels[name], tuple(arrays), ids, hypers, 0, 0.5, True, memory, **summing)


def tables_of(name: str, dtype: str, rows: int = ROWS) -> list[np.ndarray]:
    some = np.random.default_rng(5).uniform(0.1, 1, 1 << 16).astype(dtype)
    return [np.resize(np.roll(some, k), (rows, 1)) for k in range(len(RULE[name].operands) - 1)]


def gradient(dtype: str, n: int = MANY) -> np.ndarray:
    """Return a strided gradient with numbers out of the ordinary."""
    random = np.random.default_rng(6)
    grad = random.standard_normal((n, 2)).astype(dtype)[:, :1]
    grad[random.integers(n, size=5), 0] = [np.nan, np.inf, -0.0, 1e-40, -np.inf]
    return grad


def scattered(n: int = MANY) -> np.ndarray:
    """Return indices of which a twentieth occur again."""
    return np.random.default_rng(7).integers(ROWS, size=n)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_equal_indices_are_stepped_in_order(name: str, threads: int) -> None:
    dtype = "f8" if name in ("ftrl", "momentum") else "f4"
    ids = scattered().astype("i4" if threads == 1 else "i8")
    ids[50_000:50_400:2] = ids[100]
    grad, ours, theirs = gradient(dtype), tables_of(name, dtype), tables_of(name, dtype)
    tfopt.threads.set_num_threads(threads)
    run(call_of(name, [*ours, grad], np.repeat(ids, 2)[::2]))
    for start in range(0, MANY, FEW):
        part = slice(start, start + FEW)
        run(call_of(name, [*theirs, grad[part]], ids[part]))
    for a, b in zip(ours, theirs, strict=True):
        assert_same_bits(a, b, name)


@pytest.mark.sampled_whole
@pytest.mark.parametrize("name", [name for name in NAMES if not RULE[name].rows])
def test_distinct_rows_are_stepped_as_a_whole_array_is(name: str) -> None:
    """By the rule's dense step, which is another loop, if rows have no formula of their own."""
    ids = np.random.default_rng(8).permutation(ROWS)[:MANY]
    ours, grad = tables_of(name, "f4"), gradient("f4")
    whole = [table[ids] for table in ours]
    run(call_of(name, [*ours, grad], ids))
    hypers = tuple(ordinary_hypers(RULE[name])[hyper] for hyper in RULE[name].hypers)
    run(dense_call(kernels[name], (*whole, grad), hypers, 0, 0.5))
    for a, b in zip(ours, whole, strict=True):
        assert_same_bits(a[ids], b, name)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", ["adagrad", "ftrl", "adamax"])
def test_gradients_are_summed_in_order(name: str, dtype: str, threads: int) -> None:
    ids, grad = scattered(), gradient(dtype)
    ids[50_000:50_400:2] = ids[100]
    ours, theirs = tables_of(name, dtype), tables_of(name, dtype)
    memory = Watched()
    tfopt.threads.set_num_threads(threads)
    call = call_of(name, [*ours, grad], ids, memory, bound=1.5, scale=0.25)
    assert memory.names == {"own", "buckets"}
    run(call)
    distinct, place = np.unique(ids, return_inverse=True)
    sums = np.zeros((distinct.size, 1), dtype)
    with np.errstate(invalid="ignore"):
        # the smaller, unless it is NaN
        limited = np.where(grad > 1.5, 1.5, np.where(grad < -1.5, -1.5, grad)).astype(dtype)
    small = np.abs(limited) < np.finfo(dtype).tiny  # flushed
    np.add.at(sums, place, np.where(small, 0, limited) * np.dtype(dtype).type(0.25))
    for start in range(0, distinct.size, FEW):
        part = slice(start, start + FEW)
        run(call_of(name, [*theirs, sums[part]], distinct[part]))
    for a, b in zip(ours, theirs, strict=True):
        assert_same_bits(a, b, name)


def test_gradients_that_are_clamped_and_scaled() -> None:
    """Clamped ones are read through a layout, which buckets do not have."""
    ids, grad = scattered(), gradient("f4")
    for bounds, scales in (([0.5], []), ([], [0.25]), ([0.5], [0.25])):
        ours, theirs = tables_of("ftrl", "f4"), tables_of("ftrl", "f4")
        pieces = [slice(start, start + FEW) for start in range(0, MANY, FEW)]
        for part, tables in ((slice(MANY), ours), *((each, theirs) for each in pieces)):
            call = call_of("ftrl", [*tables, grad[part]], ids[part])
            if bounds:
                set_bounds(call, bounds)
            if scales:
                set_scales(call, scales)
            run(call)
        for a, b in zip(ours, theirs, strict=True):
            assert_same_bits(a, b, f"{bounds} {scales}")


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_complex_rows(dtype: str) -> None:
    ids, grad = scattered(), gradient("f8").astype(dtype) * (1 - 2j)
    ours, theirs = tables_of("adagrad", dtype), tables_of("adagrad", dtype)
    run(call_of("adagrad", [*ours, grad], ids))
    for start in range(0, MANY, FEW):
        part = slice(start, start + FEW)
        run(call_of("adagrad", [*theirs, grad[part]], ids[part]))
    for a, b in zip(ours, theirs, strict=True):
        assert_same_bits(a.view(a.real.dtype), b.view(a.real.dtype), dtype)


@pytest.mark.parametrize(
    ("ids", "rows", "expected"),
    [
        (scattered(), ROWS, True),
        (scattered(FEW), ROWS, False),
        (scattered() % 1000, ROWS, False),  # of hot rows
        (scattered() % 100_000, 100_000, False),  # in cache anyway
    ],
)
def test_which_rows_are_divided(ids: np.ndarray, rows: int, expected: bool) -> None:
    memory = Watched()
    call_of("adagrad", [*tables_of("adagrad", "f4", rows), gradient("f4", ids.size)], ids, memory)
    assert ("buckets" in memory.names) is expected


def test_an_index_out_of_range_changes_nothing() -> None:
    arrays, ids = tables_of("ftrl", "f4"), scattered()
    before = [array.copy() for array in arrays]
    ids[-3] = ROWS
    with pytest.raises(IndexOutOfRangeError, match=f"Index {ROWS} at offset {MANY - 3}"):
        run(call_of("ftrl", [*arrays, gradient("f4")], ids))
    ids[-3] = 0
    call = call_of("ftrl", [*arrays, gradient("f4")], ids)
    ids[-3] = ROWS  # after the checks: the others are stepped, and it is reported
    with pytest.raises(IndexOutOfRangeError):
        run(call)
    assert np.array_equal(arrays[0][0], before[0][0])


def test_a_workspace_must_have_the_requested_size() -> None:
    class Short(Workspace):
        def array(self, name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
            enough = super().array(name, shape, dtype)
            return enough if name == "own" else enough[:-1]

    with pytest.raises(ValueError, match="other memory than it was asked for"):
        call_of("ftrl", [*tables_of("ftrl", "f4"), gradient("f4")], scattered(), Short())
