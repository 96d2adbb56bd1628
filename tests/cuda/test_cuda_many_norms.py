"""Norms so many that each has threads of a warp: the bits of the host's sums, in double."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits
from common.clip_cases import FLOATS, array_of
from devices import DEVICE, HostArray

import tfopt
from tfopt.cuda.device_array import DeviceArray, as_device_array
from tfopt.cuda.library import load
from tfopt.cuda.norms import OWN, Norms, Slices
from tfopt.kernels.reduce.norms import norm

MANY = 1024  # as in lane_sums.h
FACTORS, NORM = 32, 32  # bytes of the structs

each_float = pytest.mark.parametrize("dtype", FLOATS)


def spread(shape: tuple[int, ...], dtype: str, scale: float = 1) -> np.ndarray:
    """Return numbers whose sum of squares depends on the order of its terms."""
    random = np.random.default_rng(0)
    values = random.standard_normal(shape) * 2.0 ** random.integers(-8, 8, shape) * scale
    return array_of(values, dtype)


def described(array: Any) -> DeviceArray:
    return as_device_array(array, "x")


def roots(norms: Norms) -> np.ndarray:
    """Return the norms that were computed, from memory of the stand-in device."""
    assert norms.address
    start = norms.address + norms.n * FACTORS
    kept = ctypes.string_at(start, norms.n * NORM)
    table = np.frombuffer(kept, np.dtype([("root", "f8"), ("exponent", "i8"), ("rest", "V16")]))
    return np.ldexp(table["root"], table["exponent"])


def expected(parts: list[np.ndarray]) -> np.ndarray:
    return np.array([np.ldexp(*norm([part])) for part in parts])


on_the_stand_in = pytest.mark.skipif(
    not DEVICE.name.startswith("host"), reason="norms are read from the stand-in's memory"
)


@on_the_stand_in
@each_float
@pytest.mark.parametrize(
    "size", [1, 7, 8, 9, 15, 16, 17, 32, 64, 65, 100, 128, 200, 255, 256, 257, 1000, 1024, 2053]
)
@pytest.mark.parametrize("n", [MANY - 1, MANY, MANY + 3])
def test_slices(dtype: str, size: int, n: int) -> None:
    """As many as have a block each, and as have threads of a warp; aligned and not."""
    values = spread((n, size), dtype)
    far = DEVICE.to(values)
    slices = Slices((n, size), (1,))
    with Norms.for_slices(load(), 0, 0, slices) as norms:
        norms.compute_slices(described(far), slices, np.inf, OWN)
        assert_same_bits(roots(norms), expected(list(values)), f"{size} of {dtype}")


@on_the_stand_in
@pytest.mark.parametrize("scale", [1e300, 1e-300])
@pytest.mark.parametrize("size", [3, 33, 300])
def test_slices_of_all_passes(scale: float, size: int) -> None:
    """Only some slices need further passes."""
    values = spread((MANY, size), "float64")
    values[::3] *= scale
    values[7] = 0
    far = DEVICE.to(values)
    slices = Slices(values.shape, (1,))
    with Norms.for_slices(load(), 0, 0, slices) as norms:
        norms.compute_slices(described(far), slices, np.inf, OWN)
        assert_same_bits(roots(norms), expected(list(values)), "norms")


@on_the_stand_in
@each_float
@pytest.mark.parametrize("shifted", [False, True])
def test_lists(dtype: str, shifted: bool) -> None:
    """Spans of many arrays, more than a launch holds, that begin at any element."""
    sizes = [*range(300), 70_000, 131_072, 0, 65_537, *[5] * 1500, 2000]
    arrays = [spread((n + shifted,), dtype)[int(shifted) :] for n in sizes]
    kept = [DEVICE.to(np.r_[np.ones(1, a.dtype), a] if shifted else a) for a in arrays]
    there = [described(DEVICE.part(a, slice(int(shifted), None))) for a in kept]
    with Norms.for_arrays(load(), 0, 0, there, own=True) as norms:
        norms.compute(there, np.inf, OWN, {}, own=True)
        assert_same_bits(roots(norms), expected(arrays), dtype)


@each_float
@pytest.mark.parametrize("axes", [[0], [1], [2], [0, 2], [1, 2]])
def test_any_axes(dtype: str, axes: list[int]) -> None:
    """Elements of a slice that are adjacent, and those that are not."""
    x = spread((40, 50, 60), dtype)
    clipped = tfopt.clip_by_norm(DEVICE.to(x), 3.0, axes)
    tfopt.set_flush_denormals(False)
    theirs = tfopt.clip_by_norm(x, 3.0, axes)
    assert_same_bits(DEVICE.back(clipped), theirs, f"axes {axes}")


@each_float
@pytest.mark.parametrize("inner", [1, 2, 3, 4, 7, 8, 16, 24, 1000])
@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("in_place", [False, True])
def test_slices_are_scaled(dtype: str, inner: int, shifted: bool, in_place: bool) -> None:
    """In packs of 16 bytes that are in one slice, and element by element."""
    x = spread((70 * inner + 1,), dtype)
    x[inner * 30 : inner * 40] *= np.float16(2.0**-14)  # which are not scaled
    x[1] = np.nan
    part = slice(1, None) if shifted else slice(None, -1)
    there = DEVICE.part(DEVICE.to(x), part)
    tfopt.set_flush_denormals(False)
    theirs = tfopt.clip_by_norm(x[part].reshape(5, 14, inner), 3.0, [2])
    far = there.reshape(5, 14, inner) if DEVICE.name != "host" else reshaped(there, inner)
    clipped = tfopt.clip_by_norm(far, 3.0, [2], out=far if in_place else None)
    assert_same_bits(DEVICE.back(clipped), theirs, f"{inner} of {dtype}")


def reshaped(there: Any, inner: int) -> HostArray:
    return HostArray(there.array.reshape(5, 14, inner), there.stream)


@on_the_stand_in
@pytest.mark.parametrize("bound", [0.5, 3.0])
def test_clamped_lists(bound: float) -> None:
    """Elements are clamped before they are squared, in warps as well."""
    arrays = [spread((7,), "float32") for _ in range(MANY + 1)]
    kept = [DEVICE.to(a) for a in arrays]
    there = [described(a) for a in kept]
    with Norms.for_arrays(load(), 0, 0, there, own=True) as norms:
        norms.compute(there, np.inf, OWN, {"float32": bound}, own=True)
        clamped = [np.clip(a, -np.float32(bound), np.float32(bound)) for a in arrays]
        assert_same_bits(roots(norms), expected(clamped), f"{bound}")
