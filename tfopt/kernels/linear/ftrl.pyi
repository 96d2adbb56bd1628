from typing import Any

from numpy import float64, int64
from numpy.typing import NDArray

def learn(
    data: NDArray[Any],
    indices: NDArray[Any],
    indptr: NDArray[Any],
    order: NDArray[int64],
    targets: NDArray[float64],
    weights: NDArray[float64],
    offset: NDArray[float64],
    table: NDArray[float64],
    averages: NDArray[float64],
    losses: NDArray[float64],
    batch_size: int,
    loss: str,
    parameter: float,
    intercept: bool,
    lr: float,
    beta: float,
    l1: float,
    l2: float,
    average: int,
    attributes: dict[str, Any],
    changes: dict[str, Any],
) -> int: ...
