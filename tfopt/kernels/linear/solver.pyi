from typing import Any

from numpy import float64, int64, uint8
from numpy.typing import NDArray

def epoch(
    data: NDArray[Any],
    indices: NDArray[Any],
    indptr: NDArray[Any],
    dense: NDArray[Any],
    plan: NDArray[int64],
    examples: NDArray[Any],
    v: NDArray[float64],
    replicas: NDArray[float64],
    before: NDArray[float64],
    idle: NDArray[uint8],
    loss: str,
    parameter: float,
    l2: float,
    shrink: float,
    bias: float,
    bias_curvature: float,
    sigma: float,
    merges: int,
    threads: int,
    exact: bool = ...,
) -> tuple[float, float, float]: ...
def epoch_of_sweeps(
    data: NDArray[Any],
    indices: NDArray[Any],
    indptr: NDArray[Any],
    dense: NDArray[Any],
    examples: NDArray[Any],
    v: NDArray[float64],
    idle: NDArray[uint8],
    bucket: int,
    seed: int,
    n_sweeps: int,
    loss: str,
    parameter: float,
    l2: float,
    shrink: float,
    bias: float,
    bias_curvature: float,
) -> tuple[float, int, float]: ...
