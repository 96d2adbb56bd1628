"""The table of update rules, one row per rule.

Everything that can be derived from a row is derived from it: the loops around a rule's step
(``kernels/update/steps.pyx.tp``), the validation of a call, the functions of
:mod:`tfopt.training_ops` with their signatures and docstrings, the property tests, the benchmarks
and the tables of the documentation.

A :class:`Rule` describes the computation. If TensorFlow has ops for it, a :class:`TensorFlowOp`
describes their inputs and checks; a rule without ops gets the most common checks.

The build imports this folder by itself, so it must not import anything from the package. It writes
the module `signatures`.
"""

from .rule import Rule, taken_by
from .table import RULES
from .tensorflow import FORMS, LIMITS, OPS, Checks, Form, TensorFlowOp, checks_of

__all__ = [
    "DTYPES",
    "ELEMENTWISE",
    "FORMS",
    "LIMITS",
    "OPS",
    "RULES",
    "Checks",
    "Form",
    "Rule",
    "TensorFlowOp",
    "checks_of",
    "taken_by",
]

#: The element types every rule is compiled for.
DTYPES = ("float32", "float64")

#: The rules whose steps of an element depend on no other; the CUDA library has these.
ELEMENTWISE = tuple(rule for rule in RULES if rule.reduction is None)
