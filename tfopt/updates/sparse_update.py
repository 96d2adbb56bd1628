"""Sparse updates and the treatment of duplicate indices."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np

from tfopt.core.workspace import Workspace
from tfopt.errors import InvalidArgumentError
from tfopt.kernels.arrays.coerce import as_array
from tfopt.kernels.update.checks import Call
from tfopt.kernels.update.dedup import distinct_indices
from tfopt.kernels.update.sparse_checks import sparse_call
from tfopt.kernels.update.step_table import Kernel

__all__ = ["Duplicates", "check_duplicates", "rows_call", "steps_all_rows"]


Duplicates = Literal["sequential", "sum", "error"]


def check_duplicates(duplicates: Any) -> None:
    """Raise if `duplicates` is not one of the accepted values."""
    if duplicates not in get_args(Duplicates):
        raise InvalidArgumentError(
            f'duplicates must be "sequential", "sum" or "error", not {duplicates!r}'
        )


def steps_all_rows(kernel: Kernel, duplicates: str, lazy: bool = False) -> bool:
    """Return whether a sparse update also steps the rows without a gradient.

    Raises
    ------
    InvalidArgumentError
        If it does, and equal indices are to be stepped one after another.
    """
    everywhere = kernel.rule.absent is not None and not lazy
    if everywhere and duplicates == "sequential":
        raise InvalidArgumentError(
            f'duplicates must be "sum" or "error" for {kernel.name}, not "sequential"'
        )
    return everywhere


def rows_call(
    kernel: Kernel,
    operands: tuple[Any, ...],
    indices: Any,
    hypers: tuple[Any, ...],
    flags: int,
    duplicates: str,
    grad_scale: Any,
    workspace: Workspace,
    lazy: bool = False,
    var_scale: Any = 1.0,
) -> Call:
    """Check a sparse update and return its call, treating duplicate indices as requested.

    With any rule, a lazy update leaves all other rows unchanged. Gradients are summed in the
    workspace, so the call must be run before the next one that uses the same workspace is prepared.
    """
    check_duplicates(duplicates)
    everywhere = steps_all_rows(kernel, duplicates, lazy)
    step = hypers, flags, grad_scale, lazy, workspace if duplicates == "sum" else None, var_scale
    call = sparse_call(kernel, operands, indices, *step)
    if duplicates == "error":
        ids = as_array(indices, "indices")
        distinct, _ = distinct_indices(np.ascontiguousarray(ids), workspace)
        if distinct.size < ids.size:
            raise InvalidArgumentError("indices contains duplicates")
        if everywhere:  # indices must ascend; they are not summed: zero plus -0 would be 0
            order = np.argsort(ids)
            *variables, grad = operands
            ascending = (*variables, as_array(grad, "grad")[order])
            call = sparse_call(kernel, ascending, ids[order], *step)
    return call
