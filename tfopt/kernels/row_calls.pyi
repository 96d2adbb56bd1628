from typing import Any, SupportsFloat

from tfopt.kernels.calls import Call, Kernel
from tfopt.room import Room

def sparse_call(
    kernel: Kernel,
    arguments: tuple[Any, ...],
    indices: Any,
    hypers: tuple[SupportsFloat, ...],
    flags: int,
    grad_scale: SupportsFloat,
    lazy: bool = False,
    room: Room | None = None,
    var_scale: SupportsFloat = 1.0,
) -> Call: ...
def set_summing(call: Call, bound: float, scale: float) -> None: ...
