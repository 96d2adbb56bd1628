from typing import Any

from numpy import dtype, float64, int64
from numpy.typing import NDArray

LANES: int
SAMPLE: dtype[Any]

def epoch(
    data: NDArray[Any],
    indices: NDArray[Any],
    indptr: NDArray[Any],
    dense: NDArray[Any],
    plan: NDArray[int64],
    samples: NDArray[Any],
    b: NDArray[float64],
    t: NDArray[float64],
    v: NDArray[float64],
    bias: NDArray[float64],
    n_lanes: int,
    loss: str,
    parameter: float,
    l2: float,
    shrink: float,
    bias_curvature: float,
) -> NDArray[float64]: ...
def predictions(
    data: NDArray[Any],
    indices: NDArray[Any],
    indptr: NDArray[Any],
    dense: NDArray[Any],
    w: NDArray[float64],
) -> NDArray[float64]: ...
def weights_of(
    data: NDArray[Any],
    indices: NDArray[Any],
    indptr: NDArray[Any],
    dense: NDArray[Any],
    factors: NDArray[float64],
    n_weights: int,
) -> NDArray[float64]: ...
