from typing import Any

from numpy import float64, int64
from numpy.typing import NDArray
from typing_extensions import disjoint_base

from tfopt.kernels.update.checks import Call

def factor(root: float, exponent: int, limit: float, single: bool) -> tuple[float, float]: ...
def factors(
    roots: NDArray[float64],
    exponents: NDArray[int64],
    limits: NDArray[float64],
    first: NDArray[Any],
    second: NDArray[Any],
) -> None: ...
def scale_call(
    outs: list[NDArray[Any]], arrays: list[NDArray[Any]], first: float, second: float, single: bool
) -> Call: ...
def round_call(outs: list[NDArray[Any]], arrays: list[NDArray[Any]]) -> Call: ...

@disjoint_base
class Rounding:
    def call_of(self, outs: list[NDArray[Any]], arrays: list[NDArray[Any]]) -> Call: ...

def scale_each_call(
    out: NDArray[Any], array: NDArray[Any], first: NDArray[Any], second: NDArray[Any]
) -> Call: ...
def clamp_call(
    out: NDArray[Any], array: NDArray[Any], low: NDArray[Any], high: NDArray[Any]
) -> Call: ...
def weigh_call(
    outs: list[NDArray[Any]],
    members: list[list[NDArray[Any]]],
    weights: list[float],
    adds: bool,
    base: list[NDArray[Any]] | None = None,
) -> Call: ...
