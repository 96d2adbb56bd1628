"""The specification of tfopt: what the numbers are, in NumPy expressions and plain loops.

The same results bit for bit, and no speed. It imports nothing from tfopt. Read first how an
optimizer's step is made:

1. `training_ops`: the formulas of the update rules; `arithmetic`: what their operations mean.
2. `training_op`, `update`: a rule applied to a whole variable, or to some rows of it.
3. `schedules`, `algorithms`: learning rates, and each optimizer as a function of the step.
4. `norms`, `clip_ops`, `limits`: how norms are added up, and gradients limited by them.
5. `optimizer_step`, `training`: one step, of an optimizer and of wrappers around it.

Then linear learning by dual coordinate ascent: `sdca_losses`, `sdca`, `sdca_ops`, `fingerprint`;
the whole fits: `sdca_solver`, `sdca_certificate`, `sdca_newton`, `sdca_fit`, `sdca_block_fit`.
Last, gradients by tapes: `autodiff`.
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
