from typing import Self, final

from tfopt.rules import Rule

@final
class Kernel:
    rule: Rule
    name: str
    def __new__(cls, rule: Rule, first: int) -> Self: ...

def use_steps(capsule: object) -> None: ...
def call_steps(capsule: object) -> None: ...
