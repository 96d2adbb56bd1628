from typing import NamedTuple, Self

from typing_extensions import disjoint_base

from tfopt.kernels.update.checks import Call
from tfopt.kernels.update.commit import Write

class Watched(NamedTuple):
    gradient: tuple[float, int]
    update: tuple[float, int]
    nonfinite: int
    at_bound: int

@disjoint_base
class Turns(Write):
    def __new__(cls, calls: list[Call], watched: int = -1, bound: float = ...) -> Self: ...
    def watched(self) -> Watched: ...

def run_together(calls: list[Call]) -> None: ...
