from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self, SupportsFloat

import numpy as np
from typing_extensions import disjoint_base

from tfopt.kernels.update.checks import Call

@disjoint_base
class Write: ...

@disjoint_base
class Count(Write):
    def __new__(cls, number: np.ndarray) -> Self: ...
    def next(self) -> int: ...

@disjoint_base
class Assign(Write):
    def __new__(cls, to: np.ndarray, values: np.ndarray) -> Self: ...

@disjoint_base
class AssignRows(Write):
    def __new__(cls, to: np.ndarray, rows: np.ndarray, values: np.ndarray) -> Self: ...

@disjoint_base
class RowsOf(Write):
    def __new__(cls, call: Call, rows: Call) -> Self: ...

@disjoint_base
class Attributes(Write):
    def __new__(cls, owner: Any, values: dict[str, Any]) -> Self: ...

@disjoint_base
class Mark(Write):
    def __new__(cls, into: np.ndarray, places: np.ndarray, number: int) -> Self: ...

@disjoint_base
class Meanwhile:
    def __init__(
        self,
        make: Callable[[], tuple[list[Call | Write], list[Call | Write]]],
        prepare: Callable[[], object],
    ) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...

@disjoint_base
class Undo:
    @property
    def done(self) -> bool: ...
    def __init__(self, arrays: Iterable[np.ndarray], owners: Iterable[Any] = ()) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

@disjoint_base
class Prepared:
    writes: list[Call | Write]
    variables: list[Any]
    counts: bool
    def __new__(
        cls, writes: list[Call | Write], variables: Iterable[Any] = (), counts: bool = True
    ) -> Self: ...

@disjoint_base
class Launch(Write):
    possible: bool
    accepted: bool
    shares: bool
    asks: bool
    def __new__(
        cls,
        functions: tuple[Any, ...],
        check: Callable[[int, int, int], object],
        device: int,
        parts: list[tuple[Any, ...]],
        arrays: list[Any],
        places: list[int],
        limits: tuple[Any, ...],
        grads: list[Any],
    ) -> Self: ...
    def clip(self, limits: tuple[Any, ...]) -> None: ...
    def takes(self, grads: list[Any]) -> bool: ...
    def prepare(self, update: Any, scale: SupportsFloat) -> bool: ...
    def finite(self) -> bool: ...
    def follow(self, launches: list[Launch]) -> None: ...
    def release(self) -> None: ...

def carry_out(
    writes: list[Call | Write], undo: Undo | None = None, outer: Undo | None = None
) -> None: ...
