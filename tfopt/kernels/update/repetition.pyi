from collections.abc import Mapping
from typing import Any, SupportsFloat

from numpy.typing import NDArray
from typing_extensions import disjoint_base

from tfopt.kernels.update.checks import Call
from tfopt.kernels.update.step_table import Kernel

def gradients_of(pairs: list[Any], variables: tuple[Any, ...]) -> list[Any] | None: ...
def gradients_in(
    params: Any, grads: Any, pattern: Any, kinds: tuple[type, ...]
) -> list[Any] | None: ...
def are_arrays(grads: list[Any]) -> bool: ...

@disjoint_base
class Unchanged:
    def __new__(cls, owners: list[Any], containers: list[Any]) -> Unchanged: ...
    def holds(self) -> bool: ...

@disjoint_base
class Apart:
    def __new__(cls, variables: list[NDArray[Any]]) -> Apart: ...
    def holds(self, grads: list[Any]) -> bool: ...

@disjoint_base
class Repetition:
    possible: bool
    def __new__(cls, kernel: Kernel, call: Call) -> Repetition: ...
    def takes(self, grads: list[Any]) -> bool: ...
    def call_with(
        self,
        hypers: Mapping[str, SupportsFloat],
        flags: Mapping[str, bool],
        grad_scale: SupportsFloat,
        var_scale: SupportsFloat,
    ) -> Call: ...
    def release(self) -> None: ...
