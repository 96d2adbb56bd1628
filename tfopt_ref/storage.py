"""Slots in 8 bits: blocks of 256 codes with a unit each. A number is its code times the unit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tfopt_ref.arithmetic import operand, select

__all__ = ["BLOCK", "FEWEST", "POSITIVE8", "SIGNED8", "first_slot", "is_blocks", "loaded", "stored"]

BLOCK = 256
#: Slots of variables of fewer elements are not stored in 8 bits.
FEWEST = 4096
#: Numbers of either sign, in 127 steps to each side.
SIGNED8 = np.dtype([("unit", np.float32), ("codes", np.int8, (BLOCK,))])
#: Means of squares: numbers with 4 bits each of exponent and mantissa, and no sign.
POSITIVE8 = np.dtype([("unit", np.float32), ("codes", np.uint8, (BLOCK,))])


def is_blocks(array: np.ndarray) -> bool:
    """Return whether an array is one of blocks."""
    return array.dtype in (SIGNED8, POSITIVE8)


def loaded(blocks: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the numbers of an array of a shape, of which `blocks` holds the codes."""
    codes = blocks["codes"].astype(np.int32)
    if blocks.dtype == POSITIVE8:
        codes = np.where(codes > 0, np.ldexp(1 + codes % 16 / 16, codes // 16 - 15), 0)
    numbers = operand(codes, np.float32) * operand(blocks["unit"][:, None], np.float32)
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
    most = np.float32(127) if dtype == SIGNED8 else np.float32(31 / 16)
    top = np.max(abs(x), axis=1, keepdims=True, initial=np.float32(0))
    unit = select(np.isfinite(top), operand(top, np.float32) / most, np.float32(math.nan))
    inverse = np.float32(1) / unit
    unit, inverse = (select(np.isinf(inverse), np.float32(0), y) for y in (unit, inverse))
    multiples = np.asarray(x * inverse)
    codes = np.rint(multiples) if dtype == SIGNED8 else _positive_codes(multiples)
    blocks = np.zeros(n_blocks, dtype)
    blocks["unit"] = np.asarray(unit)[:, 0]
    blocks["codes"] = np.where(np.isnan(unit), np.float32(0), codes)
    return blocks


def _positive_codes(x: np.ndarray) -> np.ndarray:
    """Return 16 times the exponent, counted from 2^-15, plus the mantissa in sixteenths.

    Halves are rounded up.
    """
    half, exponent = np.frexp(x)  # x is (2 * half) * 2^(exponent - 1)
    codes = 16.0 * (exponent + 14) + np.floor((2 * half - 1) * 16 + 0.5)
    nearest: np.ndarray = np.where(x > 0, np.clip(codes, 1, 255), 0)
    return nearest


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
    if kind is None or (kind == "8bit" and (w.size < FEWEST or of_rows)):
        return full.astype(w.dtype)
    if kind == "8bit":
        return stored(full, POSITIVE8 if slot in _POSITIVE else SIGNED8)
    if kind == "bfloat16":
        import ml_dtypes

        return full.astype(ml_dtypes.bfloat16)
    return full.astype(kind)
