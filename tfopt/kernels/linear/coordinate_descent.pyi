from typing import Any

from numpy import float64
from numpy.typing import NDArray

def descend_matrix(
    A: NDArray[float64],
    gradient: NDArray[float64],
    w: NDArray[float64],
    down: NDArray[float64],
    up: NDArray[float64],
    tolerance: float,
    max_sweeps: int,
) -> int: ...
def descend_columns(
    data: NDArray[Any],
    indices: NDArray[Any],
    indptr: NDArray[Any],
    dense: NDArray[Any],
    bends: NDArray[float64],
    sums: NDArray[float64],
    curvatures: NDArray[float64],
    slopes: NDArray[float64],
    w: NDArray[float64],
    share: float,
    down: NDArray[float64],
    up: NDArray[float64],
    l2: NDArray[float64],
    tolerance: float,
    max_sweeps: int,
) -> tuple[int, float]: ...
