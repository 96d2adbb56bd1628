from typing import Any

from numpy import float64, void
from numpy.typing import NDArray

def gaps(
    examples: NDArray[void],
    a: NDArray[float64],
    wx: NDArray[float64],
    bias: float,
    loss: str,
    parameter: float,
    threads: int = ...,
) -> tuple[float, float]: ...
def tangents(
    examples: NDArray[void],
    wx: NDArray[float64],
    bias: float,
    loss: str,
    parameter: float,
    last: tuple[NDArray[float64], NDArray[float64], NDArray[float64]] | None = ...,
    threads: int = ...,
) -> tuple[float, NDArray[float64], NDArray[float64], NDArray[float64], float]: ...
def derivatives(
    examples: NDArray[void],
    wx: NDArray[float64],
    bias: float,
    loss: str,
    parameter: float,
    threads: int = ...,
) -> tuple[NDArray[float64], NDArray[float64]]: ...
def newton_system(
    data: NDArray[Any],
    indices: NDArray[Any],
    indptr: NDArray[Any],
    dense: NDArray[Any],
    slopes: NDArray[float64],
    bends: NDArray[float64],
    n_weights: int,
    threads: int = ...,
) -> tuple[NDArray[float64], NDArray[float64]]: ...
def solve(
    A: NDArray[float64], b: NDArray[float64], is_factor: bool = ..., least_pivot: float = ...
) -> bool: ...
