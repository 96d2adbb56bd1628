"""Rows of gradients on a GPU: several batches of them as one, and their addition to a sum."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from ctypes import c_double, c_int64, c_void_p
from functools import partial
from typing import Any

import numpy as np

from tfopt.cuda.calls import rows_update
from tfopt.cuda.clipped_updates import run_clipped
from tfopt.cuda.device_array import DeviceArray, as_device_array
from tfopt.cuda.library import Library, load
from tfopt.cuda.memory import new_like
from tfopt.cuda.streams import in_order
from tfopt.cuda.updates import COPIES
from tfopt.cuda.validation import device_of
from tfopt.errors import InvalidTypeError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels import kernels

__all__ = ["adding_rows", "joined_rows"]

#: How whole numbers are copied, whose bits are those of floats of as many bytes.
_AS_FLOATS = {"int32": "float32", "int64": "float64"}


def joined_rows(
    parts: Sequence[tuple[IndexedSlices, float]], dtype: np.dtype[Any]
) -> IndexedSlices:
    """Return rows that follow each other, multiplied by the scale of their part, in a dtype."""
    library = load()
    values = [as_device_array(rows.values, "values") for rows, _ in parts]
    indices = [as_device_array(rows.indices, "indices") for rows, _ in parts]
    if len({each.dtype for each in indices}) > 1:
        raise InvalidTypeError(
            "on a GPU the indices of a variable's rows must have one dtype in all batches, not "
            f"{indices[0].dtype} and {indices[-1].dtype}"
        )
    n, first = sum(each.shape[0] for each in indices), parts[0][0]
    made = IndexedSlices(
        new_like(first.values, (n, *values[0].shape[1:]), dtype), new_like(first.indices, (n,))
    )
    scales = [scale for _, scale in parts]
    _fill(library, as_device_array(made.values, "values"), values, scales)
    _fill(library, as_device_array(made.indices, "indices"), indices, [1.0] * len(parts))
    return made


def _fill(
    library: Library, into: DeviceArray, arrays: Sequence[DeviceArray], scales: Sequence[float]
) -> None:
    """Copy arrays into one, one after the other."""
    device = device_of([("values", array) for array in (into, *arrays)], library)
    at = into.address
    with in_order(library, device, [into, *arrays]) as stream:
        for array, scale in zip(arrays, scales, strict=True):
            if not array.size:
                continue
            types = tuple(_AS_FLOATS.get(each.dtype, each.dtype) for each in (into, array))
            code = library.call["dense"](
                device,
                stream,
                library.copy,
                COPIES[types[0], types[1]],
                1,
                (c_void_p * 1)(at),
                (c_void_p * 1)(array.address),
                (c_int64 * 1)(array.size),
                (c_int64 * 1)(1),
                (c_double * 2)(scale, 1.0),
                0,
                math.inf,
                None,
                False,
                0.0,
                None,
            )
            library.check(code)
            at += array.size * ((into.end - into.address) // into.size)


def adding_rows(total: Any, rows: IndexedSlices, scale: float) -> Callable[[], None]:
    """Return what adds rows, whose indices have been checked, to an array."""
    operands, ids = (total, rows.values), rows.indices
    rule = kernels["gradient_descent"], operands, (-1.0,), 0
    update = rows_update(*rule, ids, "sequential", scale, check_range=False)
    return partial(run_clipped, [update], scale=scale)
