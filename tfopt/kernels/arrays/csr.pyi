from typing import Any

from numpy import int64
from numpy.typing import NDArray

def check_indices(indices: Any, stop: int, name: str) -> None: ...
def check_csr(
    data: Any, indices: Any, indptr: Any, shape: tuple[int, ...], name: str = "X"
) -> None: ...
def ascends(indices: NDArray[Any], indptr: NDArray[int64]) -> bool: ...
def take(
    data: NDArray[Any],
    indices: NDArray[Any],
    indptr: NDArray[int64],
    rows: NDArray[int64],
    n_columns: int,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[int64]]: ...
def dot(
    data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[int64], w: NDArray[Any]
) -> NDArray[Any]: ...
