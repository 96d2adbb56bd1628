"""Calls of the library: checked arrays become addresses, on the variable's stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_double, c_int64, c_void_p
from math import prod
from typing import Any

from tfopt.cuda.arrays import DeviceArray
from tfopt.cuda.checks import check_arrays, check_in_order, check_indices, check_memory
from tfopt.cuda.library import Library, load
from tfopt.errors import IndexOutOfRangeError, InvalidArgumentError, InvalidTypeError
from tfopt.kernels.calls import Kernel, step_arguments

__all__ = ["apply"]

#: The number of a pair of dtypes, of variable and gradient, in launch.h.
_TYPES = {
    ("float32", "float32"): 0,
    ("float64", "float64"): 1,
    ("float16", "float16"): 2,
    ("bfloat16", "bfloat16"): 3,
    ("float32", "float16"): 4,
    ("float32", "bfloat16"): 5,
}
_DUPLICATES = {"sequential": 0, "sum": 1, "error": 2}
_OUTSIDE, _REPEATED, _CAPTURED = -1, -2, -3

#: What the sort's 32-bit keys and the launch's grid can count.
_MOST_ROWS = 2**32 - 2
_MOST_COLUMNS = 65_535 * 2048


def apply(
    kernel: Kernel,
    operands: tuple[Any, ...],
    hypers: tuple[Any, ...],
    flags: int,
    indices: Any,
    duplicates: str,
    grad_scale: Any,
    check_range: bool,
) -> None:
    """Update variables on a GPU: one, some rows of it, or many given as lists."""
    if indices is not None:
        _apply_rows(kernel, operands, hypers, flags, indices, duplicates, grad_scale, check_range)
    elif isinstance(operands[0], (list, tuple)):
        _apply_many(kernel, operands, hypers, flags, grad_scale)
    else:
        library = load()
        arrays = check_arrays(kernel, operands)
        values = check_in_order(kernel, arrays, None, hypers, flags)
        device = check_memory(kernel, arrays, None, library)
        _launch_dense(library, device, kernel, [arrays], values, flags, grad_scale)


def _apply_many(
    kernel: Kernel,
    operands: tuple[Any, ...],
    hypers: tuple[Any, ...],
    flags: int,
    grad_scale: Any,
) -> None:
    library = load()
    for name, arrays in zip(kernel.rule.operands, operands, strict=True):
        if not isinstance(arrays, (list, tuple)):
            raise InvalidTypeError(
                f"{name} must be a list of arrays as var is, not {type(arrays).__name__}"
            )
        if len(arrays) != len(operands[0]):
            raise InvalidArgumentError(f"{len(operands[0])} var, but {len(arrays)} {name}")
    checked: list[list[DeviceArray]] = []
    devices: list[int] = []
    values: tuple[float, ...] = ()
    for t, own in enumerate(zip(*operands, strict=True)):
        try:
            arrays = check_arrays(kernel, own)
            values = check_in_order(kernel, arrays, None, hypers, flags)
            devices.append(check_memory(kernel, arrays, None, library))
            _check_same_types(kernel, arrays, (checked or [arrays])[0])
        except InvalidArgumentError as error:
            raise type(error)(f"variable {t}: {error}") from None
        checked.append(arrays)
    if len(set(devices)) > 1:
        raise InvalidArgumentError("the variables are on several GPUs")
    _check_disjoint(checked)
    if checked:
        _launch_dense(library, devices[0], kernel, checked, values, flags, grad_scale)


def _check_same_types(kernel: Kernel, arrays: list[DeviceArray], first: list[DeviceArray]) -> None:
    for name, one, other in zip(kernel.rule.operands, arrays, first, strict=True):
        if one.dtype != other.dtype:
            raise InvalidTypeError(
                f"{name} must be {other.dtype} as that of variable 0 is, not {one.dtype}"
            )


def _check_disjoint(variables: list[list[DeviceArray]]) -> None:
    """Refuse variables that overlap, and gradients that another variable's update would change."""
    spans = sorted(
        (array.address, array.end, t, array is arrays[-1])
        for t, arrays in enumerate(variables)
        for array in arrays
        if array.size
    )
    end, owner, end_of_grads, grads_of = 0, -1, 0, -1
    for low, high, t, is_grad in spans:
        if low < end and owner != t:
            raise InvalidArgumentError(f"variables {owner} and {t} overlap in memory")
        if not is_grad and low < end_of_grads and grads_of != t:
            raise InvalidArgumentError(f"variables {grads_of} and {t} overlap in memory")
        if is_grad and high > end_of_grads:
            end_of_grads, grads_of = high, t
        elif not is_grad and high > end:
            end, owner = high, t


@contextmanager
def _in_order(library: Library, device: int, arrays: Sequence[DeviceArray]) -> Iterator[int]:
    """Give the variable's stream; the other arrays' are waited for, and wait in their turn."""
    stream = arrays[0].stream
    others = {array.stream for array in arrays if array.size} - {stream}
    for other in others:
        library.check(library.call["follow"](device, stream, other))
    yield stream
    for other in others:
        library.check(library.call["follow"](device, other, stream))


def _launch_dense(
    library: Library,
    device: int,
    kernel: Kernel,
    variables: list[list[DeviceArray]],
    hypers: tuple[float, ...],
    flags: int,
    grad_scale: Any,
) -> None:
    first = variables[0]
    wide = first[0].dtype == "float64"
    constants, scalars = step_arguments(kernel, hypers, flags, grad_scale, wide, True)
    n = len(variables)
    data = [array.address for arrays in variables for array in arrays[:-1]]
    with _in_order(library, device, [a for arrays in variables for a in arrays]) as stream:
        code = library.call["dense"](
            device,
            stream,
            library.rules[kernel.name],
            _TYPES[first[0].dtype, first[-1].dtype],
            n,
            (c_void_p * len(data))(*data),
            (c_void_p * n)(*(arrays[-1].address for arrays in variables)),
            (c_int64 * n)(*(arrays[0].size for arrays in variables)),
            (c_double * len(scalars))(*scalars),
            constants,
        )
    library.check(code)


def _apply_rows(
    kernel: Kernel,
    operands: tuple[Any, ...],
    hypers: tuple[Any, ...],
    flags: int,
    indices: Any,
    duplicates: str,
    grad_scale: Any,
    check_range: bool,
) -> None:
    library = load()
    if duplicates not in _DUPLICATES:
        raise InvalidArgumentError(
            f'duplicates must be "sequential", "sum" or "error", not {duplicates!r}'
        )
    everywhere = kernel.rule.absent is not None
    if everywhere and duplicates == "sequential":
        raise InvalidArgumentError(f'{kernel.name} takes duplicates="sum" or "error"')
    arrays = check_arrays(kernel, operands)
    ids = check_indices(indices)
    values = check_in_order(kernel, arrays, ids, hypers, flags)
    device = check_memory(kernel, arrays, ids, library)
    var, n = arrays[0], ids.shape[0]
    inner = prod(var.shape[1:])
    if max(n, var.shape[0]) > _MOST_ROWS or inner > _MOST_COLUMNS:
        raise InvalidArgumentError(
            f"on a GPU var can have {_MOST_ROWS} rows of {_MOST_COLUMNS} elements, "
            f"and there can be as many indices"
        )
    wide = var.dtype == "float64"
    constants, scalars = step_arguments(kernel, values, flags, grad_scale, wide, False)
    if (var.size == 0 and n == 0) or inner == 0 or (n == 0 and not everywhere):
        return
    at = c_int64()
    data = [array.address for array in arrays[:-1]]
    with _in_order(library, device, [*arrays, ids]) as stream:
        code = library.call["rows"](
            device,
            stream,
            library.rules[kernel.name],
            _TYPES[var.dtype, arrays[-1].dtype],
            (c_void_p * len(data))(*data),
            arrays[-1].address,
            ids.address,
            4 if ids.dtype == "int32" else 8,
            n,
            var.shape[0],
            inner,
            (c_double * len(scalars))(*scalars),
            constants,
            _DUPLICATES[duplicates],
            check_range,
            byref(at),
        )
    if code == _OUTSIDE:
        raise IndexOutOfRangeError(
            f"The index at offset {at.value} in indices is out of range [0, {var.shape[0]})"
        )
    if code == _REPEATED:
        raise InvalidArgumentError(f"indices has duplicates, one of them at offset {at.value}")
    if code == _CAPTURED:
        raise InvalidArgumentError(
            "a check of indices cannot be captured in a graph: pass check_indices=False"
        )
    library.check(code)
