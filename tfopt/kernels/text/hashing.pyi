from typing import Any

from numpy import int8, int32
from numpy.typing import NDArray

def hash_columns(
    columns: NDArray[Any], n_features: int, hashed: NDArray[int32], signs: NDArray[int8]
) -> None: ...
