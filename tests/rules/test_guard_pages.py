"""No kernel reads or writes outside its arrays: they end, or begin, at memory nobody may touch."""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np
import pytest
from common.cases import DTYPES, RULES, WITH_ROWS, arrays_for, assert_same_bits, ordinary_hypers
from ml_dtypes import bfloat16

import tfopt
from tfopt.kernels.arrays.csr import check_csr
from tfopt.kernels.text.hashed_text import parse
from tfopt.rules import Rule

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mprotect as Linux has it")
PAGE = mmap.PAGESIZE
STORED = (*DTYPES, "float16", bfloat16)


class Guarded:
    """A page, or more, between two that are protected."""

    def __init__(self, pages: int = 1) -> None:
        self.end = (pages + 1) * PAGE
        self.memory = mmap.mmap(-1, self.end + PAGE)
        self.bytes = np.frombuffer(self.memory, np.uint8)
        libc = ctypes.CDLL(None, use_errno=True)
        for page in (0, pages + 1):
            address = ctypes.c_void_p(self.bytes.ctypes.data + page * PAGE)
            assert libc.mprotect(address, PAGE, 0) == 0  # PROT_NONE

    def array(self, values: np.ndarray, at_end: bool) -> np.ndarray:
        start = self.end - values.nbytes if at_end else PAGE
        array = self.bytes[start : start + values.nbytes].view(values.dtype)
        array = array.reshape(values.shape)
        array[...] = values
        return array


@pytest.fixture(scope="module")
def guarded() -> list[Guarded]:
    return [Guarded() for _ in range(5)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("at_end", [False, True], ids=["begin", "end"])
def test_dense(guarded: list[Guarded], rule: Rule, dtype: str, at_end: bool) -> None:
    function = getattr(tfopt.training_ops, f"apply_{rule.name}")
    for length in range(68):
        values = arrays_for(rule, length, dtype)
        arrays = [g.array(v, at_end) for g, v in zip(guarded, values, strict=False)]
        function(*arrays, **ordinary_hypers(rule))
        function(*values, **ordinary_hypers(rule))
        for name, a, b in zip(rule.operands, arrays, values, strict=True):
            assert_same_bits(a, b, f"{name}, {length} elements")


@pytest.mark.parametrize("rule", WITH_ROWS, ids=lambda rule: rule.name)
@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("at_end", [False, True], ids=["begin", "end"])
def test_sparse(guarded: list[Guarded], rule: Rule, dtype: str, at_end: bool) -> None:
    """Prefetching runs ahead, but not the loads and stores."""
    function = getattr(tfopt.training_ops, f"apply_{rule.name}")
    ids = np.array([6, 0, 6, 3, 5, 1, 0, 6, 2, 6, 4, 6])
    for width in (1, 2, 7, 9, 16, 33):
        *variables, _ = arrays_for(rule, (7, width), dtype)
        grad = np.random.default_rng(0).standard_normal((len(ids), width)).astype(dtype)
        values = [*variables, grad]
        arrays = [g.array(v, at_end) for g, v in zip(guarded, values, strict=False)]
        function(*arrays, **ordinary_hypers(rule), indices=ids)
        function(*values, **ordinary_hypers(rule), indices=ids)
        for name, a, b in zip(rule.operands, arrays, values, strict=True):
            assert_same_bits(a, b, f"{name}, rows of {width}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("at_end", [False, True], ids=["begin", "end"])
def test_clipping(guarded: list[Guarded], dtype: str, at_end: bool) -> None:
    for length in range(68):
        values = np.linspace(-2, 3, length).astype(dtype)
        t, out, low, high = (g.array(values, at_end) for g in guarded[:4])
        for axes in (None, [], [0]):
            tfopt.clip_by_norm(t, 0.5, axes, out=out)
            expected = tfopt.clip_by_norm(values, 0.5, axes)
            assert_same_bits(out, expected, f"axes {axes}, {length} elements")
        tfopt.clip_by_value(t, low, high, out=out)
        assert_same_bits(out, values, f"{length} elements")
        tfopt.clip_by_value(t, -1, 1, out=t)
        assert_same_bits(t, np.clip(values, -1, 1), f"{length} elements")


@pytest.mark.parametrize("index", ["i4", "i8"])
@pytest.mark.parametrize("n_rows", [0, 1, 65_535, 65_536, 65_537, 140_000])
@pytest.mark.parametrize("at_end", [False, True], ids=["begin", "end"])
def test_checks_of_sparse_matrices(index: str, n_rows: int, at_end: bool) -> None:
    """Whose indices are looked at in blocks, of which the last is a part of one."""
    ends, columns = np.arange(n_rows + 1, dtype=index), np.arange(n_rows, dtype=index) % 3
    ends, columns = (Guarded(1 + a.nbytes // PAGE).array(a, at_end) for a in (ends, columns))
    check_csr(np.zeros(n_rows), columns, ends, (n_rows, 3))


@pytest.mark.parametrize("at_end", [False, True], ids=["begin", "end"])
@pytest.mark.parametrize("roles", [b"\3\1", b"\4\2", None], ids=["text", "numbers", "vw"])
def test_hashed_text(guarded: list[Guarded], roles: bytes | None, at_end: bool) -> None:
    random = np.random.default_rng(0)
    parts = np.frombuffer(b'"",\n\r| :1a-.e', np.uint8)
    for _ in range(3000):
        values = random.choice(parts, random.integers(0, 30))
        more = roles, [(0, 1)], 7, ord(","), roles is not None
        for is_last in (False, True):
            found = [
                parse(text, is_last, [b"a", b"1"], *more, False, True)
                for text in (guarded[0].array(values, at_end), values)
            ]
            for one, other in zip(*found, strict=True):
                np.testing.assert_array_equal(one, other)
