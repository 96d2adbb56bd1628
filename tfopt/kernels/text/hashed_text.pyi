from typing import Any

from numpy import float64, int32, int64
from numpy.typing import NDArray

def parse(
    text: Any,
    is_last: bool,
    names: list[bytes],
    roles: bytes | None,
    crosses: list[tuple[int, int]],
    n_hashes: int,
    separator: int,
    has_quotes: bool,
    single: bool,
    skips: bool,
) -> tuple[
    NDArray[float64],
    NDArray[float64],
    NDArray[Any],
    NDArray[int32],
    NDArray[int64],
    int,
    int,
    tuple[int, int, int, int] | None,
]: ...
