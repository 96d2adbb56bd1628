from collections.abc import Sequence
from typing import Any, SupportsFloat

from tfopt.kernels.update.checks import Call
from tfopt.kernels.update.step_table import Kernel

def many_call(
    kernel: Kernel,
    operands: tuple[Sequence[Any], ...],
    hypers: tuple[SupportsFloat, ...],
    flags: int,
    grad_scale: SupportsFloat,
    var_scale: SupportsFloat = 1.0,
) -> Call: ...
