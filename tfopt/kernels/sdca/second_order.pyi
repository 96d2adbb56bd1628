from typing import Any

from numpy import float64, void
from numpy.typing import NDArray

def gaps(
    examples: NDArray[void],
    wx: NDArray[float64],
    bias: float,
    loss: str,
    parameter: float,
    threads: int = ...,
) -> tuple[float, float]: ...
def losses(
    examples: NDArray[void],
    wx: NDArray[float64],
    bias: float,
    loss: str,
    parameter: float,
    threads: int = ...,
) -> float: ...
def derivatives(
    examples: NDArray[void],
    wx: NDArray[float64],
    bias: float,
    loss: str,
    parameter: float,
    threads: int = ...,
) -> tuple[NDArray[float64], NDArray[float64]]: ...
def hessian(
    data: NDArray[Any],
    indices: NDArray[Any],
    indptr: NDArray[Any],
    dense: NDArray[Any],
    bends: NDArray[float64],
    n_weights: int,
    threads: int = ...,
) -> NDArray[float64]: ...
def solve(A: NDArray[float64], b: NDArray[float64]) -> bool: ...
