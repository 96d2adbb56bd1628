"""Updates of some rows, and what it means that an index occurs several times."""

from __future__ import annotations

from typing import Any

from tfopt.errors import InvalidArgumentError
from tfopt.indexed_slices import IndexedSlices
from tfopt.kernels.arguments import as_array
from tfopt.kernels.calls import Call, Kernel, sparse_call

__all__ = ["rows_call"]


def rows_call(
    kernel: Kernel,
    operands: tuple[Any, ...],
    indices: Any,
    hypers: tuple[Any, ...],
    flags: int,
    duplicates: str,
    grad_scale: Any,
) -> Call:
    """Check an update of the rows that `indices` names, and what repeated ones mean."""
    if duplicates not in ("sequential", "sum", "error"):
        raise InvalidArgumentError(
            f'duplicates must be "sequential", "sum" or "error", not {duplicates!r}'
        )
    call = sparse_call(kernel, operands, indices, hypers, flags, grad_scale)
    if duplicates == "sequential":
        return call
    *variables, grad = operands
    rows = IndexedSlices(as_array(grad, "grad"), as_array(indices, "indices"))
    merged = rows.sum_duplicates()
    if duplicates == "error" and merged.indices.size < rows.indices.size:
        raise InvalidArgumentError("indices has duplicates")
    return sparse_call(
        kernel, (*variables, merged.values), merged.indices, hypers, flags, grad_scale
    )
