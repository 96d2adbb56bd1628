from collections.abc import Callable, Container, Mapping
from typing import Any, Self, SupportsFloat

from numpy.typing import NDArray
from typing_extensions import disjoint_base

from tfopt.kernels.update.checks import Call
from tfopt.kernels.update.commit import Undo, Write
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

@disjoint_base
class Launch(Write):
    possible: bool
    accepted: bool
    def __new__(
        cls,
        functions: tuple[Any, ...],
        check: Callable[[int], object],
        device: int,
        parts: list[tuple[Any, ...]],
        arrays: list[Any],
        places: list[int],
        limits: tuple[Any, ...],
        grads: list[Any],
    ) -> Self: ...
    def takes(self, grads: list[Any]) -> bool: ...
    def prepare(self, update: Any, scale: SupportsFloat) -> bool: ...
    def release(self) -> None: ...

@disjoint_base
class Bound:
    step: Any
    request: Any
    mark: Any
    variables: tuple[Any, ...]
    locks: bool
    def __new__(cls, step: Any, request: Any, variables: tuple[Any, ...], mark: Any) -> Bound: ...
    def settle(
        self,
        mark: Any,
        unchanged: Unchanged,
        apart: Apart | None,
        kinds: Container[type] | None,
        is_direct: bool,
        locks: bool,
    ) -> None: ...
    def begin(self) -> Undo: ...
    def holds(self) -> bool: ...

@disjoint_base
class Repeats:
    def __new__(
        cls,
        convert: Callable[[list[Any], tuple[Any, ...]], list[Any]],
        separate: Callable[[list[Any], tuple[Any, ...]], list[Any]],
    ) -> Self: ...
    def keep(self, bound: Bound) -> bool: ...
    def of_pairs(self, pairs: list[Any], aggregates: bool) -> tuple[Bound, list[Any]] | None: ...
    def of_variables(
        self, variables: tuple[Any, ...], grads: list[Any]
    ) -> tuple[Bound, list[Any]] | None: ...
    def of_request(self, request: Any) -> Bound | None: ...

@disjoint_base
class Repetitions:
    def __new__(cls, places: list[list[int]], decays: list[bool]) -> Repetitions: ...
    def add(self, k: int, kernel: Kernel, call: Call) -> None: ...
    def accepts(self, grads: list[Any]) -> bool: ...
    def calls(self, update: Any, scale: SupportsFloat) -> list[Any]: ...
    def release(self) -> None: ...
