"""The readable twin of tfopt: what each operation means, in NumPy expressions and plain loops.

Same public names, same results bit for bit, no speed. It imports nothing from tfopt.
"""

from tfopt_ref import (
    autodiff,
    clip_grads,
    clip_ops,
    errors,
    linalg,
    raw_ops,
    sdca_ops,
    training_ops,
)
from tfopt_ref.arithmetic import get_flush_denormals, set_flush_denormals
from tfopt_ref.autodiff import (
    Bind,
    GradientTape,
    NoGradient,
    NotDifferentiable,
    RegisterGradient,
    Tensor,
    TensorSpec,
    UnconnectedGradients,
    constant,
    custom_gradient,
    function,
    get_variable_by_name,
    grad_pass_through,
    gradient_override_map,
    no_gradient,
    recompute_grad,
    stop_gradient,
)
from tfopt_ref.autodiff.indexed_slices import IndexedSlices
from tfopt_ref.autodiff.variable import Variable
from tfopt_ref.clip_ops import (
    clip_by_average_norm,
    clip_by_global_norm,
    clip_by_norm,
    clip_by_value,
    global_norm,
)
from tfopt_ref.errors import IndexOutOfRangeError, InvalidArgumentError, InvalidTypeError

__all__ = [
    "Bind",
    "GradientTape",
    "IndexOutOfRangeError",
    "IndexedSlices",
    "InvalidArgumentError",
    "InvalidTypeError",
    "NoGradient",
    "NotDifferentiable",
    "RegisterGradient",
    "Tensor",
    "TensorSpec",
    "UnconnectedGradients",
    "Variable",
    "autodiff",
    "clip_by_average_norm",
    "clip_by_global_norm",
    "clip_by_norm",
    "clip_by_value",
    "clip_grads",
    "clip_ops",
    "constant",
    "custom_gradient",
    "errors",
    "function",
    "get_flush_denormals",
    "get_variable_by_name",
    "global_norm",
    "grad_pass_through",
    "gradient_override_map",
    "linalg",
    "no_gradient",
    "raw_ops",
    "recompute_grad",
    "sdca_ops",
    "set_flush_denormals",
    "stop_gradient",
    "training_ops",
]
