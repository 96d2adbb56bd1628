"""Gradients of NumPy computations: a tape, and functions with custom gradients.

Read `tensor` first (operations), then `ops` (the gradients of an operation), `tape` (the gradients
of many operations) and `custom_gradient`. The rules are in `vjps`. Tracing, recomputation and
renamed gradients are absent, since they return exactly the numbers of the code they replace.
"""

from tfopt_ref.autodiff import vjps
from tfopt_ref.autodiff.custom_gradient import custom_gradient, stop_gradient
from tfopt_ref.autodiff.indexed_slices import IndexedSlices
from tfopt_ref.autodiff.tape import GradientTape
from tfopt_ref.autodiff.tensor import Tensor, constant
from tfopt_ref.autodiff.variable import Variable

__all__ = [
    "GradientTape",
    "IndexedSlices",
    "Tensor",
    "Variable",
    "constant",
    "custom_gradient",
    "stop_gradient",
    "vjps",
]
