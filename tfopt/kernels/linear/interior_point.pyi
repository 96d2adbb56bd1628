from numpy import float64
from numpy.typing import NDArray

FIELDS: tuple[str, ...]

def advance(fields: NDArray[float64], share: float, threads: int = ...) -> NDArray[float64]: ...
def predict(
    fields: NDArray[float64], changes: NDArray[float64], bias: float, threads: int = ...
) -> tuple[NDArray[float64], NDArray[float64]]: ...
def correct(
    fields: NDArray[float64],
    changes: NDArray[float64],
    bias: float,
    target: float,
    threads: int = ...,
) -> NDArray[float64]: ...
def step(
    X: NDArray[float64],
    fields: NDArray[float64],
    u: NDArray[float64],
    l2: float,
    intercept: bool,
    share: float,
    products: float,
    total: float,
) -> NDArray[float64] | None: ...
