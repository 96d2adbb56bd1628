from collections.abc import Mapping
from typing import Any, SupportsFloat

from typing_extensions import disjoint_base

from tfopt.kernels.update.checks import Call
from tfopt.kernels.update.step_table import Kernel

def gradients_of(pairs: Any, variables: tuple[Any, ...]) -> list[Any] | None: ...
def gradients_in(params: Any, grads: Any, pattern: Any) -> list[Any] | None: ...

@disjoint_base
class Repetition:
    possible: bool
    def __new__(cls, kernel: Kernel, call: Call) -> Repetition: ...
    def call_with(
        self,
        hypers: Mapping[str, SupportsFloat],
        flags: Mapping[str, bool],
        var_scale: SupportsFloat,
        grads: list[Any],
    ) -> Call | None: ...
    def release(self) -> None: ...
