from typing import Any

from numpy import float64
from numpy.typing import NDArray

def product(
    data: NDArray[Any],
    indices: NDArray[Any],
    indptr: NDArray[Any],
    dense: NDArray[Any],
    bends: NDArray[float64],
    s: NDArray[float64],
    threads: int = ...,
    shares: int = ...,
) -> NDArray[float64]: ...
def diagonal(
    data: NDArray[Any],
    indices: NDArray[Any],
    indptr: NDArray[Any],
    dense: NDArray[Any],
    bends: NDArray[float64],
    n_weights: int,
    threads: int = ...,
) -> NDArray[float64]: ...
def tangent(
    data: NDArray[Any],
    indices: NDArray[Any],
    indptr: NDArray[Any],
    dense: NDArray[Any],
    examples: NDArray[Any],
    w: NDArray[float64],
    bias: float,
    loss: str,
    parameter: float,
    threads: int = ...,
) -> tuple[
    float,
    NDArray[float64],
    NDArray[float64],
    NDArray[float64],
    NDArray[float64],
    NDArray[float64],
]: ...
