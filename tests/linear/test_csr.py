"""Sparse matrices whose index arrays are not in order are refused before anything reads by them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import tfopt
from tfopt import IndexOutOfRangeError, InvalidArgumentError
from tfopt.errors import InvalidTypeError
from tfopt.kernels.arrays.csr import check_csr, check_indices, take

INDEX_TYPES = (np.int32, np.int64)


def _fits(data: list, indices: list[int], indptr: list[int], shape: tuple[int, int]) -> bool:
    """Say it as plainly as can be."""
    if len(indptr) != shape[0] + 1 or indptr[0] != 0 or indptr != sorted(indptr):
        return False
    stop = indptr[-1]
    return (
        stop <= len(data)
        and stop <= len(indices)
        and all(0 <= column < shape[1] for column in indices[:stop])
    )


@given(
    st.lists(st.integers(-2, 6), max_size=6),
    st.lists(st.integers(-1, 7), min_size=1, max_size=5),
    st.booleans(),
    st.tuples(st.integers(0, 5), st.integers(0, 5)),
    st.integers(-1, 1),
    st.sampled_from(INDEX_TYPES),
)
def test_just_what_fits_is_taken(indices, indptr, in_order, shape, more_data, index_type) -> None:
    if in_order:
        indptr = sorted(abs(end) for end in indptr)
        indptr[0] = 0
        shape = (len(indptr) - 1, shape[1])
    data = np.zeros(max(0, len(indices) + more_data))
    arrays = (data, np.array(indices, index_type), np.array(indptr, index_type))
    if _fits(list(data), indices, indptr, shape):
        check_csr(*arrays, shape)
    else:
        with pytest.raises(InvalidArgumentError, match=r"^X\."):
            check_csr(*arrays, shape)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("index_type", INDEX_TYPES)
@pytest.mark.parametrize("place", [0, 1, 2, 3, 65535, 65536, 131071, 131072, 299_999])
@pytest.mark.parametrize("bad", [-1, 1000, -(2**31), 2**31 - 1])
def test_a_fault_is_found_wherever_it_is(threads, index_type, place, bad) -> None:
    tfopt.threads.set_num_threads(threads)
    indices = np.resize(np.arange(1000, dtype=index_type), 300_000)
    check_indices(indices, 1000, "ids")
    indices[place] = bad
    with pytest.raises(IndexOutOfRangeError, match=rf"^ids\[{place}\] is {bad}, .* \[0, 1000\)$"):
        check_indices(indices, 1000, "ids")
    ends = np.arange(300_001, dtype=index_type)
    check_csr(np.zeros(300_000), indices % 1000, ends, (300_000, 1000))
    ends[place + 1] -= 2
    with pytest.raises(InvalidArgumentError, match=f"row {place} begins"):
        check_csr(np.zeros(300_000), indices % 1000, ends, (300_000, 1000))


def test_large_limits() -> None:
    check_indices(np.array([0, 2**31 - 1], np.int32), 2**40, "ids")
    check_indices(np.array([2**40 - 1]), 2**40, "ids")
    for bad in (2**40, 2**63 - 1, -(2**63), -1):
        with pytest.raises(IndexOutOfRangeError):
            check_indices(np.array([bad]), 2**40, "ids")
    for index_type in INDEX_TYPES:
        check_indices(np.zeros(0, index_type), 0, "ids")
        for stop in (0, -1, 1 - 2**32, -(2**63)):
            with pytest.raises(IndexOutOfRangeError):
                check_indices(np.zeros(1, index_type), stop, "ids")


def test_more_columns_than_memory_has_addresses() -> None:
    rows = np.ones(1), np.array([2**60 - 2]), np.array([0, 1]), np.array([0, 0])
    assert take(*rows, 2**60 - 1)[1].tolist() == [2**60 - 2] * 2
    with pytest.raises(InvalidArgumentError, match="exceed the address space"):
        take(*rows, 2**60)


@pytest.mark.parametrize(
    ("indices", "error", "message"),
    [
        (np.zeros((2, 2), int), InvalidArgumentError, r"must be one-dimensional: \[2,2\]"),
        (np.array(0), InvalidArgumentError, r"must be one-dimensional: \[\]"),
        (np.zeros(2, np.int16), InvalidTypeError, "must be int32 or int64, not int16"),
        (np.zeros(2, np.uint32), InvalidTypeError, "must be int32 or int64, not uint32"),
        (np.zeros(2), InvalidTypeError, "must be int32 or int64, not float64"),
        (np.zeros(2, ">i8"), InvalidTypeError, "has the byte-swapped dtype >i8"),
        (np.zeros(9, np.int8)[1:].view(np.int64), InvalidArgumentError, "is not aligned"),
        (None, InvalidTypeError, "must be a numpy.ndarray, or share memory with one, not NoneType"),
    ],
)
def test_what_is_no_array_of_indices(indices: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=f"^ids {message}"):
        check_indices(indices, 3, "ids")
    for arrays in ((indices, np.zeros(2, int)), (np.zeros(2, int), indices)):
        with pytest.raises(error, match=rf"^X\.ind(ices|ptr) {message}"):
            check_csr(np.zeros(2), *arrays, (1, 3))


def test_strides_and_scipy() -> None:
    check_indices(np.array([2, 9, 1, 9, 0, 9])[::2], 3, "ids")
    with pytest.raises(IndexOutOfRangeError, match=r"ids\[1\] is 9"):
        check_indices(np.array([2, 9, 1, 9, 0, 9]), 3, "ids")
    X = sparse.random_array((20, 30), density=0.2, format="csr", rng=np.random.default_rng(0))
    check_csr(X.data, X.indices, X.indptr, X.shape)
    X = X.tocsc()
    check_csr(X.data, X.indices, X.indptr, X.shape[::-1])


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
@pytest.mark.parametrize("place", [0, -1])
@pytest.mark.parametrize("bad", [-1, -5, 2**30])
def test_gradients_that_are_malformed(kind: str, place: int, bad: int) -> None:
    X = sparse.random_array((20, 6), density=0.4, rng=np.random.default_rng(0)).asformat(kind)
    arrays = X.coords if kind == "coo" else (X.indices, X.indptr)
    for array in arrays:
        kept, array[place] = array[place], bad
        w = np.ones((20, 6))
        with pytest.raises(InvalidArgumentError, match="grad"):
            tfopt.optimizers.SGD(0.1).apply_gradients([(X, w)])
        assert (w == 1).all()
        array[place] = kept
    tfopt.optimizers.SGD(0.1).apply_gradients([(X, w)])


KERNELS = """
import numpy as np
from tfopt.kernels.linear import second_order, hessian_products
from tfopt.kernels.linear import visits, blocks, multiclass, solver
from tfopt.errors import InvalidArgumentError
n, d, width = 6, 5, 2
def given(kind):
    indptr = np.arange(0, 3 * n + 1, 3).astype(kind)
    indices = np.resize(np.array([0, 2, 4], kind), 3 * n)
    return [np.ones(3 * n), indices, indptr, np.ones((n, width))]
def plan(): return np.arange(n)
def examples():
    made = np.zeros(n, visits.EXAMPLE)
    made["y"], made["weight"], made["curvature"] = 1, 1, 1
    return made
def samples():
    made = np.zeros(n, multiclass.SAMPLE)
    made["weight"], made["curvature"] = 1, 1
    return made
m = d + width
lanes = lambda k: np.zeros((k, 8))
squared = "squared_loss"
calls = {
    "visits.weights_of": lambda r, p: visits.weights_of(*r, examples(), np.zeros(m), 1.),
    "visits.predictions": lambda r, p: visits.predictions(*r, np.zeros(m), 0.),
    "visits.predictions, shrunk": lambda r, p: visits.predictions(*r, np.zeros(m), .5),
    "solver": lambda r, p: solver.epoch(*r, p, examples(), np.zeros(m), np.zeros((0, m)),
        np.zeros(0), np.zeros(n, np.uint8), squared, 1., 1., 0., 0., 0., 1., 1, 0),
    "solver, partitions": lambda r, p: solver.epoch(*r, p, examples(), np.zeros(m),
        np.zeros((2, m)), np.zeros(n), np.zeros(n, np.uint8), squared, 1., 1., 0., 0., 0., 1., 2,
        0),
    "solver, exact": lambda r, p: solver.epoch(*r, p, examples(), np.zeros(m), np.zeros((0, m)),
        np.zeros(n), np.zeros(0, np.uint8), squared, 1., 1., 0., 0., 0., 1., 1, 0, True),
    "sweeps": lambda r, p: solver.epoch_of_sweeps(*r, examples(), np.zeros(m),
        np.zeros(n, np.uint8), 1, 0, 0, squared, 1., 1., 0., 0., 0.),
    "blocks": lambda r, p: blocks.visit(*r, p, examples(), np.zeros(m), squared, 1., 1.,
        0., 0., 0., 1.),
    "classes": lambda r, p: multiclass.epoch(*r, p, samples(), lanes(n), lanes(n), lanes(m),
        np.zeros(8), 8, "hinge_loss", 1., 1., 0., 0.),
    "classes.predictions": lambda r, p: multiclass.predictions(*r, lanes(m)),
    "classes.weights_of": lambda r, p: multiclass.weights_of(*r, lanes(n), m),
    "system": lambda r, p: second_order.newton_system(*r, np.ones(n), np.ones(n), m),
    "product": lambda r, p: hessian_products.product(*r, np.ones(n), np.ones(m + 1)),
    "diagonal": lambda r, p: hessian_products.diagonal(*r, np.ones(n), m),
    "tangent": lambda r, p: hessian_products.tangent(*r, examples(), np.zeros(m), 0., squared,
        1.),
}
for kind in (np.int32, np.int64):
    for name, call in calls.items():
        call(given(kind), plan())
        for array in (1, 2):
            for place in (0, 7 % (n + 1), -1):
                for bad in (-1, d, 10**6, 2**31 - 1, -2**31):
                    if array == 2 and bad == d: continue
                    rows = given(kind)
                    rows[array][place] = bad
                    print(name, kind.__name__, array, place, bad, flush=True)
                    try:
                        call(rows, plan())
                    except InvalidArgumentError:
                        continue
                    raise SystemExit("accepted")
        for k in range(4):
            rows = given(kind)
            rows[k] = rows[k][:-1] if k > 1 else rows[k][:5]
            print(name, "short", k, flush=True)
            try:
                call(rows, plan())
            except InvalidArgumentError:
                continue
            raise SystemExit("accepted")
    for name in ("solver, exact", "solver", "solver, partitions", "blocks", "classes"):
        for bad in (-1, n, 2**62):
            order = plan()
            order[3] = bad
            print(name, "plan", bad, flush=True)
            try:
                calls[name](given(kind), order)
            except InvalidArgumentError:
                continue
            raise SystemExit("accepted")
"""


def test_kernels_refuse_what_nobody_has_checked() -> None:
    """In a process of its own, which a fault would end."""
    done = subprocess.run(
        [sys.executable, "-c", KERNELS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.stdout[-200:], done.stderr[-2000:])
