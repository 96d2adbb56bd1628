"""The storage of slots: dtypes of blocks of codes, and conversion from and to numbers.

A block holds 256 numbers of a C-contiguous array, in its order: in 8 bits in 260 bytes, a ``unit``
and 256 ``codes``. It is an ordinary structured dtype, so that arrays of blocks can be saved, copied
and shared like any others.

`SIGNED8`
    A number is its code, from -127 to 127, times the unit.
`POSITIVE8`
    For means of squares: a code stands for a number with 4 bits each of exponent and mantissa, from
    17/16 * 2**-15 to 31/16, so that small ones are as precise as large ones. A positive number
    does not become 0, since steps are divided by it; negative ones do. Numbers are rounded up or
    down by a hash of their own bits, which has no bias: a mean of squares changes so little in a
    step that rounded to the nearest code it would often stay the same forever.

The unit gives the largest magnitude of its block the largest code. A block with an infinity or a
NaN is all NaN.

`SIGNED4`, `POSITIVE4`
    The same in 4 bits, in 136 bytes (blocks of 128 as in Li, Chen, Zhu, Memory Efficient Optimizers
    with 4-bit States, NeurIPS 2023, but other codes). Each half of a block has a unit, its largest
    magnitude, ``absmax`` or ``max``, and 64 bytes; byte i has the codes of its numbers i, in the
    lower bits, and 64 + i. A code of `SIGNED4` stands for 0, or for a power of two from 2**-6 to 1
    of either sign; one of `POSITIVE4` for a power from 2**-15 to 1, and never for 0. Both are
    rounded up or down like `POSITIVE8`.

`DYNAMIC8`, `POSITIVE_DYNAMIC8`
    The codes of bitsandbytes, of numbers of either sign and of means of squares: places in a table
    of 256 numbers up to 1, of which each decade has twice as many as the next smaller one. The
    unit, ``absmax`` or ``max``, is the largest magnitude. Small means of squares may become 0.
    Steps run on them so that a state goes from one library to the other and back without being
    rounded to other codes.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.kernels.arrays import layout
from tfopt.kernels.arrays.coerce import BLOCK_FORMATS, FIRST_BLOCK_FORMAT

__all__ = [
    "BLOCK",
    "DYNAMIC8",
    "POSITIVE4",
    "POSITIVE8",
    "POSITIVE_DYNAMIC8",
    "SIGNED4",
    "SIGNED8",
    "dequantize",
    "dynamic_map",
    "quantize",
    "shape_in",
]


class Format(NamedTuple):
    """A format of blocks of codes."""

    name: str  # in files
    storage: str  # of an optimizer
    codes: str  # of its slots: signed or positive
    dtype: np.dtype[Any]


FORMATS = tuple(Format(*row) for row in BLOCK_FORMATS)
BLOCKS = tuple(each.dtype for each in FORMATS)
SIGNED8, POSITIVE8, SIGNED4, POSITIVE4, DYNAMIC8, POSITIVE_DYNAMIC8 = BLOCKS
#: The number of codes in a block.
BLOCK: int = SIGNED8["codes"].shape[0]
# The storage types of kernels/arrays/layout.pxd
_NUMBERS = {dtype: number for number, dtype in enumerate(BLOCKS, FIRST_BLOCK_FORMAT)}
_NAMES = " or ".join(", ".join(each.name.upper() for each in FORMATS).rsplit(", ", 1))


def shape_in(dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of the array of a dtype that stores numbers of a shape."""
    return (-(-math.prod(shape) // BLOCK),) if dtype in _NUMBERS else shape


def dynamic_map(dtype: np.dtype[Any]) -> np.ndarray:
    """Return the 256 numbers that the codes of `DYNAMIC8` or `POSITIVE_DYNAMIC8` stand for.

    They are, to the last bit, those of ``bitsandbytes.functional.create_dynamic_map``.

    Raises
    ------
    InvalidTypeError
        If the dtype is another one.
    """
    if dtype not in (DYNAMIC8, POSITIVE_DYNAMIC8):
        raise InvalidTypeError(f"dtype must be DYNAMIC8 or POSITIVE_DYNAMIC8, not {dtype}")
    return np.array(layout.dynamic_map(_NUMBERS[dtype]), np.float32)


def quantize(array: Any, dtype: np.dtype[Any]) -> np.ndarray:
    """Return numbers as blocks of codes.

    Parameters
    ----------
    array : array_like
        Converted to float32.
    dtype : dtype
        `SIGNED8`, `POSITIVE8`, `SIGNED4`, `POSITIVE4`, `DYNAMIC8` or `POSITIVE_DYNAMIC8`.

    Returns
    -------
    ndarray of dtype, shape (n_blocks,)

    Raises
    ------
    InvalidTypeError
        If the dtype is another one.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.storage import SIGNED8, dequantize, quantize
    >>> blocks = quantize([1.0, -0.5, 0.001], SIGNED8)
    >>> blocks.shape, blocks["codes"][0, :3].tolist()
    ((1,), [127, -64, 0])
    >>> dequantize(blocks, (3,))
    array([ 1.      , -0.503937,  0.      ], dtype=float32)
    """
    if dtype not in _NUMBERS:
        raise InvalidTypeError(f"dtype must be {_NAMES}, not {dtype}")
    numbers = np.ascontiguousarray(array, np.float32).reshape(-1)
    blocks = np.zeros(shape_in(dtype, numbers.shape), dtype)
    layout.encode(numbers, blocks, _NUMBERS[dtype])
    return blocks


def dequantize(blocks: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the float32 numbers of a shape that blocks of codes stand for.

    Raises
    ------
    InvalidTypeError
        If `blocks` is not an array of a dtype of blocks.
    InvalidArgumentError
        If it does not have a block for each 256 numbers.
    """
    if not isinstance(blocks, np.ndarray) or blocks.dtype not in _NUMBERS:
        raise InvalidTypeError(f"blocks must be an array of dtype {_NAMES}")
    if blocks.shape != shape_in(blocks.dtype, shape):
        raise InvalidArgumentError(
            f"numbers of shape {shape} are {shape_in(blocks.dtype, shape)[0]} blocks, "
            f"not {blocks.shape}"
        )
    numbers = np.empty(shape, np.float32)
    kind = _NUMBERS[blocks.dtype]
    layout.decode(np.ascontiguousarray(blocks), numbers.reshape(-1), kind)
    return numbers
