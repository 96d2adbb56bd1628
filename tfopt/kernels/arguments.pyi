from typing import Any

from numpy.typing import NDArray

def as_array(value: Any, name: str) -> NDArray[Any]: ...
