from typing import Any, SupportsFloat, final

from numpy.typing import NDArray

from tfopt.kernels.calls import Call, Kernel

@final
class Group:
    def __init__(self, kernel: Kernel, operands: list[tuple[NDArray[Any], ...]]) -> None: ...
    def call(
        self,
        grads: list[Any],
        hypers: tuple[SupportsFloat, ...],
        flags: int,
        grad_scale: SupportsFloat,
    ) -> Call: ...
