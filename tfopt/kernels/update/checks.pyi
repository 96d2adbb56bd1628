from typing import Any, SupportsFloat, final

from tfopt.kernels.update.step_table import Kernel

@final
class Call:
    @property
    def sums(self) -> bool: ...

def dense_call(
    kernel: Kernel,
    arguments: tuple[Any, ...],
    hypers: tuple[SupportsFloat, ...],
    flags: int,
    grad_scale: SupportsFloat,
    var_scale: SupportsFloat = 1.0,
) -> Call: ...
def read_hyper(kernel: Kernel, k: int, value: Any, flags: int, dense: bool) -> float: ...
def step_arguments(
    kernel: Kernel,
    hypers: tuple[float, ...],
    flags: int,
    grad_scale: SupportsFloat,
    var_scale: SupportsFloat,
    double_precision: bool,
    dense: bool,
) -> tuple[int, tuple[float, ...]]: ...
