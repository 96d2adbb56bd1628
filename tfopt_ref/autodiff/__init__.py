"""Gradients of NumPy computations: a tape, and functions with custom gradients.

To read it: `tensor` (what an operation is), `ops` (how gradients go back through one), `tape` (how
through many), `custom_gradient`. The rules are in `vjps`. Tracing, recomputation and renamed
gradients return exactly the numbers of what they replace.
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
