"""Calls of rules: validation of the arguments, and the launch of the update."""

from __future__ import annotations

from math import prod
from typing import Any

from tfopt.core.backends import is_device_array
from tfopt.cuda.device_array import BLOCK_DTYPES, DeviceArray
from tfopt.cuda.library import Library, load
from tfopt.cuda.norms import Norms
from tfopt.cuda.stored import stored_of
from tfopt.cuda.streams import in_order
from tfopt.cuda.updates import DenseUpdate, Reading, RowsUpdate, Update, WholeUpdate
from tfopt.cuda.validation import (
    check_arrays,
    check_in_order,
    check_indices,
    check_memory,
    check_scalar,
)
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.kernels import kernels
from tfopt.kernels.arrays.overlaps import overlapping
from tfopt.kernels.update.checks import step_arguments
from tfopt.kernels.update.step_table import Kernel
from tfopt.updates.rule_steps import Rounding
from tfopt.updates.sparse_update import check_duplicates, steps_all_rows

__all__ = ["MOST_COLUMNS", "apply", "dense_update", "rows_update", "whole_update"]

#: The limits of the sort's 32-bit keys and of the launch grid.
_MOST_ROWS = 2**32 - 2
MOST_COLUMNS = 65_535 * 2048


def apply(
    kernel: Kernel,
    operands: tuple[Any, ...],
    hypers: tuple[Any, ...],
    flags: int,
    indices: Any,
    duplicates: str,
    grad_scale: Any,
    var_scale: Any,
    check_range: bool,
) -> None:
    """Update variables on a GPU: a variable, some of its rows, or lists of variables."""
    scale = grad_scale if is_device_array(grad_scale) else None
    factor = 1.0 if scale is not None else grad_scale
    update: Update | None
    if indices is not None:
        update = rows_update(
            kernel, operands, hypers, flags, indices, duplicates, factor, check_range, var_scale
        )
    else:
        update = dense_update(kernel, operands, hypers, flags, factor, var_scale)
    if update is None:
        return
    if scale is not None:
        _launch_scaled(update, check_scalar(scale, "grad_scale", update.device, update.library))
        return
    with in_order(update.library, update.device, update.arrays) as stream:
        update.launch(stream, Reading())


def _launch_scaled(update: Update, scale: DeviceArray) -> None:
    """Launch an update whose gradient scale is on the GPU."""
    library, device = update.library, update.device
    with (
        in_order(library, device, [*update.arrays, scale]) as stream,
        Norms(library, device, stream) as factors,
    ):
        factors.use_factor(scale)
        update.launch(stream, Reading(factors=factors.address))


# ---- dense


def dense_update(
    kernel: Kernel,
    operands: tuple[Any, ...],
    hypers: tuple[Any, ...],
    flags: int,
    grad_scale: Any,
    var_scale: Any = 1.0,
    vectors_are_rows: bool = False,
    decay: float = 0.0,
    rounding: Rounding = None,
    places: list[int] | None = None,
) -> DenseUpdate | None:
    """Check an update of a variable or of lists of variables; return None for empty lists.

    A vector or a scalar whose slots of rows have one number can be taken for a row. Weights decay
    cautiously, and bfloat16 numbers are rounded stochastically, variables by their places.
    """
    library = load()
    if isinstance(operands[0], (list, tuple)):
        variables, values, device = _check_many(
            library, kernel, operands, hypers, flags, vectors_are_rows
        )
    else:
        arrays = check_arrays(kernel, operands)
        values = check_in_order(kernel, arrays, None, hypers, flags)
        device = check_memory(kernel.rule.operands, arrays, None, library)
        variables = [arrays]
    if not variables:
        return None
    like = operands[0][0] if isinstance(operands[0], (list, tuple)) else operands[0]
    stored = stored_of(kernel, variables[0], device, rounding, places or [0] * len(variables), like)
    wide = variables[0][0].dtype == "float64"
    scales = grad_scale, var_scale
    constants, scalars = step_arguments(kernel, values, flags, *scales, wide, True)
    return DenseUpdate(
        library, device, kernel, variables, constants, scalars, operands, decay, stored
    )


def _check_many(
    library: Library,
    kernel: Kernel,
    operands: tuple[Any, ...],
    hypers: tuple[Any, ...],
    flags: int,
    vectors_are_rows: bool,
) -> tuple[list[list[DeviceArray]], tuple[float, ...], int]:
    """Return the arrays of each variable, the hyperparameters and the device."""
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
    fit: set[tuple[tuple[int, ...], ...]] = set()  # shapes of variables that have been checked
    for t, arguments in enumerate(zip(*operands, strict=True)):
        try:
            arrays = check_arrays(kernel, arguments)
            if vectors_are_rows:
                arrays = _as_rows(kernel, arrays)
            shapes = tuple(array.shape for array in arrays)
            if shapes not in fit:
                values = check_in_order(kernel, arrays, None, hypers, flags)
                fit.add(shapes)
            devices.append(check_memory(kernel.rule.operands, arrays, None, library))
            _check_same_types(kernel, arrays, (checked or [arrays])[0])
        except InvalidArgumentError as error:
            raise type(error)(f"variable {t}: {error}") from None
        checked.append(arrays)
    if len(set(devices)) > 1:
        raise InvalidArgumentError("the variables are on several GPUs")
    _check_disjoint(checked)
    return checked, values, max(devices, default=0)


def _as_rows(kernel: Kernel, arrays: list[DeviceArray]) -> list[DeviceArray]:
    """Return a vector or a scalar, its slots and its gradient as rows, if it has one number."""
    names, shape = kernel.rule.operands, arrays[0].shape
    numbers = {arrays[names.index(slot)].shape for slot in kernel.rule.row_slots}
    if len(shape) > 1 or numbers != {(1,)}:
        return arrays
    return [
        array if name in kernel.rule.row_slots else array._replace(shape=(1, *array.shape))
        for name, array in zip(names, arrays, strict=True)
    ]


def _check_same_types(kernel: Kernel, arrays: list[DeviceArray], first: list[DeviceArray]) -> None:
    for name, array, other in zip(kernel.rule.operands, arrays, first, strict=True):
        if array.dtype != other.dtype:
            raise InvalidTypeError(
                f"{name} must be {other.dtype}, the dtype of variable 0, not {array.dtype}"
            )


def _check_disjoint(variables: list[list[DeviceArray]]) -> None:
    """Raise if variables overlap, or a gradient overlaps another variable."""
    every = [(t, array) for t, arrays in enumerate(variables) for array in arrays]
    written = [array is not arrays[-1] for arrays in variables for array in arrays]
    spans = ((array.address, array.end, w) for (_, array), w in zip(every, written, strict=True))
    for j, k in overlapping(spans):
        if every[j][0] != every[k][0]:
            raise InvalidArgumentError(
                f"variables {every[j][0]} and {every[k][0]} overlap in memory"
            )


# ---- rows


def rows_update(
    kernel: Kernel,
    operands: tuple[Any, ...],
    hypers: tuple[Any, ...],
    flags: int,
    indices: Any,
    duplicates: str,
    grad_scale: Any,
    check_range: bool,
    var_scale: Any = 1.0,
    lazy: bool = False,
    decay: float = 0.0,
    rounding: Rounding = None,
    places: list[int] | None = None,
) -> RowsUpdate:
    """Check a sparse update, except the values of the indices.

    With any rule, a lazy update leaves all other rows unchanged. The rest is as in
    `dense_update`.
    """
    library = load()
    check_duplicates(duplicates)
    everywhere = steps_all_rows(kernel, duplicates, lazy)
    arrays = check_arrays(kernel, operands)
    for name, array in zip(kernel.rule.operands, arrays, strict=True):
        if array.dtype in BLOCK_DTYPES:
            raise InvalidTypeError(
                f"{name} is stored in blocks of codes, which only dense gradients can update"
            )
    ids = check_indices(indices)
    values = check_in_order(kernel, arrays, ids, hypers, flags)
    device = check_memory(kernel.rule.operands, arrays, ids, library)
    stored = stored_of(kernel, arrays, device, rounding, places or [0], operands[0])
    var = arrays[0]
    if max(ids.shape[0], var.shape[0]) > _MOST_ROWS or prod(var.shape[1:]) > MOST_COLUMNS:
        raise InvalidArgumentError(
            f"on a GPU var can have at most {_MOST_ROWS} rows of {MOST_COLUMNS} elements, "
            f"and there can be at most {_MOST_ROWS} indices"
        )
    wide = var.dtype == "float64"
    scales = grad_scale, var_scale
    constants, scalars = step_arguments(kernel, values, flags, *scales, wide, False)
    return RowsUpdate(
        library,
        device,
        kernel,
        arrays,
        ids,
        constants,
        scalars,
        duplicates,
        everywhere,
        check_range,
        (*operands, indices),
        decay,
        stored,
    )


# ---- whole variables, by gradients of rows


def whole_update(
    kernel: Kernel,
    operands: tuple[Any, ...],
    hypers: tuple[Any, ...],
    flags: int,
    indices: Any,
    values: Any,
    var_scale: Any,
) -> WholeUpdate:
    """Check an update by the dense gradient that rows stand for, except the values of the indices.

    A vector or a scalar whose slots of rows have one number is taken for a row.
    """
    simplest = kernels["gradient_descent"]  # only used for its checks
    rows = rows_update(simplest, (operands[0], values), (0.0,), 0, indices, "sum", 1.0, True)
    arrays = check_arrays(kernel, (*operands, values))
    device = check_memory(kernel.rule.operands, arrays, rows.indices, rows.library)
    dense = _as_rows(kernel, [*arrays[:-1], arrays[-1]._replace(shape=arrays[0].shape)])
    checked = check_in_order(kernel, dense, None, hypers, flags)
    wide = arrays[0].dtype == "float64"
    constants, scalars = step_arguments(kernel, checked, flags, 1.0, var_scale, wide, True)
    return WholeUpdate(
        rows, DenseUpdate(rows.library, device, kernel, [dense], constants, scalars, operands)
    )
