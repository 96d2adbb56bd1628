from typing import Any, final

from numpy import int64
from numpy.typing import NDArray

@final
class Places:
    repeated: int
    def __new__(cls, ids: NDArray[int64]) -> Places: ...

def count(example_indices: NDArray[Any], counts: NDArray[int64]) -> int: ...
def fill(
    data: NDArray[Any],
    indices: NDArray[Any],
    ends: NDArray[int64],
    example_indices: NDArray[Any],
    ids: NDArray[Any],
    values: NDArray[Any] | None,
    places: Places,
    offset: int,
    seen: NDArray[int64],
) -> tuple[int, bool]: ...
def first_not_finite(values: NDArray[Any]) -> int: ...
