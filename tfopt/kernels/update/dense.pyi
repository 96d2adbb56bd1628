from typing import Any, SupportsFloat

from tfopt.kernels.update.checks import Call
from tfopt.kernels.update.step_table import Kernel

def run(call: Call) -> None: ...
def apply(
    kernel: Kernel,
    arrays: tuple[Any, ...],
    hypers: tuple[SupportsFloat, ...],
    flags: int,
    indices: Any,
    grad_scale: SupportsFloat,
    var_scale: SupportsFloat = 1.0,
) -> None: ...
