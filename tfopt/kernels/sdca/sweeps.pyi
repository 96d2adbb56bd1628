from typing import Any

from numpy import float64, uint8
from numpy.typing import NDArray

def epoch(
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
