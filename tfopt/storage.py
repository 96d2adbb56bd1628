"""How slots are stored: dtypes of blocks of 8-bit codes, and conversion from and to numbers.

A block holds 256 numbers of a C-contiguous array, in its order, in 260 bytes: a ``unit`` and 256
``codes``. It is an ordinary structured dtype, so that arrays of blocks can be saved, copied and
shared as others.

`SIGNED8`
    A number is its code, from -127 to 127, times the unit.
`POSITIVE8`
    For means of squares: a code stands for a number with 4 bits each of exponent and mantissa, from
    17/16 * 2**-15 to 31/16, so that small ones are as precise as large ones. A positive number
    does not become 0, since steps are divided by it; negative ones do.

The unit gives the largest magnitude of its block the largest code. A block with an infinity or a
NaN is all NaN.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.kernels.arrays import layout
from tfopt.kernels.arrays.coerce import POSITIVE8_DTYPE as POSITIVE8
from tfopt.kernels.arrays.coerce import SIGNED8_DTYPE as SIGNED8

__all__ = ["BLOCK", "POSITIVE8", "SIGNED8", "dequantize", "quantize", "shape_in"]

#: The number of codes in a block.
BLOCK: int = SIGNED8["codes"].shape[0]
_NUMBERS = {SIGNED8: 3, POSITIVE8: 4}  # the storage types of kernels/arrays/layout.pxd


def shape_in(dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of the array of a dtype that stores numbers of a shape."""
    return (-(-math.prod(shape) // BLOCK),) if dtype in _NUMBERS else shape


def quantize(array: Any, dtype: np.dtype[Any]) -> np.ndarray:
    """Return numbers as blocks of 8-bit codes.

    Parameters
    ----------
    array : array_like
        Converted to float32.
    dtype : dtype
        `SIGNED8` or `POSITIVE8`.

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
        raise InvalidTypeError(f"dtype must be SIGNED8 or POSITIVE8, not {dtype}")
    numbers = np.ascontiguousarray(array, np.float32).reshape(-1)
    blocks = np.zeros(shape_in(dtype, numbers.shape), dtype)
    layout.encode(numbers, blocks, _NUMBERS[dtype])
    return blocks


def dequantize(blocks: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the float32 numbers of a shape that blocks of 8-bit codes stand for.

    Raises
    ------
    InvalidTypeError
        If `blocks` is not an array of `SIGNED8` or `POSITIVE8`.
    InvalidArgumentError
        If it does not have a block for each 256 numbers.
    """
    if not isinstance(blocks, np.ndarray) or blocks.dtype not in _NUMBERS:
        raise InvalidTypeError("blocks must be an array of dtype SIGNED8 or POSITIVE8")
    if blocks.shape != shape_in(blocks.dtype, shape):
        raise InvalidArgumentError(
            f"numbers of shape {shape} are {shape_in(blocks.dtype, shape)[0]} blocks, "
            f"not {blocks.shape}"
        )
    numbers = np.empty(shape, np.float32)
    kind = _NUMBERS[blocks.dtype]
    layout.decode(np.ascontiguousarray(blocks), numbers.reshape(-1), kind)
    return numbers
