"""Blocks of codes: what numbers are stored as, and what the codes stand for."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from common.block_codes import BLOCKS, same
from hypothesis import given
from hypothesis import strategies as st

import tfopt
import tfopt_ref
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.storage import POSITIVE4, POSITIVE8, SIGNED4, SIGNED8, dequantize, quantize
from tfopt_ref.storage import loaded, stored

NAMES = ["signed8", "positive8", "signed4", "positive4", "dynamic8", "positive_dynamic8"]
IN_4_BITS = (SIGNED4, POSITIVE4)
each_code = pytest.mark.parametrize("dtype", BLOCKS, ids=NAMES)


@each_code
@given(data=st.data())
def test_codes_are_those_of_the_specification(dtype: Any, data: st.DataObject) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    n = data.draw(st.sampled_from([0, 1, 128, 200, 255, 256, 257, 1000]))
    flush = data.draw(st.booleans())
    patterns = random.integers(0, 2**32, n, np.uint32).view(np.float32)
    scale = np.float32(10) ** random.integers(-44, 38)
    with np.errstate(all="ignore"):
        usual = (random.standard_normal(n) * scale).astype(np.float32)
        chosen = random.random(n) < data.draw(st.sampled_from([0, 0.001, 1]))
        values = np.where(chosen, patterns, usual)
        for package in (tfopt, tfopt_ref):
            package.set_flush_denormals(flush)
        fast, ref = quantize(values, dtype), stored(values, dtype)
        assert same(fast, ref)
        assert same(dequantize(fast, (n,)), np.asarray(loaded(ref, (n,)), np.float32))


@given(st.integers(0, 2**32))
def test_codes_are_near(seed: int) -> None:
    """Within half a unit; of squares, within a 16th, and none that is not 0 becomes 0."""
    random = np.random.default_rng(seed)
    values = random.standard_normal(600).astype(np.float32)
    blocks = quantize(values, SIGNED8)
    units = np.repeat(blocks["unit"], 256)[:600]
    assert (abs(dequantize(blocks, (600,)) - values) <= units * 0.5001).all()
    squares = values * values * 10.0 ** -random.integers(0, 9, 600)
    squares[:3] = 0, 1e-30, 1e-20
    squares = squares.astype(np.float32)
    blocks = quantize(squares, POSITIVE8)
    least = np.repeat(blocks["unit"], 256)[:600] * 17 / 16 * 2.0**-15
    back = dequantize(blocks, (600,))
    large = squares >= least
    assert (abs(back - squares)[large] <= squares[large] / 15.99).all()
    assert np.allclose(back[~large], np.where(squares > 0, least, 0)[~large], 1e-6, 0)


@given(st.integers(0, 2**32))
def test_4_bits_are_neighbouring_powers_of_two(seed: int) -> None:
    random = np.random.default_rng(seed)
    values = (random.standard_normal(600) * 10.0 ** -random.integers(0, 3, 600)).astype(np.float32)
    for dtype, least in (SIGNED4, 2.0**-6), (POSITIVE4, 2.0**-15):
        x = values if dtype == SIGNED4 else values * values
        blocks = quantize(x, dtype)
        unit = np.repeat(blocks[dtype.names[0]].reshape(-1), 128)[:600]
        assert (unit[:128] == abs(x[:128]).max()).all()
        below = 2.0 ** np.floor(np.log2(abs(x) / unit))
        is_least = below < least
        below = np.where(is_least, 0 if dtype == SIGNED4 else least, below)
        above = np.where(is_least, least, np.minimum(2 * below, 1))
        back = dequantize(blocks, (600,)) / unit * np.sign(x)
        assert (np.isclose(back, below, 1e-6) | np.isclose(back, above, 1e-6)).all()
    zeros = dequantize(quantize(np.array([-1e-9, 1, 0], np.float32), SIGNED4), (3,))[::2]
    assert (zeros == 0).all() and not np.signbit(zeros).any()


@pytest.mark.parametrize("dtype", [POSITIVE8, SIGNED4, POSITIVE4], ids=lambda dtype: str(dtype))
@pytest.mark.parametrize("scale", [1.0, 0.1, 1e-3])
def test_the_mean_of_rounded_numbers_is_right(dtype: Any, scale: float) -> None:
    """Numbers that are a hundredth apart, where codes are a 16th or a power of two apart."""
    random = np.random.default_rng(0)
    for x in scale * np.arange(0.3, 0.9, 0.01):
        values = (x * random.uniform(0.99, 1.01, 1 << 16)).astype(np.float32)
        values[::128] = 1  # the unit
        back = dequantize(quantize(values, dtype), values.shape)
        apart = max(x, 2.0**-6) if dtype == SIGNED4 else x
        others = np.arange(values.size) % 128 > 0
        assert abs(back[others].mean() - values[others].mean()) < 0.01 * apart


@each_code
def test_every_code_is_stored_as_itself(dtype: Any) -> None:
    """If its block has the largest one: so slots that do not change are stored as they are."""
    codes = np.arange(256, dtype=np.uint8)
    if dtype in IN_4_BITS:
        pairs = codes.reshape(2, 128) % 16
        pairs[pairs == 8] = 0  # negative zero is no code
        codes = (pairs[0] + 16 * np.roll(pairs[1], 1)).astype(np.uint8)
    blocks = np.zeros(1, dtype)
    blocks[dtype.names[0]], blocks["codes"] = 0.25, codes.view(dtype["codes"].base)
    if dtype == SIGNED8:
        blocks["codes"][0, 128] = 0  # -128 is no code
    again = quantize(dequantize(blocks, (256,)), dtype)
    assert same(again, blocks) and same(stored(loaded(blocks, (256,)), dtype), blocks)


@each_code
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_block_with_a_number_that_is_not_finite_is_nan(dtype: Any, bad: float) -> None:
    values = np.ones(600, np.float32)
    values[300] = bad
    back = dequantize(quantize(values, dtype), (600,))
    stop = 384 if dtype in IN_4_BITS else 512  # where the next unit begins
    assert np.isnan(back[256:stop]).all() and (back[:256] == 1).all() and (back[stop:] == 1).all()


def test_conversions_refuse_other_arrays_than_blocks() -> None:
    with pytest.raises(InvalidTypeError, match="POSITIVE_DYNAMIC8, not float32"):
        quantize(np.ones(3), np.dtype(np.float32))
    with pytest.raises(InvalidTypeError, match="SIGNED8, POSITIVE8"):
        dequantize(np.ones(3), (3,))
    with pytest.raises(InvalidArgumentError, match=re.escape("(600,) are 3 blocks, not (2,)")):
        dequantize(quantize(np.ones(300), SIGNED8), (600,))
