from typing import Any, SupportsFloat, final

from tfopt.room import Room
from tfopt.rules import Rule

@final
class Kernel:
    rule: Rule
    name: str
    def __init__(self, rule: Rule, first: int) -> None: ...

@final
class Call:
    @property
    def sums(self) -> bool: ...

def use_steps(capsule: object) -> None: ...
def dense_call(
    kernel: Kernel,
    arguments: tuple[Any, ...],
    hypers: tuple[SupportsFloat, ...],
    flags: int,
    grad_scale: SupportsFloat,
) -> Call: ...
def sparse_call(
    kernel: Kernel,
    arguments: tuple[Any, ...],
    indices: Any,
    hypers: tuple[SupportsFloat, ...],
    flags: int,
    grad_scale: SupportsFloat,
    lazy: bool = False,
    room: Room | None = None,
) -> Call: ...
def set_summing(call: Call, bound: float, scale: float) -> None: ...
def read_hyper(kernel: Kernel, k: int, value: Any, flags: int, dense: bool) -> float: ...
def step_arguments(
    kernel: Kernel,
    hypers: tuple[float, ...],
    flags: int,
    grad_scale: SupportsFloat,
    double_precision: bool,
    dense: bool,
) -> tuple[int, tuple[float, ...]]: ...
