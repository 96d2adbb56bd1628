"""Slots in blocks of 256 codes, of 8 or 4 bits. A number is its code's times a unit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tfopt_ref.arithmetic import operand, select

BLOCK = 256
#: Slots of variables of fewer elements are not stored in blocks.
FEWEST = 4096
#: Numbers of either sign, in 127 steps to each side.
SIGNED8 = np.dtype([("unit", np.float32), ("codes", np.int8, (BLOCK,))])
#: Means of squares: numbers with 4 bits each of exponent and mantissa, and no sign.
POSITIVE8 = np.dtype([("unit", np.float32), ("codes", np.uint8, (BLOCK,))])
#: Places in a table of numbers from -0.993 to 1 (`dynamic_map`).
DYNAMIC8 = np.dtype([("absmax", np.float32), ("codes", np.uint8, (BLOCK,))])
#: Places in a table of numbers from 0 to 1.
POSITIVE_DYNAMIC8 = np.dtype([("max", np.float32), ("codes", np.uint8, (BLOCK,))])
_DYNAMIC = (DYNAMIC8, POSITIVE_DYNAMIC8)
#: The same two in 4 bits, with a unit for each half of a block; byte i of a half has the codes of
#: its numbers i, in the lower bits, and 64 + i.
SIGNED4 = np.dtype([("absmax", np.float32, (2,)), ("codes", np.uint8, (BLOCK // 2,))])
POSITIVE4 = np.dtype([("max", np.float32, (2,)), ("codes", np.uint8, (BLOCK // 2,))])
_IN_4_BITS = (SIGNED4, POSITIVE4)


def is_blocks(array: np.ndarray) -> bool:
    """Return whether an array is one of blocks."""
    return array.dtype in (SIGNED8, POSITIVE8, *_DYNAMIC, *_IN_4_BITS)


def dynamic_map(signed: bool) -> np.ndarray:
    """Return what the 256 codes of the dynamic data type stand for, in ascending order.

    The smaller a number's decade, the fewer bits are left for its fraction: the decade up to
    10^(i - 6) is divided into 2^i equal parts, or 2^(i + 1) where no bit is needed for a sign, and
    has their middles. Of the rest, one code is 0 and one is 1. (Dettmers, 8-Bit Approximations for
    Parallelism in Deep Learning, 2015, as bitsandbytes builds it of float32 numbers: the ends of
    the parts are counted from the nearer end of the decade.)
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


def loaded(blocks: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the numbers of an array of a shape, of which `blocks` holds the codes."""
    codes = _unpacked(blocks).astype(np.int32)
    if blocks.dtype == SIGNED4:
        sizes = np.where(codes % 8 > 0, np.ldexp(1.0, codes % 8 - 7), 0.0)
        codes = np.where(codes < 8, sizes, -sizes)
    elif blocks.dtype == POSITIVE4:
        codes = np.ldexp(1.0, codes - 15)
    elif blocks.dtype == POSITIVE8:
        codes = np.where(codes > 0, np.ldexp(1 + codes % 16 / 16, codes // 16 - 15), 0)
    elif blocks.dtype in _DYNAMIC:
        codes = dynamic_map(blocks.dtype == DYNAMIC8)[codes]
    unit = blocks[_unit_of(blocks.dtype)].reshape(-1, 1)
    numbers = operand(codes, np.float32) * operand(unit, np.float32)
    first: np.ndarray = numbers.reshape(-1)[: math.prod(shape)].reshape(shape)
    return first


def stored(numbers: np.ndarray, dtype: np.dtype[np.void]) -> np.ndarray:
    """Return numbers as blocks of codes.

    The unit gives the largest magnitude of a block the largest code; in 4 bits, that of half a
    block. Numbers that have a unit in common with an infinity or a NaN are all NaN. A square that
    is not 0 does not become 0.
    """
    n_blocks = -(-numbers.size // BLOCK)
    shape = (2 * n_blocks, BLOCK // 2) if dtype in _IN_4_BITS else (n_blocks, BLOCK)
    padded = np.zeros(shape, np.float32)
    padded.reshape(-1)[: numbers.size] = np.asarray(numbers, np.float32).reshape(-1)
    x = operand(padded, np.float32)
    most = np.float32({SIGNED8: 127, POSITIVE8: 31 / 16}.get(dtype, 1))
    top = np.max(abs(x), axis=1, keepdims=True, initial=np.float32(0))
    unit = select(np.isfinite(top), operand(top, np.float32) / most, np.float32(math.nan))
    inverse = np.float32(1) / unit
    unit, inverse = (select(np.isinf(inverse), np.float32(0), y) for y in (unit, inverse))
    if dtype in _DYNAMIC:
        codes = _nearest(np.asarray(select(unit > 0, x / unit, np.float32(0))), dtype == DYNAMIC8)
    elif dtype == SIGNED4:
        codes = _signed4_codes(np.asarray(x * inverse))
    elif dtype == POSITIVE4:
        codes = _rounded(np.clip(np.asarray(x * inverse), np.float32(2.0**-15), 1), 0) + 15
    elif dtype == SIGNED8:
        codes = np.rint(np.asarray(x * inverse))
    else:
        codes = _positive_codes(np.asarray(x * inverse))
    blocks = np.zeros(n_blocks, dtype)
    codes = np.where(np.isnan(unit), np.float32(0), codes)
    if dtype in _IN_4_BITS:
        codes = codes[:, :64] + 16 * codes[:, 64:]
    for field, values in (_unit_of(dtype), np.asarray(unit)), ("codes", codes):
        blocks[field] = values.reshape(blocks[field].shape)
    return blocks


def _unpacked(blocks: np.ndarray) -> np.ndarray:
    """Return the codes of blocks, those that have a unit in common as a row."""
    codes: np.ndarray = blocks["codes"]
    if blocks.dtype in _IN_4_BITS:
        pairs = codes.reshape(-1, 64)
        codes = np.concatenate([pairs % 16, pairs // 16], axis=1)
    return codes


def _rounded(x: np.ndarray, bits: int) -> np.ndarray:
    """Return 2^bits times a positive float32's exponent, plus its mantissa in so many parts.

    What is left of the mantissa is rounded up where its sum with a hash of the number reaches the
    next part: so likely that the mean of many is right.
    """
    fraction, exponent = np.frexp(x)  # x is (2 * fraction) * 2^(exponent - 1)
    parts = np.float64(2 * fraction.astype(np.float64) - 1) * 2**bits
    cut = 23 - bits
    noise = x.view(np.uint32).astype(np.uint64) * 0x9E3779B1 % 2**32 // 2 ** (32 - cut)
    up = (parts - np.floor(parts)) + noise / 2**cut >= 1
    codes: np.ndarray = 2**bits * (exponent - 1) + np.floor(parts) + up
    return codes


def _signed4_codes(x: np.ndarray) -> np.ndarray:
    """Return the place of a size among 0, 2^-6, ..., 1, and 8 more for negative numbers.

    Less than 2^-6 is rounded as the same share of the way from 2^-7 on. Zero has no sign.
    """
    size = np.minimum(abs(x), np.float32(1))
    raised = np.maximum(size, (size + np.float32(2.0**-6)) * np.float32(0.5))
    places = _rounded(raised, 0) + 7
    codes: np.ndarray = places + 8 * ((x < 0) & (places > 0))
    return codes


def _unit_of(dtype: np.dtype[np.void]) -> str:
    assert dtype.names
    return dtype.names[0]


def _nearest(x: np.ndarray, signed: bool) -> np.ndarray:
    """Return the places of the nearest numbers of a table, the lower ones of two equally near."""
    table = dynamic_map(signed)
    middles = (table[:-1] + table[1:]) / np.float32(2)
    places: np.ndarray = np.searchsorted(middles, x)
    return places


def _positive_codes(x: np.ndarray) -> np.ndarray:
    """Return 16 times the exponent, counted from 2^-15, plus the mantissa in sixteenths."""
    codes = 16 * 15 + _rounded(np.maximum(x, np.float32(1.0625 / 32768)), 4)
    positive: np.ndarray = np.where(x > 0, np.minimum(codes, 255), 0)
    return positive


#: By kind: of numbers of either sign, and of squares.
_CODES = {"8bit": (SIGNED8, POSITIVE8), "4bit": _IN_4_BITS, "dynamic8bit": _DYNAMIC}
#: The slots that are means of squares, or of magnitudes.
_POSITIVE = {"accum_grad", "accum_var", "rms", "v", "vhat"}


def first_slot(
    w: np.ndarray, slot: str, value: float, storage: Any, of_rows: bool = False
) -> np.ndarray:
    """Return a slot of a variable before the first step, all of one value, as it is stored.

    It has one number for each element, or for each row.
    """
    kind = storage.get(slot) if isinstance(storage, dict) else storage
    full = np.full(w.shape[:1] if of_rows else w.shape, value)
    if kind is None or (kind in _CODES and (w.size < FEWEST or of_rows)):
        return full.astype(w.dtype)
    if kind in _CODES:
        return stored(full, _CODES[kind][slot in _POSITIVE])
    if kind == "bfloat16":
        import ml_dtypes

        return full.astype(ml_dtypes.bfloat16)
    return full.astype(kind)
