from typing import Any

from numpy import float64, int32, int64
from numpy.typing import NDArray

def parse(
    text: Any, single: bool, first_index: int, last_index: int, skips: bool
) -> tuple[
    NDArray[float64],
    NDArray[Any],
    NDArray[int32],
    NDArray[int64],
    NDArray[int64],
    NDArray[int64] | None,
    int,
    tuple[int, int] | None,
    int,
]: ...
def survey(text: Any, last_index: int) -> tuple[NDArray[float64], int, int, int] | None: ...
