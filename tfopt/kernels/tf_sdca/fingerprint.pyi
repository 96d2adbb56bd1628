from typing import Any

from numpy import int64
from numpy.typing import NDArray

def of_strings(items: list[Any]) -> NDArray[int64]: ...
def of_bytes(array: NDArray[Any]) -> NDArray[int64]: ...
