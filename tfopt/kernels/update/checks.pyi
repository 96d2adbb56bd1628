from typing import Any, SupportsFloat, final

from numpy.typing import NDArray

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
def checked_hypers(
    kernel: Kernel,
    arguments: tuple[Any, ...],
    ids: NDArray[Any] | None,
    hypers: tuple[SupportsFloat, ...],
    flags: int,
) -> tuple[float, ...]: ...
def step_arguments(
    kernel: Kernel,
    hypers: tuple[float, ...],
    flags: int,
    grad_scale: SupportsFloat,
    var_scale: SupportsFloat,
    double_precision: bool,
    dense: bool,
) -> tuple[int, tuple[float, ...]]: ...
