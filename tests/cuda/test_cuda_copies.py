"""Copies on a GPU, rounded to other dtypes: NumPy's bits, and what cannot be copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits
from common.clip_cases import array_of
from devices import DEVICE, HostArray
from test_cuda_bound_steps import there

import tfopt
from tfopt.cuda.library import LibraryError
from tfopt.cuda.updates import COPIES
from tfopt.kernels.update.commit import carry_out
from tfopt.updates.device_copy import DeviceCopy, copies_of

pytestmark = pytest.mark.usefixtures("gradual_underflow")

SIZES = [0, 1, 7, 8, 9, 255, 4095, 4096, 4097, 9000]
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 65504.0, 65520.0, 1e-8, 5.96e-8, 3.4e38, 2.0**-133]
PAIRS = sorted(COPIES)


def drawn(size: int, dtype: str) -> np.ndarray:
    random = np.random.default_rng(size)
    values = random.standard_normal(size) * 10.0 ** random.integers(-40, 38, size)
    values[: len(SPECIAL)] = SPECIAL[:size]
    with np.errstate(all="ignore"):
        return array_of(values, dtype)


def rounded(array: np.ndarray, scale: float, dtype: np.dtype[Any]) -> np.ndarray:
    with np.errstate(all="ignore"):
        if scale == 1:
            return array.astype(dtype)
        computed = np.float64 if array.dtype == np.float64 else np.float32
        return (array.astype(computed) * computed(scale)).astype(dtype)


@pytest.mark.parametrize("scale", [1.0, 1 / 3, 2.0**-20])
@pytest.mark.parametrize(("into", "of"), PAIRS)
def test_copies_are_rounded_as_by_numpy(into: str, of: str, scale: float) -> None:
    sources = [drawn(size, of) for size in SIZES]
    targets = [there(drawn(size, into)) for size in SIZES]
    carry_out([DeviceCopy(targets, "v").launch(list(map(there, sources)), scale)])
    for target, source in zip(targets, sources, strict=True):
        expected = rounded(source, scale, DEVICE.back(target).dtype)
        assert_same_bits(DEVICE.back(target), expected, f"{source.size} of {of} as {into}")


@pytest.mark.skipif(not DEVICE.on_host, reason="a GPU has one NaN")
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_a_copy_of_the_same_dtype_keeps_all_bits(dtype: str) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16).repeat(4)
    array = bits.view(array_of([0], dtype).dtype)
    target = there(np.zeros_like(array))
    carry_out([DeviceCopy([target], "v").launch([there(array)])])
    assert (DEVICE.back(target).view(np.uint16) == bits).all()


@pytest.mark.parametrize("shift", [0, 1, 4])
@pytest.mark.parametrize(("into", "of"), PAIRS)
def test_copies_of_parts(into: str, of: str, shift: int) -> None:
    """Wherever they begin; and what lies around them stays."""
    for from_shift in (0, 1, 8):
        whole, read = there(drawn(310, into)), there(drawn(310, of))
        part = DEVICE.part(whole, np.s_[shift : shift + 300])
        source = DEVICE.part(read, np.s_[from_shift : from_shift + 300])
        carry_out([DeviceCopy([part], "v").launch([source])])
        expected = drawn(310, into)
        expected[shift : shift + 300] = rounded(
            drawn(310, of)[from_shift:][:300], 1.0, expected.dtype
        )
        assert_same_bits(DEVICE.back(whole), expected, f"from {from_shift}")


def test_more_arrays_than_a_launch_holds() -> None:
    targets = [there(np.zeros(3, np.float16)) for _ in range(2500)]
    sources = [there(np.full(3, k, np.float32)) for k in range(2500)]
    carry_out([DeviceCopy(targets, "v").launch(sources)])
    for k in (0, 1134, 1135, 2499):
        assert_same_bits(DEVICE.back(targets[k]), np.full(3, k, np.float16), str(k))


def test_several_dtypes_at_once() -> None:
    dtypes = [("float32", "bfloat16"), ("float64", "float64"), ("float32", "float32")] * 2
    targets = [there(drawn(5, into)) for into, _ in dtypes]
    sources = [there(drawn(5, of)) for _, of in dtypes]
    carry_out([DeviceCopy(targets, "v").launch(sources)])
    for (into, of), target in zip(dtypes, targets, strict=True):
        expected = rounded(drawn(5, of), 1.0, array_of([0], into).dtype)
        assert_same_bits(DEVICE.back(target), expected, into)


def test_new_copies() -> None:
    arrays = [there(drawn(9, "float32")), there(drawn(0, "bfloat16"))]
    same = copies_of(arrays, "v")
    other = copies_of(arrays[:1], "v", [np.dtype(np.float16)])
    assert_same_bits(DEVICE.back(same[0]), drawn(9, "float32"), "same")
    assert DEVICE.back(same[1]).shape == (0,)
    assert_same_bits(
        DEVICE.back(other[0]), rounded(drawn(9, "float32"), 1, np.dtype("f2")), "other"
    )


# ---- refusals


def test_what_cannot_be_copied() -> None:
    memory = there(np.zeros(6, np.float32))
    ones = there(np.ones(3, np.float32))
    first, last = DEVICE.part(memory, np.s_[:3]), DEVICE.part(memory, np.s_[2:5])
    refused = [
        ([ones], [there(np.ones(4, np.float32))]),
        ([DEVICE.part(memory, np.s_[::2])], [ones]),
        ([ones], [DEVICE.part(memory, np.s_[::2])]),
        ([first, last], [ones, ones]),
        ([first], [last]),
    ]
    if DEVICE.name == "host":
        many = [HostArray(np.zeros(3, np.float32), 100 + k) for k in range(10)]
        refused.append((many, [ones] * 10))
    for targets, sources in refused:
        with pytest.raises(tfopt.InvalidTypeError, match=r"^v is on a GPU, where all arrays"):
            DeviceCopy(targets, "v").launch(sources)
    with pytest.raises(tfopt.InvalidTypeError, match="must be an array on the GPU"):
        DeviceCopy([ones], "v").launch([np.ones(3, np.float32)])
    assert_same_bits(DEVICE.back(memory), np.zeros(6, np.float32), "memory")


@pytest.mark.skipif(not DEVICE.on_host, reason="a GPU cannot be told to fail")
def test_a_launch_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    target = there(np.zeros(3, np.float32))
    copy = DeviceCopy([target], "v")
    with monkeypatch.context() as failing:
        failing.setenv("TFOPT_HOST_FAILS", "launch")
        with pytest.raises(LibraryError):
            carry_out([copy.launch([there(np.ones(3, np.float32))])])
    assert_same_bits(DEVICE.back(target), np.zeros(3, np.float32), "target")
    carry_out([copy.launch([there(np.ones(3, np.float32))])])
    assert_same_bits(DEVICE.back(target), np.ones(3, np.float32), "target")
