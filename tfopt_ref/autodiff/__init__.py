"""Gradients of what NumPy computes: a tape, custom gradients, and functions that are replayed.

To read it: `tensor` (what an operation is), `ops` (how gradients go back through one), `tape` (how
through many), `custom_gradient`. The rules are in `vjps`; `trace` and `function` replay.
"""

from tfopt_ref.autodiff import vjps
from tfopt_ref.autodiff.conversion import set_conversion
from tfopt_ref.autodiff.custom_gradient import Bind, custom_gradient, stop_gradient
from tfopt_ref.autodiff.function import TensorSpec, function
from tfopt_ref.autodiff.indexed_slices import IndexedSlices
from tfopt_ref.autodiff.numeric import check_grads, compute_gradient, max_error
from tfopt_ref.autodiff.recompute import grad_pass_through, recompute_grad
from tfopt_ref.autodiff.registry import (
    NoGradient,
    NotDifferentiable,
    RegisterGradient,
    gradient_override_map,
    no_gradient,
)
from tfopt_ref.autodiff.tape import GradientTape, UnconnectedGradients
from tfopt_ref.autodiff.tensor import Tensor, constant
from tfopt_ref.autodiff.variable import Variable, get_variable_by_name
from tfopt_ref.errors import GradientLostWarning

__all__ = [
    "Bind",
    "GradientLostWarning",
    "GradientTape",
    "IndexedSlices",
    "NoGradient",
    "NotDifferentiable",
    "RegisterGradient",
    "Tensor",
    "TensorSpec",
    "UnconnectedGradients",
    "Variable",
    "check_grads",
    "compute_gradient",
    "constant",
    "custom_gradient",
    "function",
    "get_variable_by_name",
    "grad_pass_through",
    "gradient_override_map",
    "max_error",
    "no_gradient",
    "recompute_grad",
    "set_conversion",
    "stop_gradient",
    "vjps",
]
