"""Updates by the rules of the table, for all kinds of operands.

The functions of :mod:`tfopt.training_ops` and :mod:`tfopt.raw_ops` call a kernel directly when
their operands are plain arrays and no trace records them. All other calls come here.
"""

from __future__ import annotations

from typing import Any, SupportsFloat, TypeVar

from tfopt.core.backends import backend_of, first_is_device_array
from tfopt.core.effects import writes
from tfopt.core.workspace import Workspace
from tfopt.kernels.update.dense import apply, run
from tfopt.kernels.update.step_table import Kernel
from tfopt.updates.sparse_update import check_duplicates, rows_call

__all__ = ["update"]

V = TypeVar("V")


@writes("var", "slots", returns="var")
def update(
    kernel: Kernel,
    var: V,
    slots: tuple[Any, ...],
    grad: Any,
    hypers: tuple[SupportsFloat, ...],
    flags: int,
    indices: Any = None,
    duplicates: str = "sequential",
    grad_scale: SupportsFloat = 1.0,
    var_scale: SupportsFloat = 1.0,
    check_indices: bool = True,
    use_locking: bool = False,
) -> V:
    """Update a variable and its slots, or lists of them, in place; return the variable."""
    operands = (var, *slots, grad)
    check_duplicates(duplicates)
    if first_is_device_array(var):
        backend_of(var).apply(
            kernel, operands, hypers, flags, indices, duplicates, grad_scale, var_scale,
            check_indices,
        )  # fmt: skip
    elif indices is None or (duplicates == "sequential" and kernel.rule.absent is None):
        apply(kernel, operands, hypers, flags, indices, grad_scale, var_scale)
    else:
        call = rows_call(
            kernel, operands, indices, hypers, flags, duplicates, grad_scale, Workspace(),
            var_scale=var_scale,
        )  # fmt: skip
        run(call)
    return var
