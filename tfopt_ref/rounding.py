"""Stochastic rounding to bfloat16: up or down at random, so that the expectation is the number."""

from __future__ import annotations

import numpy as np

LARGEST = np.float32(2.0**128 - 2.0**120)  # the largest finite number of bfloat16
_MASK = (1 << 64) - 1


def rounded(x: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Return float32 numbers rounded to bfloat16.

    Between two bfloat16 numbers there are 2^16 steps of float32. A number that is k steps from the
    one nearer to zero goes to the other if k plus the noise of 16 bits is at least 2^16. Beyond the
    largest finite bfloat16 number, rounding is to nearest.
    """
    import ml_dtypes

    bits = np.asarray(x, np.float32).view(np.uint32)
    k = bits % 2**16
    up = k + noise.astype(np.uint32) >= 2**16
    chosen = ((bits - k) // 2**16 + up).astype(np.uint16).view(ml_dtypes.bfloat16)
    with np.errstate(all="ignore"):
        nearest = np.asarray(x, np.float32).astype(ml_dtypes.bfloat16)
        last = np.abs(x) >= LARGEST
    result: np.ndarray = np.where(last | np.isnan(x), nearest, chosen)
    return result


def noise(seed: int, step: int, variable: int, operand: int, index: np.ndarray) -> np.ndarray:
    """Return 16 random bits for each element of an array of a step.

    Parameters
    ----------
    seed, step, variable, operand : int
        Steps are counted from 1, the variables of a step and the operands of a rule from 0.
    index : ndarray of int
        The indices of the elements in the array, in C order.

    Notes
    -----
    Two elements share a hash of 32 bits: one gets the low half, the other the high half. The hash
    has two rounds of xor-shift and multiplication. The second round begins with the array's key.
    """
    key = keyed(keyed(keyed(0, seed), step), variable)
    pair = np.asarray(index, np.uint64) // np.uint64(2)
    blocks = pair >> np.uint64(32)
    keys = {block: keyed(key, block) % 2**32 for block in map(int, np.unique(blocks))}
    own_key = np.vectorize(keys.__getitem__, otypes=[np.uint32])(blocks)
    x = (pair % np.uint64(2**32)).astype(np.uint32) ^ own_key
    own = np.uint32(keyed(key, operand + 1) % 2**32)
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint32(16))) * np.uint32(0x21F0AAAD)
        x = (x ^ (x >> np.uint32(15)) ^ own) * np.uint32(0xD35A2D97)
    x = x ^ (x >> np.uint32(15))
    bits: np.ndarray = np.where(np.asarray(index) % 2, x >> np.uint32(16), x).astype(np.uint16)
    return bits


def keyed(key: int, number: int) -> int:
    """Mix a number into a key of 64 bits by a step of SplitMix64 (Steele et al. 2014)."""
    z = ((key ^ number) + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
