from typing import Any

from numpy import float64, int64
from numpy.typing import NDArray

def visit(
    data: NDArray[Any],
    indices: NDArray[Any],
    indptr: NDArray[Any],
    dense: NDArray[Any],
    plan: NDArray[int64],
    examples: NDArray[Any],
    u: NDArray[float64],
    loss: str,
    parameter: float,
    l2: float,
    shrink: float,
    bias: float,
    bias_curvature: float,
    sigma: float,
) -> tuple[float, float]: ...
def change(v: NDArray[float64], u: NDArray[float64], shrink: float, sigma: float) -> float: ...
def excesses(v: NDArray[float64], dv: NDArray[float64], shrink: float) -> tuple[float, float]: ...
def kept(
    joint: float, own: float, bound: float, n_partitions: int, sigma: float
) -> tuple[float, float]: ...
