"""The `storage` of an optimizer: the dtypes of the slots of its variables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, get_args

import numpy as np

from tfopt.core.line_alignment import empty_at_a_line
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.imports import bfloat16
from tfopt.optimizers.options import Storage, StorageKind
from tfopt.storage import (
    BLOCKS,
    DYNAMIC8,
    FORMATS,
    POSITIVE_DYNAMIC8,
    SIGNED4,
    SIGNED8,
    dequantize,
    quantize,
)
from tfopt.variable import Variable

__all__ = [
    "FEWEST",
    "IN_BLOCKS",
    "KINDS",
    "check_blocks",
    "check_storage",
    "converted",
    "stored_dtype",
]

#: Variables of fewer elements keep slots of full precision: there is little to save.
FEWEST = 4096
#: The dtypes of blocks of codes, by storage and by whether the codes are signed.
_CODES: dict[str, dict[str, np.dtype[Any]]] = {}
for _format in FORMATS:
    _CODES.setdefault(_format.storage, {})[_format.codes] = _format.dtype
IN_BLOCKS = tuple(_CODES)
KINDS = get_args(StorageKind)


def check_storage(name: str, storage: Any) -> Storage:
    """Return a storage after checking that it is one, or maps slots to some."""
    kinds = storage.values() if isinstance(storage, Mapping) else [storage]
    for kind in kinds:
        if not (kind is None or (isinstance(kind, str) and kind in KINDS)):
            raise InvalidArgumentError(
                f"{name} must be one of {', '.join(KINDS)}, or map slots to these, not {kind!r}"
            )
    return dict(storage) if isinstance(storage, Mapping) else storage


def stored_dtype(
    storage: Storage, variable: Variable, slot: str, codes: Mapping[str, str]
) -> np.dtype[Any]:
    """Return the dtype of a slot of a variable.

    Parameters
    ----------
    storage : str, mapping or None
    variable : Variable
    slot : str
    codes : mapping
        The slots that can be stored in blocks of codes, and which codes.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        If there is no such slot, or the slot or the variable does not allow the storage.
    """
    kind = storage.get(slot) if isinstance(storage, Mapping) else storage
    own: np.dtype[Any] = variable.dtype
    if kind is None or kind == own.name or (kind in _CODES and math.prod(variable.shape) < FEWEST):
        return own
    if own.name not in ("float32", "float16", "bfloat16"):
        raise InvalidTypeError(
            f"{variable.name}: storage {kind!r} is for float32, float16 and bfloat16 variables, "
            f"not {own}"
        )
    if kind == "bfloat16":
        return bfloat16()
    if kind not in _CODES:
        return np.dtype(kind)
    if slot not in codes:
        raise InvalidArgumentError(
            f"the slot {slot} of {variable.name} cannot be stored in {4 if kind == '4bit' else 8} "
            "bits, which are too coarse for its values. Give storage a dict of the "
            "other slots, or use bfloat16"
        )
    return _CODES[kind][codes[slot]]


def converted(array: np.ndarray, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    """Return a slot of a variable of a shape in another dtype."""
    numbers = dequantize(array, shape) if array.dtype in BLOCKS else array
    if dtype in BLOCKS:
        return quantize(numbers, dtype)
    new = empty_at_a_line(shape, dtype)
    with np.errstate(all="ignore"):
        new[...] = numbers
    return new


def check_blocks(name: str, array: np.ndarray) -> None:
    """Raise if a block of an array is not a valid encoding."""
    if array.dtype not in BLOCKS:
        return
    unit, codes = (array[field] for field in array.dtype.names or ())
    unit = unit.reshape(len(array), -1)
    codes = codes.reshape(len(array), unit.shape[1], -1 if array.size else 1)  # by unit
    faults = {"an infinite unit": np.isinf(unit), "a negative unit": unit < 0}
    if array.dtype not in (DYNAMIC8, POSITIVE_DYNAMIC8):  # where 0 and NaN have many codes
        nothing = np.isnan(unit) | (unit == 0)
        faults["codes in a unit of NaN or 0"] = nothing & codes.any(2)
    if array.dtype == SIGNED8:
        faults["the code -128"] = (codes == -128).any(2)
    if array.dtype == SIGNED4:
        faults["a code of negative zero"] = ((codes & 15 == 8) | (codes >> 4 == 8)).any(2)
    for fault, found in faults.items():
        if found.any():
            block = found.any(1).argmax()
            raise InvalidArgumentError(f"{name} is damaged: block {block} has {fault}")
