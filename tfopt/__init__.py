"""TensorFlow's training machinery without TensorFlow, for NumPy arrays."""

from tfopt import errors, optimizers, raw_ops, threads, training_ops
from tfopt.denormals import get_flush_denormals, set_flush_denormals
from tfopt.errors import IndexOutOfRangeError, InvalidArgumentError, InvalidTypeError
from tfopt.indexed_slices import IndexedSlices
from tfopt.variable import Variable
from tfopt.versions import show_versions

__version__ = "0.1.0"

__all__ = [
    "IndexOutOfRangeError",
    "IndexedSlices",
    "InvalidArgumentError",
    "InvalidTypeError",
    "Variable",
    "__version__",
    "errors",
    "get_flush_denormals",
    "optimizers",
    "raw_ops",
    "set_flush_denormals",
    "show_versions",
    "threads",
    "training_ops",
]
