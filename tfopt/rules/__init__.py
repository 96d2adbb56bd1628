"""The table: one row per update rule.

Everything that can follow from a row does: the loops around a rule's step
(``kernels/steps.pyx.tp``), the validation of a call, the functions of :mod:`tfopt.training_ops`
with their signatures and docstrings, the property tests, the benchmarks and the tables of the
documentation.

A :class:`Rule` says what the numbers are. If TensorFlow has ops for it, a :class:`TensorFlowOp`
says what they look like and what they check; a rule without one is checked as most of them are.

The build reads this folder on its own, so it imports nothing of the package.
"""

from .rule import Rule
from .table import RULES
from .tensorflow import FORMS, LIMITS, OPS, Checks, Form, TensorFlowOp, checks_of

__all__ = [
    "DTYPES",
    "FORMS",
    "LIMITS",
    "OPS",
    "RULES",
    "Checks",
    "Form",
    "Rule",
    "TensorFlowOp",
    "checks_of",
]

#: The element types every rule is compiled for.
DTYPES = ("float32", "float64")
