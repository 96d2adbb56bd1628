"""Numbers for the cases: hashes of their places, so that they depend on no generator's version."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

__all__ = ["Place", "below", "mixed", "ordinary", "placed", "share"]

Place = int | Callable[[np.ndarray], Any]
#: How many numbers there are; each array has some consecutive ones of them.
SIZE = 1 << 19
_SPECIAL_BITS = 7  # of 2**7 mixed numbers one is special


def _hashes(first: int, n: int) -> np.ndarray:
    """Return outputs of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), which counts its state."""
    z = np.arange(first + 1, first + n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return z ^ (z >> np.uint64(31))


@cache
def _integers() -> np.ndarray:
    return _hashes(SIZE, SIZE)


@cache
def _numbers() -> np.ndarray:
    """Return numbers between -8 and 8, of several magnitudes: the same bits everywhere."""
    bits = _hashes(0, SIZE)
    fraction = (bits >> np.uint64(11)) * 2.0**-53
    exponent = (bits & np.uint64(7)).astype(np.int32) - 4
    return np.ldexp(np.where(bits & np.uint64(8), -fraction, fraction), exponent)


def _some(stock: np.ndarray, name: str, shape: tuple[int, ...]) -> np.ndarray:
    n = math.prod(shape)
    first = zlib.crc32(name.encode()) % (SIZE - n)
    return stock[first : first + n].reshape(shape)


def ordinary(name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return numbers of either sign, other ones for each name."""
    return _some(_numbers(), name, shape).astype(dtype)


def mixed(name: str, shape: tuple[int, ...], dtype: Any, *, denormal: bool = False) -> np.ndarray:
    """Return ordinary numbers with a few special ones among them, or many denormal ones."""
    numbers, choice = ordinary(name, shape, dtype), _some(_integers(), f"{name} which", shape)
    special = _special(np.dtype(dtype), denormal)
    which = (choice >> np.uint64(_SPECIAL_BITS)) % np.uint64(len(special))
    rare = np.uint64(1 if denormal else (1 << _SPECIAL_BITS) - 1)
    return np.where(choice & rare, numbers, special[which.astype(np.intp)])


@cache
def _special(dtype: np.dtype[Any], denormal: bool) -> np.ndarray:
    info = np.finfo(dtype)
    least, tiny = info.smallest_subnormal, info.tiny
    small = [least, 3 * least, tiny / 2, tiny - least, tiny, 1.5 * tiny, 2 * tiny, 0.0]
    others = [0.0, 1.0, 1 - info.epsneg, 1 + info.eps, tiny, info.max, np.inf]
    positive = np.array(small if denormal else others, dtype)
    return np.concatenate([positive, -positive, np.array([] if denormal else [np.nan], dtype)])


def share(name: str) -> float:
    """Return a number from 0.25 to 0.75, with 10 bits: a hyperparameter, for example."""
    return 0.25 + (zlib.crc32(name.encode()) & 1023) / 2048


def below(limit: int, name: str, n: int, dtype: Any = np.int64) -> np.ndarray:
    """Return integers from 0 up to a limit, repeated ones among them."""
    return (_some(_integers(), name, (n,)) % np.uint64(limit)).astype(dtype)


def placed(values: np.ndarray, place: Place) -> Any:
    """Return a copy in its place.

    A number says how many elements behind a line of 64 bytes it begins; a function makes the copy.
    """
    if callable(place):
        return place(values)
    size = values.itemsize
    memory = np.zeros(values.nbytes + 64 * (1 + size), np.uint8)
    start = -memory.ctypes.data % 64 + place * size
    copy = memory[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy
