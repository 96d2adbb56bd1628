"""Gradients and variables as a caller gives them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from tfopt_ref.autodiff.tensor import Tensor
from tfopt_ref.call_site import stacklevel
from tfopt_ref.errors import InvalidArgumentError, InvalidTypeError
from tfopt_ref.foreign import as_slices
from tfopt_ref.indexed_slices import IndexedSlices
from tfopt_ref.training_ops import apply_gradient_descent
from tfopt_ref.variable import Variable

__all__ = [
    "are_finite",
    "as_arrays",
    "as_gradient",
    "as_variable",
    "checked_gradient",
    "checked_pairs",
    "memory_of",
    "now_at",
    "refuse_rows",
    "times",
]


def checked_pairs(pairs: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Return pairs without those whose gradient is None."""
    try:
        return _without_none([(as_slices(as_arrays(grad)), var) for grad, var in pairs])
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise InvalidArgumentError(
            "grads_and_vars must be pairs of a gradient and a variable"
        ) from None


def as_arrays(grad: Any) -> Any:
    """Return a gradient with arrays in the places of a tape's tensors."""
    if isinstance(grad, IndexedSlices):
        return IndexedSlices(as_arrays(grad.values), as_arrays(grad.indices), grad.dense_shape)
    return grad.numpy() if isinstance(grad, Tensor) else grad


def _without_none(pairs: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    kept = [(grad, var) for grad, var in pairs if grad is not None]
    missing = [
        var.name if isinstance(var, Variable) else "Variable" for grad, var in pairs if grad is None
    ]
    if not kept:
        raise InvalidArgumentError(f"No gradients provided for any variable: {missing}.")
    if missing:
        message = f"Gradients do not exist for variables {missing}."
        warnings.warn(message, stacklevel=stacklevel())
    return kept


def as_variable(var: Any) -> Variable:
    """Return a variable as it is, and an array as one."""
    if isinstance(var, Variable):
        return var
    if isinstance(var, np.ndarray):
        return Variable(var)
    raise InvalidTypeError(f"Trying to update a {type(var).__name__}, not a variable")


def memory_of(variable: Variable) -> Any:
    """Return what identifies a variable: the same memory seen the same way."""
    array = variable.numpy()
    return array.ctypes.data, array.shape, array.strides, array.dtype


def now_at(memory: Any, moved: dict[Any, Variable]) -> Any:
    """Return the memory of a variable after others have come in the places of some, by theirs."""
    return memory_of(moved[memory]) if memory in moved else memory


def checked_gradient(grad: Any, variable: Variable) -> Any:
    """Return a gradient, an array or IndexedSlices, that fits a variable."""
    array, op, alpha = variable.numpy(), apply_gradient_descent, {"alpha": 0.0}
    if isinstance(grad, IndexedSlices):
        op.check(op.bind(array, grad.values, indices=grad.indices, **alpha))
        return grad
    grad = grad if hasattr(grad, "dtype") else np.asarray(grad, array.dtype)
    op.check(op.bind(array, grad, **alpha))
    return np.asarray(grad)


def are_finite(pairs: list[tuple[Any, Any]]) -> bool:
    """Return whether no element of gradients, which fit their variables, is infinite or NaN."""
    grads = [checked_gradient(grad, as_variable(var)) for grad, var in pairs]
    arrays = [grad.values if isinstance(grad, IndexedSlices) else grad for grad in grads]
    return all(np.isfinite(array).all() for array in arrays)


def as_gradient(grad: Any, var: Any) -> Any:
    """Return a gradient as it is if it has a dtype; a list gets the variable's."""
    if isinstance(grad, IndexedSlices) or hasattr(grad, "dtype"):
        return grad
    return np.asarray(grad, as_variable(var).dtype)


def times(grad: Any, scale: float) -> Any:
    """Return a gradient times a number."""
    if scale == 1:
        return grad
    if isinstance(grad, IndexedSlices):
        return IndexedSlices(times(grad.values, scale), grad.indices)
    if grad.dtype.itemsize != 2:
        return grad * grad.dtype.type(scale)
    with np.errstate(over="ignore"):  # the scale itself may be beyond 16 bits
        return (grad.astype(np.float32) * np.float32(scale)).astype(grad.dtype)


def refuse_rows(grads: Iterable[Any], variables: Iterable[Variable]) -> None:
    """Refuse gradients of some rows where a constraint is one of the whole variable."""
    for grad, variable in zip(grads, variables, strict=True):
        if variable.constraint is not None and isinstance(grad, IndexedSlices):
            raise RuntimeError(
                f"Cannot use a constraint function on a sparse variable: {variable.name}"
            )
