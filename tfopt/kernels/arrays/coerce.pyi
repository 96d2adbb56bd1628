from typing import Any

import numpy as np
from numpy.typing import NDArray

SIGNED8_DTYPE: np.dtype[np.void]
POSITIVE8_DTYPE: np.dtype[np.void]
SIGNED4_DTYPE: np.dtype[np.void]
POSITIVE4_DTYPE: np.dtype[np.void]
DYNAMIC8_DTYPE: np.dtype[np.void]
POSITIVE_DYNAMIC8_DTYPE: np.dtype[np.void]

def as_array(value: Any, name: str) -> NDArray[Any]: ...
def of_torch(value: Any, name: str) -> NDArray[Any] | None: ...
def memory_address(array: NDArray[Any]) -> int: ...
def placement(
    array: NDArray[Any],
) -> tuple[int, tuple[int, ...], tuple[int, ...], np.dtype[Any]]: ...
def all_plain(arrays: list[Any]) -> bool: ...
