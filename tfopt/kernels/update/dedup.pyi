from typing import Any

from numpy import float64, intp
from numpy.typing import NDArray

def distinct_indices(
    indices: NDArray[Any], workspace: Any
) -> tuple[NDArray[Any], NDArray[intp]]: ...
def put_in_order(distinct: NDArray[Any], place: NDArray[intp], workspace: Any) -> None: ...
def add_rows(
    rows: NDArray[Any],
    place: NDArray[intp],
    sums: NDArray[Any],
    bound: float,
    scale: float,
    at: NDArray[intp] | None = ...,
    weights: NDArray[float64] | None = ...,
) -> None: ...
def add_many(lists: list[tuple[Any, ...]]) -> None: ...
