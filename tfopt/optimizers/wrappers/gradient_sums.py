"""Sums of gradients, in wider dtypes than the gradients of steps, on the host or on a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfopt.core.backends import backend_of
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels import kernels
from tfopt.kernels.update.checks import Call
from tfopt.kernels.update.sparse_checks import sparse_call
from tfopt.optimizers.step.request import scaled
from tfopt.updates.device_copy import copies_of
from tfopt.variable import Variable

__all__ = ["adding_rows", "as_gradients", "joined", "new_sums"]

_HALF, _SINGLE = 15, 127  # 2**k and less is finite in 16 and 32 bits


def as_gradients(
    sums: Sequence[Any], variables: Sequence[Variable]
) -> tuple[tuple[Any, ...], float]:
    """Return sums in the dtypes of their variables, and the scale of their unit.

    Sums of large gradients, or of gradients that a loss scale has made small again, may be outside
    the range of float16, so the unit is the power of two that makes the best use of that range.
    """
    dtypes = [variable.dtype for variable in variables]
    if all(dtype.itemsize != 2 for dtype in dtypes):
        return tuple(sums), 1.0
    arrays, shift = [_values(total) for total in sums], 0
    if np.float16 in dtypes:
        tops = list(map(_exponent, arrays))
        halves = [top for top, dtype in zip(tops, dtypes, strict=True) if dtype == np.float16]
        shift = min(_HALF - max(halves), _SINGLE - max(tops))
    narrow = _narrow(arrays, dtypes, 2.0**shift)
    each = zip(sums, narrow, strict=True)
    return tuple(
        IndexedSlices(array, total.indices) if isinstance(total, IndexedSlices) else array
        for total, array in each
    ), 2.0**-shift


def _values(total: Any) -> Any:
    return total.values if isinstance(total, IndexedSlices) else total


def _exponent(array: Any) -> int:
    """Return the exponent of a power of two above all finite elements; 15 if all are zero."""
    if not isinstance(array, np.ndarray):
        array = backend_of(array).to_host(array)
    array = np.abs(array)
    top = float(array.max(where=np.isfinite(array), initial=0))
    return math.frexp(top)[1] if top else _HALF


def _narrow(arrays: list[Any], dtypes: list[np.dtype[Any]], scale: float) -> list[Any]:
    """Return arrays, times a scale, in other dtypes; those on a GPU are copied together."""
    made = list(arrays)
    on_device = []
    for k, (array, dtype) in enumerate(zip(arrays, dtypes, strict=True)):
        if isinstance(array, np.ndarray):
            made[k] = scaled((array,), scale)[0].astype(dtype, copy=False)
        elif dtype.itemsize == 2 or scale != 1:
            on_device.append(k)
    if on_device:
        wanted = [arrays[k] for k in on_device], "a sum of gradients"
        copies = copies_of(*wanted, [dtypes[k] for k in on_device], scale)
        for k, array in zip(on_device, copies, strict=True):
            made[k] = array
    return made


def new_sums(sums: Sequence[Any], begins: bool) -> list[Any]:
    """Return separate memory for sums, with their contents unless these begin anew."""
    if isinstance(sums[0], np.ndarray):
        return [np.empty_like(total) if begins else total.copy() for total in sums]
    if not begins:
        return copies_of(list(sums), "a sum of gradients")
    new = backend_of(sums[0]).new_like
    return [new(total, tuple(total.shape)) for total in sums]


def adding_rows(total: Any, rows: IndexedSlices, scale: float) -> Call | Callable[[], None]:
    """Return the call that adds rows to a sum; on a GPU a function."""
    if not isinstance(total, np.ndarray):
        add: Callable[[], None] = backend_of(total).adding_rows(total, rows, scale)
        return add
    values, rule = rows.values.astype(total.dtype, copy=False), kernels["gradient_descent"]
    return sparse_call(rule, (total, values), rows.indices, (-1.0,), 0, scale)


def joined(
    rows: IndexedSlices | None, grad: IndexedSlices, dtype: np.dtype[Any], scale: float
) -> IndexedSlices:
    """Return rows followed by those of a scaled gradient in a dtype, as copies."""
    if not isinstance(grad.values, np.ndarray):
        parts = [(grad, scale)] if rows is None else [(rows, 1.0), (grad, scale)]
        there: IndexedSlices = backend_of(grad.values).joined_rows(parts, dtype)
        return there
    values = grad.values.astype(dtype, copy=False)
    (new,) = scaled((IndexedSlices(values, grad.indices),), scale)
    each = [new] if rows is None else [rows, new]
    return IndexedSlices(
        np.concatenate([part.values for part in each]),
        np.concatenate([part.indices for part in each]),
    )
