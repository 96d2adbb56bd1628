"""A row of the table: the computation of an update rule, independent of its callers."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from .signatures import SIGNATURES  # which the build writes

__all__ = ["Rule", "taken_by"]


def taken_by(step: str) -> tuple[str, ...]:
    """Return the arguments that a step in kernels/update/rules.pxd takes by value."""
    return SIGNATURES[step]


class Rule(NamedTuple):
    """One update rule.

    The arguments of the step after the gradient are its ``scalars``, by the names that the step
    gives them: hyperparameters, differences ``one_minus_`` them, and what is ``computed``:
    expressions of the hyperparameters and of preceding scalars, evaluated once per call in the
    variable's type; in them, ``dense`` tells dense from sparse calls. ``flags`` (attributes of the
    call) and ``choices`` (conditions on hyperparameters) are compile-time constants of the step,
    which is compiled once for every combination of them.

    If the step of an element depends on others, `reduction` says on which: "row", those of its row
    of the variable, or "tensor", all of the variable. A first step, ``<name>_first``, then adds the
    element's terms to `sums`, in float64 and in the order of norms; of the sums follow `reduced`:
    new `row_slots`, which have one number for each row, and further scalars of the step. These
    expressions, in which flags are known, are evaluated in float64 for each row or variable, and
    rounded to the variable's type; ``size`` is the number of elements. Steps of variables do not
    get the flags.
    """

    name: str  #: of the step in kernels/update/rules.pxd; the public function is apply_<name>
    summary: str  #: the first line of the function's docstring
    source: str  #: the paper
    slots: tuple[str, ...]  #: names of the arrays of state, in order
    hypers: tuple[str, ...]  #: names of the hyperparameters, in order
    computed: dict[str, str] = {}  #: scalars of the step that are not as below -> expressions
    flags: dict[str, bool] = {}  #: attributes of the call: name -> default
    choices: dict[str, str] = {}  #: name -> condition on hyperparameters
    rows: str | None = None  #: the step of sparse rows, if its results differ from the dense step's
    width1: str | None = None  #: the step of sparse rows of one element, if different
    absent: str | None = None  #: the step of rows not listed in a sparse call, if there is one
    decays: dict[str, str] = {}  #: slots that decay in steps without a gradient: slot -> factor
    codes: dict[str, str] = {}  #: slots that 8 bits suffice for: slot -> "signed" or "positive"
    grad: str = "grad"  #: TensorFlow's name of the gradient
    complex: bool = False  #: whether complex dtypes are supported
    reduction: str | None = None  #: over which elements there are sums: "row", "tensor"
    sums: tuple[str, ...] = ()  #: names of the sums, in order
    row_slots: tuple[str, ...] = ()  #: slots with one number for each row: the last of the slots
    reduced: dict[str, str] = {}  #: row slots and scalars -> expressions of the sums

    @property
    def scalars(self) -> dict[str, str]:
        """The arguments of the step after the gradient -> expressions, in the step's order."""
        others = {"g", *self.operands, *self.further, *self.constants}
        names = [name for name in taken_by(self.name) if name not in others]
        if unused := self.computed.keys() - names:
            raise ValueError(f"the step {self.name} takes no {', '.join(sorted(unused))}")
        return {name: self.computed.get(name) or self._simple(name) for name in names}

    def _simple(self, scalar: str) -> str:
        """Return the expression of a scalar that is not computed."""
        hyper = scalar.removeprefix("one_minus_")
        if hyper not in self.hypers:
            raise ValueError(f"the step {self.name} takes {scalar}, which is not computed")
        return hyper if hyper == scalar else f"1 - {hyper}"

    @property
    def dtypes(self) -> str:
        """The dtypes a variable may have, as a phrase for messages and docs."""
        if self.complex:
            return "float16, bfloat16, float32, float64, complex64 or complex128"
        return "float16, bfloat16, float32 or float64"

    @property
    def steps(self) -> dict[str, str]:
        """The rule's steps by kind of call; kinds without a separate step are left out."""
        steps = {
            "dense": self.name,
            "rows": self.rows,
            "width1": self.width1,
            "absent": self.absent,
        }
        return {kind: step for kind, step in steps.items() if step}

    @property
    def operands(self) -> tuple[str, ...]:
        """Names of the arrays of a call, in order."""
        return ("var", *self.slots, self.grad)

    @property
    def whole(self) -> tuple[str, ...]:
        """Names of the arrays that are written and have the variable's shape."""
        return ("var", *self.slots[: len(self.slots) - len(self.row_slots)])

    @property
    def further(self) -> tuple[str, ...]:
        """Names of the step's arguments that follow from sums, behind the scalars."""
        return tuple(name for name in self.reduced if name not in self.row_slots)

    def shape_of(self, operand: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of an operand for a variable of a shape."""
        return shape[:1] if operand in self.row_slots else shape

    @property
    def constants(self) -> tuple[str, ...]:
        """Names of the step's compile-time constants; bit k of a variant's number is constant k."""
        return (*self.flags, *self.choices)

    @property
    def variants(self) -> list[tuple[bool, ...]]:
        """Every combination of the constants, ordered by number."""
        return [bits[::-1] for bits in product((False, True), repeat=len(self.constants))]

    @property
    def traffic(self) -> int:
        """Number of arrays read plus number of arrays written by a dense step."""
        return 2 * len(self.whole) + 1
