"""Slots in 8 bits: blocks of 256 codes with a unit each. A number is its code's times the unit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tfopt_ref.arithmetic import operand, select

__all__ = [
    "BLOCK",
    "DYNAMIC8",
    "FEWEST",
    "POSITIVE8",
    "POSITIVE_DYNAMIC8",
    "SIGNED8",
    "dynamic_map",
    "first_slot",
    "is_blocks",
    "loaded",
    "stored",
]

BLOCK = 256
#: Slots of variables of fewer elements are not stored in 8 bits.
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


def is_blocks(array: np.ndarray) -> bool:
    """Return whether an array is one of blocks."""
    return array.dtype in (SIGNED8, POSITIVE8, *_DYNAMIC)


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
    codes = blocks["codes"].astype(np.int32)
    if blocks.dtype == POSITIVE8:
        codes = np.where(codes > 0, np.ldexp(1 + codes % 16 / 16, codes // 16 - 15), 0)
    elif blocks.dtype in _DYNAMIC:
        codes = dynamic_map(blocks.dtype == DYNAMIC8)[codes]
    unit = blocks[_unit_of(blocks.dtype)]
    numbers = operand(codes, np.float32) * operand(unit[:, None], np.float32)
    first: np.ndarray = numbers.reshape(-1)[: math.prod(shape)].reshape(shape)
    return first


def stored(numbers: np.ndarray, dtype: np.dtype[np.void]) -> np.ndarray:
    """Return numbers as blocks of codes.

    The unit gives the largest magnitude of a block the largest code. A block with an infinity or a
    NaN is all NaN. A square that is not 0 does not become 0.
    """
    n_blocks = -(-numbers.size // BLOCK)
    padded = np.zeros((n_blocks, BLOCK), np.float32)
    padded.reshape(-1)[: numbers.size] = np.asarray(numbers, np.float32).reshape(-1)
    x = operand(padded, np.float32)
    most = np.float32({SIGNED8: 127, POSITIVE8: 31 / 16}.get(dtype, 1))
    top = np.max(abs(x), axis=1, keepdims=True, initial=np.float32(0))
    unit = select(np.isfinite(top), operand(top, np.float32) / most, np.float32(math.nan))
    inverse = np.float32(1) / unit
    unit, inverse = (select(np.isinf(inverse), np.float32(0), y) for y in (unit, inverse))
    if dtype in _DYNAMIC:
        codes = _nearest(np.asarray(select(unit > 0, x / unit, np.float32(0))), dtype == DYNAMIC8)
    elif dtype == SIGNED8:
        codes = np.rint(np.asarray(x * inverse))
    else:
        codes = _positive_codes(np.asarray(x * inverse))
    blocks = np.zeros(n_blocks, dtype)
    blocks[_unit_of(dtype)] = np.asarray(unit)[:, 0]
    blocks["codes"] = np.where(np.isnan(unit), np.float32(0), codes)
    return blocks


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
    """Return 16 times the exponent, counted from 2^-15, plus the mantissa in sixteenths.

    Halves are rounded up.
    """
    half, exponent = np.frexp(x)  # x is (2 * half) * 2^(exponent - 1)
    codes = 16.0 * (exponent + 14) + np.floor((2 * half - 1) * 16 + 0.5)
    nearest: np.ndarray = np.where(x > 0, np.clip(codes, 1, 255), 0)
    return nearest


#: By kind: of numbers of either sign, and of squares.
_CODES = {"8bit": (SIGNED8, POSITIVE8), "dynamic8bit": _DYNAMIC}
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
