from typing import Any

from numpy import dtype, float64, int64, uint8, void
from numpy.typing import NDArray

LOSSES: tuple[str, ...]
EXAMPLE: dtype[void]

def shuffled(n: int, bucket: int, seed: int, epoch: int) -> NDArray[int64]: ...
def awake(idle: NDArray[uint8], sweep: int) -> NDArray[int64]: ...
def importance(
    examples: NDArray[void],
    wx: NDArray[float64],
    loss: str,
    l2: float,
    parameter: float = ...,
) -> NDArray[float64]: ...
def sampled(p: NDArray[float64], seed: int, epoch: int) -> NDArray[int64]: ...
def weights_of(
    data: NDArray[Any],
    indices: NDArray[Any],
    indptr: NDArray[Any],
    dense: NDArray[Any],
    examples: NDArray[void],
    v: NDArray[float64],
    l2: float,
) -> None: ...
def squared_norms(
    data: NDArray[Any], indptr: NDArray[Any], dense: NDArray[Any]
) -> NDArray[float64]: ...
def moments(X: NDArray[Any], threads: int = ...) -> NDArray[float64]: ...
def predictions(
    data: NDArray[Any],
    indices: NDArray[Any],
    indptr: NDArray[Any],
    dense: NDArray[Any],
    v: NDArray[float64],
    shrink: float,
    threads: int = ...,
) -> NDArray[float64]: ...
def terms(
    examples: NDArray[void], before: NDArray[float64], wx: NDArray[float64], loss: str
) -> tuple[NDArray[float64], NDArray[float64]]: ...
