"""Updates of some rows, and what it means that an index occurs several times."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt.core.workspace import Workspace
from tfopt.errors import InvalidArgumentError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.arguments import as_array
from tfopt.kernels.calls import Call, Kernel
from tfopt.kernels.merge import distinct_indices
from tfopt.kernels.row_calls import sparse_call

__all__ = ["check_duplicates", "rows_call"]


def check_duplicates(duplicates: Any) -> None:
    """Refuse a word that says nothing of what repeated indices mean."""
    if duplicates not in ("sequential", "sum", "error"):
        raise InvalidArgumentError(
            f'duplicates must be "sequential", "sum" or "error", not {duplicates!r}'
        )


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
    """Check an update of the rows that `indices` names, and what repeated ones mean.

    A lazy one leaves all other rows as they are, whatever the rule. Gradients are summed in memory
    of the workspace, so the call must be carried out before the next one with it is made.
    """
    check_duplicates(duplicates)
    # a step of some rows is one of all others, too
    everywhere = kernel.rule.absent is not None and not lazy
    if everywhere and duplicates == "sequential":
        raise InvalidArgumentError(f'{kernel.name} takes duplicates="sum" or "error"')
    sums = workspace if duplicates == "sum" else None
    call = sparse_call(kernel, operands, indices, hypers, flags, grad_scale, lazy, sums, var_scale)
    if duplicates == "sequential" or call.sums:
        return call
    *variables, grad = operands
    ids = as_array(indices, "indices")
    if duplicates == "error":
        distinct, _ = distinct_indices(np.ascontiguousarray(ids), workspace)
        if distinct.size < ids.size:
            raise InvalidArgumentError("indices has duplicates")
        if not everywhere:
            return call
    slices = IndexedSlices(as_array(grad, "grad"), ids)
    merged = slices._summed(None, 1.0, workspace, ascending=everywhere)
    given = (*variables, merged.values), merged.indices
    return sparse_call(kernel, *given, hypers, flags, grad_scale, lazy, var_scale=var_scale)
