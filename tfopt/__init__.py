"""Optimizers, gradients and linear models for NumPy arrays: TensorFlow's without TensorFlow.

``tfopt.optimizers.Adam(0.1).step(params, grads)`` updates arrays in place. Where things are:

- `optimizers`: optimizers, schedules, wrappers; `checkpoints`: files from which training resumes
- `GradientTape`, `Variable`, `custom_gradient`, `function`, `autodiff`: gradients of NumPy code,
  with `scipy` for functions of SciPy that have none by themselves
- `clip_ops`, `clip_grads`, `linalg`: clipping, norms; `IndexedSlices`: gradients of a few rows
- `linear_model`: classifiers and regressors for scikit-learn; `io`: LIBSVM files
- `dask`, `ray`, `mpi`: clusters; `cuda`, `threads`: where and on how many cores kernels run
- `training_ops`, `raw_ops`, `sdca_ops`, `sdca_model`: TensorFlow's rules and ops as functions
- `interop`: states of Keras, PyTorch and bitsandbytes, torch's optimizer classes, ONNX
- `errors`: what is raised; ``tfopt.show_versions()`` for reports, ``tfopt selftest`` in a shell
"""

from typing import TYPE_CHECKING, Any

import tfopt.kernels  # noqa: F401  # says what a tree lacks that is not built
from tfopt import errors, threads
from tfopt.core.versions import __version__, show_versions
from tfopt.denormals import get_flush_denormals, set_flush_denormals
from tfopt.errors import IndexOutOfRangeError, InvalidArgumentError, InvalidTypeError
from tfopt.imports import imported

if TYPE_CHECKING:
    from tfopt import (
        autodiff,
        clip_grads,
        clip_ops,
        cuda,
        linalg,
        optimizers,
        raw_ops,
        sdca_model,
        sdca_ops,
        training_ops,
    )
    from tfopt import checkpoints as checkpoints
    from tfopt import dask as dask
    from tfopt import interop as interop
    from tfopt import io as io
    from tfopt import linear_model as linear_model
    from tfopt import mpi as mpi
    from tfopt import ray as ray
    from tfopt import scipy as scipy
    from tfopt.autodiff import (
        Bind,
        ForwardAccumulator,
        GradientTape,
        NoGradient,
        NotDifferentiable,
        RegisterGradient,
        Tensor,
        TensorSpec,
        UnconnectedGradients,
        constant,
        get_variable_by_name,
        grad_pass_through,
        gradient_override_map,
        jvp,
        no_gradient,
        recompute_grad,
        stop_gradient,
    )
    from tfopt.autodiff.custom_gradient import custom_gradient
    from tfopt.autodiff.function import function
    from tfopt.bags import Bags, lookup_bags
    from tfopt.clip_ops import (
        clip_by_average_norm,
        clip_by_global_norm,
        clip_by_norm,
        clip_by_value,
        global_norm,
    )
    from tfopt.indexed_slices import IndexedSlices
    from tfopt.means import WeightedMean, weighted_mean
    from tfopt.sparse_rows import SparseRows
    from tfopt.variable import Variable

__all__ = [
    "Bags",
    "Bind",
    "ForwardAccumulator",
    "GradientTape",
    "IndexOutOfRangeError",
    "IndexedSlices",
    "InvalidArgumentError",
    "InvalidTypeError",
    "NoGradient",
    "NotDifferentiable",
    "RegisterGradient",
    "SparseRows",
    "Tensor",
    "TensorSpec",
    "UnconnectedGradients",
    "Variable",
    "WeightedMean",
    "__version__",
    "autodiff",
    "clip_by_average_norm",
    "clip_by_global_norm",
    "clip_by_norm",
    "clip_by_value",
    "clip_grads",
    "clip_ops",
    "constant",
    "cuda",
    "custom_gradient",
    "errors",
    "function",
    "get_flush_denormals",
    "get_variable_by_name",
    "global_norm",
    "grad_pass_through",
    "gradient_override_map",
    "jvp",
    "linalg",
    "lookup_bags",
    "no_gradient",
    "optimizers",
    "raw_ops",
    "recompute_grad",
    "sdca_model",
    "sdca_ops",
    "set_flush_denormals",
    "show_versions",
    "stop_gradient",
    "threads",
    "training_ops",
    "weighted_mean",
]


#: What is imported when it is first used: packages and modules, and where names come from.
_MODULES = {
    "autodiff",
    "checkpoints",
    "clip_grads",
    "clip_ops",
    "cuda",
    "dask",
    "interop",
    "io",
    "linalg",
    "linear_model",
    "mpi",
    "optimizers",
    "raw_ops",
    "ray",
    "scipy",
    "sdca_model",
    "sdca_ops",
    "training_ops",
}
_ORIGINS = {
    "Bags": "bags",
    "lookup_bags": "bags",
    "IndexedSlices": "indexed_slices",
    "SparseRows": "sparse_rows",
    "Variable": "variable",
    "WeightedMean": "means",
    "weighted_mean": "means",
    **dict.fromkeys(
        (
            "clip_by_average_norm",
            "clip_by_global_norm",
            "clip_by_norm",
            "clip_by_value",
            "global_norm",
        ),
        "clip_ops",
    ),
    **dict.fromkeys(
        (
            "Bind",
            "ForwardAccumulator",
            "GradientTape",
            "NoGradient",
            "NotDifferentiable",
            "RegisterGradient",
            "Tensor",
            "TensorSpec",
            "UnconnectedGradients",
            "constant",
            "custom_gradient",
            "function",
            "get_variable_by_name",
            "grad_pass_through",
            "gradient_override_map",
            "jvp",
            "no_gradient",
            "recompute_grad",
            "stop_gradient",
        ),
        "autodiff",
    ),
}
#: What has to be installed for some of them: `dir` shows those that can be imported.
_NEEDS = {
    "dask": ("dask", "distributed", "sklearn"),
    **dict.fromkeys(("linear_model", "mpi", "ray"), ("sklearn",)),
}
#: Where a name may be meant to be that is not here.
_HOMES = tuple(
    f"tfopt.{module}"
    for module in ("optimizers", "optimizers.schedules", "linear_model", "autodiff", "io")
)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return imported(f"tfopt.{name}")
    if name not in _ORIGINS:
        raise imported("tfopt.names").no_attribute("tfopt", name, __all__, _HOMES)
    found = getattr(imported(f"tfopt.{_ORIGINS[name]}"), name)
    globals()[name] = found  # so that it is looked up once
    return found


def __dir__() -> list[str]:
    find_spec = imported("importlib.util").find_spec
    lacking = {name for name, needed in _NEEDS.items() if not all(map(find_spec, needed))}
    return sorted({*__all__, *_MODULES} - lacking)
