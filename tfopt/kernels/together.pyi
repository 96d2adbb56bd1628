from typing import NamedTuple

from tfopt.kernels.calls import Call

class Watched(NamedTuple):
    gradient_squares: float
    update_squares: float
    nonfinite: int
    at_bound: int

def use_sums(capsule: object) -> None: ...
def run_together(calls: list[Call], watched: int = -1, bound: float = ...) -> Watched | None: ...
