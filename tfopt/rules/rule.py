"""What a row of the table says of an update rule: its numbers, and nothing of its callers."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

__all__ = ["Rule"]


class Rule(NamedTuple):
    """One update rule.

    ``scalars`` are what the step takes after the gradient: expressions of the hyperparameters, and
    of scalars before them, evaluated once per call in the variable's own type; ``dense`` says for
    which kind of call. ``flags`` (attributes of the call) and
    ``choices`` (conditions on hyperparameters) are constants inside the step: it is compiled once
    for every combination of them.
    """

    name: str  # of the step in kernels/rules.pxd; the public function is apply_<name>
    summary: str
    source: str
    slots: tuple[str, ...]
    hypers: tuple[str, ...]
    scalars: dict[str, str]
    flags: dict[str, bool] = {}  # name -> default
    choices: dict[str, str] = {}  # name -> condition
    rows: str | None = None  # the step of sparse rows, where its answers are not the dense step's
    width1: str | None = None  # the step of rows of one element, where it is not that of others
    absent: str | None = None  # the step of the rows that a call for rows does not name, if any
    decays: dict[str, str] = {}  # slots which a step without a gradient multiplies, and by what
    grad: str = "grad"  # TensorFlow's name of the gradient
    complex: bool = False  # whether it is there for complex numbers, too

    @property
    def dtypes(self) -> str:
        """The dtypes a variable may have, as a sentence lists them."""
        if self.complex:
            return "float16, bfloat16, float32, float64, complex64 or complex128"
        return "float16, bfloat16, float32 or float64"

    @property
    def steps(self) -> dict[str, str]:
        """The rule's steps by the kind of call they serve; a kind without its own has another's."""
        own = {
            "dense": self.name,
            "rows": self.rows,
            "width1": self.width1,
            "absent": self.absent,
        }
        return {kind: step for kind, step in own.items() if step}

    @property
    def operands(self) -> tuple[str, ...]:
        """Names of the arrays of a call, in its order."""
        return ("var", *self.slots, self.grad)

    @property
    def constants(self) -> tuple[str, ...]:
        """Names of the step's compile-time constants; bit k of a variant's number is the k-th."""
        return (*self.flags, *self.choices)

    @property
    def variants(self) -> list[tuple[bool, ...]]:
        """Every combination of the constants, in the order of their number."""
        return [bits[::-1] for bits in product((False, True), repeat=len(self.constants))]

    @property
    def traffic(self) -> int:
        """Arrays read plus arrays written by one dense step."""
        return 2 * (1 + len(self.slots)) + 1
