"""The readable twin of tfopt: what each operation means, in NumPy expressions and plain loops.

Same public names, same results bit for bit, no speed. It imports nothing from tfopt.
"""

from tfopt_ref import (
    clip_grads,
    clip_ops,
    errors,
    linalg,
    optimizers,
    raw_ops,
    sdca_model,
    sdca_ops,
    training_ops,
)
from tfopt_ref.arithmetic import get_flush_denormals, set_flush_denormals
from tfopt_ref.clip_ops import (
    clip_by_average_norm,
    clip_by_global_norm,
    clip_by_norm,
    clip_by_value,
    global_norm,
)
from tfopt_ref.errors import IndexOutOfRangeError, InvalidArgumentError, InvalidTypeError
from tfopt_ref.indexed_slices import IndexedSlices
from tfopt_ref.variable import Variable

__all__ = [
    "IndexOutOfRangeError",
    "IndexedSlices",
    "InvalidArgumentError",
    "InvalidTypeError",
    "Variable",
    "clip_by_average_norm",
    "clip_by_global_norm",
    "clip_by_norm",
    "clip_by_value",
    "clip_grads",
    "clip_ops",
    "errors",
    "get_flush_denormals",
    "global_norm",
    "linalg",
    "optimizers",
    "raw_ops",
    "sdca_model",
    "sdca_ops",
    "set_flush_denormals",
    "training_ops",
]
