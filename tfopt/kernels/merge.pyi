from typing import Any

from numpy import intp
from numpy.typing import NDArray

def distinct_indices(indices: NDArray[Any]) -> tuple[NDArray[Any], NDArray[intp]]: ...
def add_rows(values: NDArray[Any], place: NDArray[intp], sums: NDArray[Any]) -> None: ...
def add_scaled_rows(
    values: NDArray[Any], place: NDArray[intp], sums: NDArray[Any], bound: float, scale: float
) -> None: ...
