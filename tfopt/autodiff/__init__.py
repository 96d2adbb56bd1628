"""Gradients of NumPy's functions: a tape, custom gradients, and functions that are traced."""

from tfopt.autodiff import vjps
from tfopt.autodiff.bind import Bind
from tfopt.autodiff.conversion import set_conversion
from tfopt.autodiff.custom_gradient import custom_gradient, grad_pass_through
from tfopt.autodiff.forward import ForwardAccumulator, jvp
from tfopt.autodiff.function import Function, TensorSpec, function
from tfopt.autodiff.numeric import check_grads, compute_gradient, max_error
from tfopt.autodiff.recompute import recompute_grad
from tfopt.autodiff.registry import (
    NoGradient,
    NotDifferentiable,
    RegisterGradient,
    get_variable_by_name,
    gradient_override_map,
    no_gradient,
)
from tfopt.autodiff.tape import GradientTape, UnconnectedGradients
from tfopt.autodiff.tensor import Tensor, constant, stop_gradient
from tfopt.errors import GradientLostWarning
from tfopt.indexed_slices import IndexedSlices

__all__ = [
    "check_grads",
    "compute_gradient",
    "max_error",
    "Function",
    "TensorSpec",
    "function",
    "Bind",
    "ForwardAccumulator",
    "GradientLostWarning",
    "GradientTape",
    "IndexedSlices",
    "NoGradient",
    "NotDifferentiable",
    "RegisterGradient",
    "Tensor",
    "UnconnectedGradients",
    "constant",
    "custom_gradient",
    "get_variable_by_name",
    "grad_pass_through",
    "gradient_override_map",
    "jvp",
    "no_gradient",
    "recompute_grad",
    "set_conversion",
    "stop_gradient",
    "vjps",
]


def __dir__() -> list[str]:
    return __all__
