"""Slots in blocks of 256 codes of 8 or 4 bits. A code stands for a number in terms of a unit."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tfopt_ref.arithmetic import dtype_named, operand, select

BLOCK = 256
#: Slots of variables with fewer elements are not stored in blocks.
FEWEST = 4096


class Format(NamedTuple):
    """A storage of numbers as codes.

    A unit belongs to a block or, in 4 bits, to half a block. In this unit, the largest magnitude of
    the numbers is `top`. `encoded` maps numbers in units to codes, and `decoded` maps codes to
    numbers in units. Numbers in units are quotients by the unit, or products with its inverse.
    """

    top: float
    encoded: Callable[[np.ndarray], np.ndarray]
    decoded: Callable[[np.ndarray], np.ndarray]
    quotients: bool = False
    half_blocks: bool = False


def stored(numbers: np.ndarray, dtype: np.dtype[np.void]) -> np.ndarray:
    """Return numbers as blocks of codes.

    Numbers that share a unit with an infinity or a NaN all become NaN. A nonzero square does not
    become 0.
    """
    form, blocks = FORMATS[dtype], np.zeros(-(-numbers.size // BLOCK), dtype)
    padded = np.zeros(blocks.size * BLOCK, np.float32)
    padded[: numbers.size] = np.asarray(numbers, np.float32).reshape(-1)
    x = operand(padded.reshape(-1, BLOCK // 2 if form.half_blocks else BLOCK), np.float32)
    zero, one = np.float32(0), np.float32(1)
    largest = operand(np.max(abs(x), axis=1, keepdims=True, initial=zero), np.float32)
    unit = select(np.isfinite(largest), largest / np.float32(form.top), np.float32(math.nan))
    inverse = one / unit
    unit, inverse = (select(np.isinf(inverse), zero, y) for y in (unit, inverse))
    in_units = select(unit > 0, x / unit, zero) if form.quotients else x * inverse
    codes = np.where(np.isnan(unit), zero, form.encoded(np.asarray(in_units)))
    if form.half_blocks:
        codes = codes[:, :64] + 16 * codes[:, 64:]
    for field, values in ((_unit_of(blocks), np.asarray(unit)), ("codes", codes)):
        blocks[field] = values.reshape(blocks[field].shape)
    return blocks


def loaded(blocks: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array of a shape with the numbers whose codes are in `blocks`."""
    form, codes = FORMATS[blocks.dtype], blocks["codes"]
    if form.half_blocks:
        pairs = codes.reshape(-1, 64)
        codes = np.concatenate([pairs % 16, pairs // 16], axis=1)
    in_units = operand(form.decoded(codes.astype(np.int32)), np.float32)
    unit = operand(blocks[_unit_of(blocks)].reshape(-1, 1), np.float32)
    first: np.ndarray = (in_units * unit).reshape(-1)[: math.prod(shape)].reshape(shape)
    return first


def is_blocks(array: np.ndarray) -> bool:
    """Return whether an array consists of blocks."""
    return array.dtype in FORMATS


def _unit_of(blocks: np.ndarray) -> str:
    assert blocks.dtype.names
    return blocks.dtype.names[0]


# ---- the codes of each format


def dynamic_map(signed: bool) -> np.ndarray:
    """Return the numbers of the 256 codes of the dynamic data type, in ascending order.

    Smaller decades have fewer bits for the fraction: the decade up to 10^(i - 6) is divided into
    2^i equal parts, or 2^(i + 1) without a sign, and the numbers are the middles of the parts. The
    other two codes are 0 and 1. (Dettmers, 8-Bit Approximations for Parallelism in Deep Learning,
    2015, as bitsandbytes computes it in float32: the ends of the parts are counted from the nearer
    end of the decade.)
    """
    table = [np.zeros(1), np.ones(1)]
    for i in range(7):
        parts = 2**i if signed else 2 ** (i + 1)
        k = np.arange(parts + 1)
        part = np.float64((np.float32(1) - np.float32(0.1)) / np.float32(parts))
        from_below = np.float32(np.float64(np.float32(0.1)) + part * k)
        from_above = np.float32(1 - part * (parts - k))
        ends = np.where(k < (parts + 1) // 2, from_below, from_above)
        sizes = np.float32(10.0 ** (i - 6)) * ((ends[:-1] + ends[1:]) / np.float32(2))
        table += [sizes, -sizes] if signed else [sizes]
    return np.sort(np.concatenate(table).astype(np.float32))


def _nearest(signed: bool, x: np.ndarray) -> np.ndarray:
    """Return the indices of the nearest numbers in the table; the lower one in a tie."""
    table = dynamic_map(signed)
    middles = (table[:-1] + table[1:]) / np.float32(2)
    places: np.ndarray = np.searchsorted(middles, x)
    return places


def _rounded(x: np.ndarray, bits: int) -> np.ndarray:
    """Return 2^bits times the exponent of a positive float32, plus its mantissa in 2^bits parts.

    The rest of the mantissa is rounded up if its sum with a hash of the number reaches the next
    part. So the mean of many rounded numbers is right.
    """
    fraction, exponent = np.frexp(x)  # x is (2 * fraction) * 2^(exponent - 1)
    parts = np.float64(2 * fraction.astype(np.float64) - 1) * 2**bits
    cut = 23 - bits
    noise = x.view(np.uint32).astype(np.uint64) * 0x9E3779B1 % 2**32 // 2 ** (32 - cut)
    up = (parts - np.floor(parts)) + noise / 2**cut >= 1
    codes: np.ndarray = 2**bits * (exponent - 1) + np.floor(parts) + up
    return codes


def _positive8(x: np.ndarray) -> np.ndarray:
    """Return 16 times the exponent, counted from 2^-15, plus the mantissa in sixteenths."""
    codes = 16 * 15 + _rounded(np.maximum(x, np.float32(1.0625 / 32768)), 4)
    positive: np.ndarray = np.where(x > 0, np.minimum(codes, 255), 0)
    return positive


def _signed4(x: np.ndarray) -> np.ndarray:
    """Return the index of a magnitude among 0, 2^-6, ..., 1, plus 8 for negative numbers.

    Below 2^-6, the share of the way from 0 is rounded as the same share of the way from 2^-7. Zero
    has no sign.
    """
    size = np.minimum(abs(x), np.float32(1))
    raised = np.maximum(size, (size + np.float32(2.0**-6)) * np.float32(0.5))
    places = _rounded(raised, 0) + 7
    codes: np.ndarray = places + 8 * ((x < 0) & (places > 0))
    return codes


def _of_signed4(codes: np.ndarray) -> np.ndarray:
    """Return the magnitudes at these indices, with their signs."""
    sizes = np.where(codes % 8 > 0, np.ldexp(1.0, codes % 8 - 7), 0.0)
    return np.where(codes < 8, sizes, -sizes)


#: Signed numbers, with 127 steps to each side.
SIGNED8 = np.dtype([("unit", np.float32), ("codes", np.int8, (BLOCK,))])
#: Means of squares: unsigned numbers with 4 bits of exponent and 4 bits of mantissa.
POSITIVE8 = np.dtype([("unit", np.float32), ("codes", np.uint8, (BLOCK,))])
#: Indices in a table of numbers from -0.993 to 1 (`dynamic_map`), and in one from 0 to 1.
DYNAMIC8 = np.dtype([("absmax", np.float32), ("codes", np.uint8, (BLOCK,))])
POSITIVE_DYNAMIC8 = np.dtype([("max", np.float32), ("codes", np.uint8, (BLOCK,))])
#: The first two formats in 4 bits, with a unit for each half of a block. Byte i of a half has the
#: code of its number i in the lower bits, and of number 64 + i in the higher bits.
SIGNED4 = np.dtype([("absmax", np.float32, (2,)), ("codes", np.uint8, (BLOCK // 2,))])
POSITIVE4 = np.dtype([("max", np.float32, (2,)), ("codes", np.uint8, (BLOCK // 2,))])

#: The formats by the dtype of a block.
FORMATS: dict[np.dtype[Any], Format] = {
    SIGNED8: Format(127, np.rint, np.asarray),
    POSITIVE8: Format(
        31 / 16,
        _positive8,
        lambda codes: np.where(codes > 0, np.ldexp(1 + codes % 16 / 16, codes // 16 - 15), 0),
    ),
    DYNAMIC8: Format(1, partial(_nearest, True), dynamic_map(True).take, quotients=True),
    POSITIVE_DYNAMIC8: Format(1, partial(_nearest, False), dynamic_map(False).take, quotients=True),
    SIGNED4: Format(1, _signed4, _of_signed4, half_blocks=True),
    POSITIVE4: Format(  # an exponent, counted from 2^-15
        1,
        lambda x: _rounded(np.clip(x, np.float32(2.0**-15), 1), 0) + 15,
        lambda codes: np.ldexp(1.0, codes - 15),
        half_blocks=True,
    ),
}
#: The dtypes of blocks by kind: for signed numbers, and for squares.
KINDS = {"8bit": (SIGNED8, POSITIVE8), "4bit": (SIGNED4, POSITIVE4)}
KINDS["dynamic8bit"] = DYNAMIC8, POSITIVE_DYNAMIC8
#: The slots that are means of squares or of magnitudes.
POSITIVE = {"accum_grad", "accum_var", "rms", "v", "vhat"}


def first_slot(
    w: np.ndarray, slot: str, value: float, storage: Any, of_rows: bool = False
) -> np.ndarray:
    """Return the stored form of a variable's slot before the first step, filled with one value.

    It has a number for each element or, with `of_rows`, for each row.
    """
    kind = storage.get(slot) if isinstance(storage, dict) else storage
    full = np.full(w.shape[:1] if of_rows else w.shape, value)
    if kind is None or (kind in KINDS and (w.size < FEWEST or of_rows)):
        return full.astype(w.dtype)
    if kind in KINDS:
        return stored(full, KINDS[kind][slot in POSITIVE])
    return full.astype(dtype_named(kind))
