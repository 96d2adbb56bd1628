from typing import Any

from numpy import intp
from numpy.typing import NDArray

from tfopt.room import Room

def distinct_indices(indices: NDArray[Any], room: Room) -> tuple[NDArray[Any], NDArray[intp]]: ...
def put_in_order(distinct: NDArray[Any], place: NDArray[intp], room: Room) -> None: ...
def add_rows(
    values: NDArray[Any], place: NDArray[intp], sums: NDArray[Any], bound: float, scale: float
) -> None: ...
